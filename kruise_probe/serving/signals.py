"""Cancel work on a signal, so that it can restore the terminal or stop its child processes."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signalled(Exception):
    """The work was cancelled by the signal `number`, and has ended."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number


async def until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`. The first SIGINT, SIGTERM or SIGHUP cancels it; further signals are ignored.

    Raises:
        Signalled: a signal cancelled `work`.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    caught: list[int] = []

    def catch(number: int) -> None:
        if not caught:
            caught.append(number)
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, catch, number)
    try:
        return await work
    except asyncio.CancelledError:
        if caught and not task.uncancel():
            raise Signalled(caught[0]) from None
        raise
