"""How much one attempt may read from its peer, and when it must let others run first.

A pod may send as fast as the loop can read. So an attempt has a total number of bytes, over all of its connections.
Its first bytes are read at once. For more it waits for its turn: one attempt reads in each pass of the event loop,
however many pods send at the same time.

Source: none in Go, whose scheduler preempts.
"""

import asyncio
from typing import Final

MAX_ATTEMPT_BYTES: Final = 256 * 1024
"""Of all connections of one attempt, TLS handshakes included. A health check answers with less than a tenth of it."""

READ_BYTES: Final = 4 * 1024
"""At most, in one step of the loop. Parsing that much takes one or two milliseconds at worst."""

_turns: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock] = (None, asyncio.Lock())


class TooManyBytes(Exception):
    """The peer sent more than an attempt reads."""


class ReadBudget:
    """The bytes that one attempt has left to read."""

    __slots__ = ("_left", "_max_bytes")

    def __init__(self, max_bytes: int = MAX_ATTEMPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes

    @property
    def needs_turn(self) -> bool:
        """More than the first bytes has been read: `take_turn` comes before the next read."""
        return self._max_bytes - self._left >= READ_BYTES

    def spend(self, size: int) -> None:
        """Counts what was read. Raises: TooManyBytes."""
        self._left -= size
        if self._left < 0:
            raise TooManyBytes(
                f"the server sent more than {self._max_bytes} bytes; probe an endpoint that answers with less"
            )


async def take_turn() -> None:
    """Lets everything else run; of all that wait here, one goes on in each pass of the loop."""
    global _turns
    loop = asyncio.get_running_loop()
    if _turns[0] is not loop:
        _turns = (loop, asyncio.Lock())
    async with _turns[1]:
        await asyncio.sleep(0)
