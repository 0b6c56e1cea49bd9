"""Calls that may block forever, such as an exec plugin, each in a daemon thread of its own.

Unlike with `asyncio.to_thread`, the process does not wait for such a thread at its exit.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def run_blocking(call: Callable[[], T]) -> T:
    """Run a call in a thread and return its result. Cancelling ends only the wait; the thread continues."""
    return await asyncio.wrap_future(start_blocking(call))


def start_blocking(call: Callable[[], T]) -> Future[T]:
    """Start a call in a thread. The future cannot be cancelled."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # no longer cancellable; only the thread sets its result

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="blocking call", daemon=True).start()
    return future
