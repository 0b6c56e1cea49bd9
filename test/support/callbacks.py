"""Callbacks of the event loop that fail."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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
