"""Rounds: requests that are sent within 2 ms of each other are read together.

A pod on this node answers within a millisecond. An epoll wait needs a registration, a wakeup and a step of the event
loop, which cost more CPU than the read itself. So each probe first tries to read at the end of its round. It waits with
epoll only if the response is not complete by then.
"""

import asyncio
from typing import Final

ANSWER_SECONDS: Final = 0.002
"""Length of a round. Most responses arrive within it. The first bucket of the duration metric is longer (5 ms)."""

_newest: tuple[asyncio.AbstractEventLoop | None, float] = (None, 0.0)


def end_of_round(loop: asyncio.AbstractEventLoop) -> float:
    """When the current round ends, in loop time. The same for all requests that are sent before it."""
    global _newest
    owner, ends_at = _newest
    now = loop.time()
    if owner is not loop or ends_at <= now:
        ends_at = now + ANSWER_SECONDS
        _newest = (loop, ends_at)
    return ends_at
