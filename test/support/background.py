"""What runs in the event loop beside a block: a coroutine of the test, and callbacks that must not fail."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Cancels `work` at the end. If `work` failed, raises its error, or adds it as a note to the test's own error."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    try:
        yield task
    except BaseException as error:
        if task.done() and not task.cancelled():
            error.add_note(f"what ran beside it had ended: {task.exception()!r}")
        raise
    finally:
        task.cancel()
        _ = await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@contextmanager
def no_failed_callback() -> Iterator[None]:
    """Raise the error of a callback that failed within the block. asyncio only logs it."""
    loop = asyncio.get_running_loop()
    failed: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: failed.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(before)
    for context in failed:
        raise context.get("exception") or AssertionError(context["message"])
