"""Finds out how long the event loop of this process stood still.

A stall (the process was stopped, got no CPU, or one step of the loop took too long) delays every probe and every watch.
After it, timers expire before the loop reads the data that arrived meanwhile. So a probe may time out although its
response arrived in time.
"""

import asyncio
from typing import Final

from prometheus_client import Gauge

TICK_SECONDS: Final = 0.25
STALL_SECONDS: Final = 0.2
"""Ticks that are this late count as a stall; a busy loop is late by some milliseconds. Every stall of
`TICK_SECONDS + STALL_SECONDS` is detected."""
MEMORY_SECONDS: Final = 15.0
"""How long a delay is reported: longer than one period of a liveness probe and shorter than two. So one stall fails
one liveness probe only, and causes no restart."""
MAX_LAG_SECONDS: Final = 5.0

LAG: Final = Gauge(
    "kruise_probe_loop_lag_seconds", "The event loop's longest delay of the last 15 seconds."
)


class StallDetector:
    """Measures how late a timer fires, four times a second while `run` runs. One per process."""

    def __init__(self) -> None:
        self._stall_ended_at = float("-inf")
        self._longest_seconds = 0.0
        self._forget_at = 0.0
        self._timer: asyncio.Handle | None = None

    def stalled_since(self, at: float) -> bool:
        """Whether a stall has ended since loop time `at`."""
        return self._stall_ended_at >= at

    def check(self) -> str | None:
        """Health check that fails after a delay of more than `MAX_LAG_SECONDS`."""
        if self._longest_seconds <= MAX_LAG_SECONDS:
            return None
        return (
            f"the event loop was blocked for {self._longest_seconds:.1f} s; "
            f"at most {MAX_LAG_SECONDS:g} s are healthy"
        )

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        # A callback, not a sleeping task: it must run before the tasks whose timers expired together with it.
        self._tick(loop, loop.time())
        try:
            await loop.create_future()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._record(now - due, now)
        self._timer = loop.call_at(
            now + TICK_SECONDS,
            self._tick,
            loop,
            now + TICK_SECONDS,
        )

    def _record(self, lag_seconds: float, now: float) -> None:
        if lag_seconds >= STALL_SECONDS:
            self._stall_ended_at = now
        if lag_seconds >= self._longest_seconds or now >= self._forget_at:
            self._longest_seconds = max(lag_seconds, 0.0)
            self._forget_at = now + MEMORY_SECONDS
            LAG.set(self._longest_seconds)
