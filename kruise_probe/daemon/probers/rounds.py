"""Probes that have asked within the same moment look for their answers together.

A pod of this node answers within a millisecond. Waiting for that by epoll means one registration, one waking of the
process and one step of the event loop for each answer, which costs more than the answer itself. So a probe looks once,
`ANSWER_SECONDS` after the first of its round has asked; only what is not there by then is waited for by epoll.
"""

import asyncio
from typing import Final

ANSWER_SECONDS: Final = 0.002
"""Most answers are there by then; less than the first bucket of a probe's duration, which is 5 ms."""


class Round:
    """Waits for the end of one round; `is_over` after it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_over = False
        self._waiting: list[asyncio.Future[None]] = []

    async def over(self) -> None:
        """Returns at the end of the round. Each waits for a future of its own: one may be cancelled."""
        if not self._waiting:
            _ = self.loop.call_later(ANSWER_SECONDS, self._end)
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(future)
        await future

    def _end(self) -> None:
        self.is_over = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


_newest: Round | None = None


def round_of(loop: asyncio.AbstractEventLoop) -> Round:
    """The round that is under way on `loop`, or a new one."""
    global _newest
    if _newest is None or _newest.is_over or _newest.loop is not loop:
        _newest = Round(loop)
    return _newest
