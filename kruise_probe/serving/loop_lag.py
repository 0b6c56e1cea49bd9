"""Lag of the event loop: a blocked loop delays every probe and every watch.

Source: kopf's liveness discussion; Go needs none, as its scheduler preempts.
"""

import asyncio

from prometheus_client import Gauge

TICK_SECONDS = 1.0
MEMORY_SECONDS = 15.0
"""How long a delay is reported: longer than one period of a liveness probe and shorter than two. So one stall fails
one liveness probe only, and causes no restart."""

MAX_LAG_SECONDS = 5.0

LAG = Gauge(
    "kruise_probe_loop_lag_seconds", "The event loop's longest delay of the last 15 seconds."
)


class LoopLag:
    """Measures how late a timer of `TICK_SECONDS` fires; `run` measures until cancelled."""

    def __init__(self) -> None:
        self._worst_seconds = 0.0
        self._forget_at = 0.0

    @property
    def seconds(self) -> float:
        """The longest delay of the last `MEMORY_SECONDS`."""
        return self._worst_seconds

    def check(self) -> str | None:
        """Health check that fails above `MAX_LAG_SECONDS`."""
        if self._worst_seconds <= MAX_LAG_SECONDS:
            return None
        return f"the event loop was blocked for {self._worst_seconds:.1f} s"

    async def run(self) -> None:
        time = asyncio.get_running_loop().time
        while True:
            due = time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._record(time() - due, time())

    def _record(self, lag_seconds: float, now: float) -> None:
        if lag_seconds >= self._worst_seconds or now >= self._forget_at:
            self._worst_seconds = max(lag_seconds, 0.0)
            self._forget_at = now + MEMORY_SECONDS
            LAG.set(self._worst_seconds)
