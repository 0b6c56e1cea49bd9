"""Moments in which this process stood still: stopped, without a processor, or in a step that took too long.

When it goes on, timers have run out before what arrived meanwhile is read. So a probe that seems to have taken too long
may have been answered in time, and nobody was there to hear it.

Source: none in Go; kubelet fails such probes.
"""

import asyncio
from typing import Final

STEP_SECONDS: Final = 0.25
LONG_SECONDS: Final = 0.2
"""A delay of this much is a standstill; a busy loop is late by some milliseconds."""


class Standstill:
    """Looks at the time four times a second while `run` runs, so it misses what is shorter than `LONG_SECONDS`."""

    def __init__(self) -> None:
        self._ended_at = float("-inf")
        self._timer: asyncio.Handle | None = None

    def since(self, at: float) -> bool:
        """Whether one has ended since `at`, in the loop's time."""
        return self._ended_at >= at

    async def run(self) -> None:
        """Looks until cancelled."""
        loop = asyncio.get_running_loop()
        # A callback and no sleeping task: it must be heard before the tasks whose timers ran out with it.
        self._look(loop, loop.time())
        try:
            await loop.create_future()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        at = loop.time()
        if at - due >= LONG_SECONDS:
            self._ended_at = at
        self._timer = loop.call_at(at + STEP_SECONDS, self._look, loop, at + STEP_SECONDS)
