"""Runs a coroutine for the length of a block."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
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
