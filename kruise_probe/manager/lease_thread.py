"""An event loop in a thread, in which a leader is elected, and a record of when the main loop last turned.

One slow step of the main loop must not end a healthy leader, and a loop that hangs must not stay one.

Source: no counterpart. In client-go, goroutines renew the Lease while others compute.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from kruise_probe.blocking import start_blocking

END_SECONDS: Final = 3.0
"""Longest wait for the end of cancelled work: the release of a Lease takes two. The process has five seconds to end."""

_Running = tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]


async def run_beside(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await `work()` on an event loop of its own. Cancelling cancels it there."""
    started: Future[_Running] = Future()
    ended = start_blocking(lambda: _run(work, started))
    try:
        await asyncio.wrap_future(ended)
    except asyncio.CancelledError:
        loop, task = await asyncio.wrap_future(started)
        with suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(task.cancel)
        done, _ = await asyncio.wait({asyncio.wrap_future(ended)}, timeout=END_SECONDS)
        for end in done:
            end.exception()  # it was cancelled, or has just failed
        raise


def _run(work: Callable[[], Coroutine[Any, Any, None]], started: Future[_Running]) -> None:
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(work())
        started.set_result((loop, task))
        loop.run_until_complete(task)
    finally:
        loop.close()


class LoopTurns:
    """When the running loop last turned. Any thread may read it; all loops have the same clock."""

    def __init__(self, interval_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval_seconds = interval_seconds
        self.last = self._loop.time()
        self._timer = self._loop.call_later(interval_seconds, self._turn)

    def _turn(self) -> None:
        self.last = self._loop.time()
        self._timer = self._loop.call_later(self._interval_seconds, self._turn)

    def stop(self) -> None:
        self._timer.cancel()
