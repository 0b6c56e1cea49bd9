"""Waiting for a time that may change meanwhile."""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time


async def wait_until_due(due: Callable[[], float], wake: asyncio.Event) -> None:
    """Wait until the loop time `due()`; it is computed again when that time has come, and when `wake` is set.

    An earlier time needs `wake`; a later one does not.
    """
    while True:
        due_at = due()
        if due_at <= loop_time() + CLOCK_SLACK_SECONDS:
            return
        wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if due_at == math.inf else due_at):
                await wake.wait()
