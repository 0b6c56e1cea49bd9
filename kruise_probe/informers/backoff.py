"""When a reflector may try again.

Source: client-go tools/cache/reflector.go (defaultBackoff*), wait.Backoff.DelayWithReset.
Differs: intervals count from one try's start to the next one's, and shrink only after a healthy minute.
A balancer that cuts each watch after 50 s so costs no gap at all, and a server that ends each at once gets
five tries in ten seconds.
"""

import random
from typing import Final

FIRST_INTERVAL_SECONDS: Final = 1.6
LAST_INTERVAL_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
"""A try that lasted so long ends all backing off."""


class Backoff:
    """Doubles the interval with each try that ended before it, from 0.8 to 1.6 s up to 15 to 30 s."""

    def __init__(self) -> None:
        self._interval_seconds = FIRST_INTERVAL_SECONDS

    def delay_after(self, lasted_seconds: float) -> float:
        """Seconds to wait after a try that lasted so long; 0.0 is at once."""
        if lasted_seconds >= HEALTHY_SECONDS:
            self._interval_seconds = FIRST_INTERVAL_SECONDS
            return 0.0
        interval_seconds = self._interval_seconds * random.uniform(0.5, 1.0)
        if lasted_seconds >= interval_seconds:
            return 0.0
        self._interval_seconds = min(LAST_INTERVAL_SECONDS, 2 * self._interval_seconds)
        return interval_seconds - lasted_seconds
