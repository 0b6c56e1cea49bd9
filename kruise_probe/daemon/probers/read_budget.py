"""Limits how much one attempt reads from its peer, and how often.

A pod may send as fast as the event loop can read. So each attempt has a byte limit over all of its connections. The
first 4 KiB are read at once. For more, the attempt waits for its turn: one attempt reads per pass of the event loop,
however many pods send at the same time.

Source: none in Go, whose scheduler preempts.
"""

import asyncio
from typing import Final

MAX_ATTEMPT_BYTES: Final = 256 * 1024
"""Limit over all connections of one attempt, with TLS handshakes. Health checks use less than a tenth of it."""

READ_BYTES: Final = 4 * 1024
"""Limit of one read. Parsing that much takes 2 ms at worst."""

_turns: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock] = (None, asyncio.Lock())


class TooManyBytes(Exception):
    """The peer sent more bytes than an attempt may read."""


class ReadBudget:
    """How many bytes one attempt may still read."""

    __slots__ = ("_left", "_max_bytes")

    def __init__(self, max_bytes: int = MAX_ATTEMPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes

    @property
    def needs_turn(self) -> bool:
        """The first `READ_BYTES` have been read: await `take_turn` before the next read."""
        return self._max_bytes - self._left >= READ_BYTES

    def spend(self, size: int) -> None:
        """Count `size` bytes as read. Raises: TooManyBytes."""
        self._left -= size
        if self._left < 0:
            raise TooManyBytes(
                f"the server sent more than {self._max_bytes} bytes; probe an endpoint with a smaller response"
            )


async def take_turn() -> None:
    """Yield to the event loop. One waiting attempt continues per pass of the loop."""
    global _turns
    loop = asyncio.get_running_loop()
    if _turns[0] is not loop:
        _turns = (loop, asyncio.Lock())
    async with _turns[1]:
        await asyncio.sleep(0)
