"""A token bucket: a burst, then a fixed rate. The only implementation; what waits or sleeps is its owner's business.

Source: golang.org/x/time/rate (Limiter).
Differs: one number of state, the time at which the bucket is full again; times are passed in.
"""


class TokenBucket:
    """Holds `burst` tokens at most; one token comes back every `interval_seconds`."""

    __slots__ = ("_burst", "_full_at", "_interval_seconds")

    def __init__(self, *, burst: int, interval_seconds: float) -> None:
        self._burst = burst
        self._interval_seconds = interval_seconds
        self._full_at = float("-inf")

    def wait_seconds(self, now: float, *, extra: int = 0) -> float:
        """Seconds until a token is there, 0.0 for now. `extra` tokens may be overdrawn."""
        spare_seconds = (self._burst + extra - 1) * self._interval_seconds
        return max(0.0, self._full_at - now - spare_seconds)

    def take(self, now: float) -> float:
        """Takes the next token, even one that is yet to come; returns the seconds until it is there."""
        wait = self.wait_seconds(now)
        self._full_at = max(self._full_at, now) + self._interval_seconds
        return wait

    def is_full(self, now: float) -> bool:
        """Whether a new bucket would do the same from now on."""
        return self._full_at <= now
