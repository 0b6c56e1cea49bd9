"""How late the event loop is: whatever blocks it delays every probe and every watch.

Source: none in Go, whose scheduler preempts; kopf's liveness discussion asks for the same signal.
"""

import asyncio

from prometheus_client import Gauge

TICK_SECONDS = 1.0
MEMORY_SECONDS = 15.0
"""How long a delay is remembered: longer than the period of a liveness probe, shorter than two of them, so that
one stall is seen once and kills nobody."""

MAX_LAG_SECONDS = 5.0

LAG = Gauge(
    "kruise_probe_loop_lag_seconds", "The event loop's longest delay of the last 15 seconds."
)


class LoopLag:
    """Measures by ticking; `run` does it until cancelled, at the cost of one wake-up a second."""

    def __init__(self) -> None:
        self._worst_seconds = 0.0
        self._forget_at = 0.0

    @property
    def seconds(self) -> float:
        """The longest delay of the last `MEMORY_SECONDS`."""
        return self._worst_seconds

    def check(self) -> str | None:
        """A health check: fails above `MAX_LAG_SECONDS`."""
        if self._worst_seconds <= MAX_LAG_SECONDS:
            return None
        return f"the event loop was blocked for {self._worst_seconds:.1f} s"

    async def run(self) -> None:
        time = asyncio.get_running_loop().time
        while True:
            due = time() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._measured(time() - due, time())

    def _measured(self, lag_seconds: float, now: float) -> None:
        if lag_seconds >= self._worst_seconds or now >= self._forget_at:
            self._worst_seconds = max(lag_seconds, 0.0)
            self._forget_at = now + MEMORY_SECONDS
            LAG.set(self._worst_seconds)
