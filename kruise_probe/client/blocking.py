"""What blocks for as long as it likes: a program that hangs, a file of a dead file server.

The loop's own executor will not do: a process that ends waits for its threads, and so for whatever hangs in one.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """What `call` returns or raises. Cancelling gives up the waiting; the thread goes on, and ends with the process."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # from now on only the thread decides how it ends

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where it is awaited
            answer.set_exception(error)
        else:
            answer.set_result(result)

    threading.Thread(target=run, name="blocking call", daemon=True).start()
    return await asyncio.wrap_future(answer)
