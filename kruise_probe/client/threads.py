"""Runs calls that may block forever, such as an exec plugin that hangs or a file on an unavailable file server.

The default executor of the event loop is not suitable, because the process waits for its threads at exit.

Source: asyncio.to_thread.
Differs: the process does not wait for the thread.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(call: Callable[[], T]) -> T:
    """Run `call` in a daemon thread and return its result.

    Cancelling ends only the wait. The thread continues until `call` returns or the process ends.
    """
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
    return await asyncio.wrap_future(future)
