"""The backoff of a reflector.

Source: client-go tools/cache/reflector.go (defaultBackoff*), wait.Backoff.DelayWithReset.
Differs: an interval is measured from the start of one attempt to the start of the next. It is reset only
by an attempt that lasted a minute. A load balancer that closes each watch after 50 s therefore causes no
gap, and a server that closes each watch at once gets five attempts in ten seconds.
"""

import random
from typing import Final

FIRST_INTERVAL_SECONDS: Final = 1.6
LAST_INTERVAL_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
"""An attempt that lasted this long resets the backoff."""


class Backoff:
    """Doubles the interval after each attempt shorter than it, from 0.8-1.6 s up to 15-30 s."""

    def __init__(self) -> None:
        self._interval_seconds = FIRST_INTERVAL_SECONDS

    def delay_after(self, lasted_seconds: float) -> float:
        """Return the seconds to wait after an attempt of this duration; 0.0 is no wait."""
        if lasted_seconds >= HEALTHY_SECONDS:
            self._interval_seconds = FIRST_INTERVAL_SECONDS
            return 0.0
        interval_seconds = self._interval_seconds * random.uniform(0.5, 1.0)
        if lasted_seconds >= interval_seconds:
            return 0.0
        self._interval_seconds = min(LAST_INTERVAL_SECONDS, 2 * self._interval_seconds)
        return interval_seconds - lasted_seconds
