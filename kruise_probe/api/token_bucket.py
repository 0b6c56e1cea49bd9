"""A token bucket without a clock: the caller passes the time in, and waits.

Source: golang.org/x/time/rate (Limiter).
Differs: the only state is the time at which the bucket is full again.
"""


class TokenBucket:
    """Holds at most `burst` tokens; one is added every `interval_seconds`."""

    __slots__ = ("_burst", "_full_at", "_interval_seconds")

    def __init__(self, *, burst: int, interval_seconds: float) -> None:
        self._burst = burst
        self._interval_seconds = interval_seconds
        self._full_at = float("-inf")

    def wait_seconds(self, now: float, *, extra: int = 0) -> float:
        """Seconds until a token is available, 0.0 for now. `extra` tokens may be overdrawn."""
        spare_seconds = (self._burst + extra - 1) * self._interval_seconds
        return max(0.0, self._full_at - now - spare_seconds)

    def take(self, now: float) -> float:
        """Reserve the next token; return the seconds until it is available."""
        wait = self.wait_seconds(now)
        self._full_at = max(self._full_at, now) + self._interval_seconds
        return wait
