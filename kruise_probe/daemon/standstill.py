"""Detects stalls of this process: it was stopped, got no CPU, or a step of the loop took too long.

After a stall, timers expire before the data that arrived meanwhile is read. So a probe may time out although its
response arrived in time.

Source: none in Go; kubelet fails such probes.
"""

import asyncio
from typing import Final

STEP_SECONDS: Final = 0.25
LONG_SECONDS: Final = 0.2
"""A delay of this much is a stall; a busy loop is late by some milliseconds."""


class Standstill:
    """Checks the time four times a second while `run` runs; it misses stalls shorter than `LONG_SECONDS`."""

    def __init__(self) -> None:
        self._ended_at = float("-inf")
        self._timer: asyncio.Handle | None = None

    def since(self, at: float) -> bool:
        """Whether a stall has ended since loop time `at`."""
        return self._ended_at >= at

    async def run(self) -> None:
        """Check until cancelled."""
        loop = asyncio.get_running_loop()
        # A callback, not a sleeping task: it must run before the tasks whose timers expired together with it.
        self._check(loop, loop.time())
        try:
            await loop.create_future()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _check(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        at = loop.time()
        if at - due >= LONG_SECONDS:
            self._ended_at = at
        self._timer = loop.call_at(at + STEP_SECONDS, self._check, loop, at + STEP_SECONDS)
