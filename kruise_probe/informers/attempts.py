"""The attempts of a reflector: the wait between two of them, and whether the server responds to them.

Source: client-go tools/cache/reflector.go (backoffManager).
Differs: the interval is measured from the start of one attempt to the start of the next.
"""

import math
import random
from typing import Final

from kruise_probe.api.errors import ApiError, ServerError, TooManyRequests
from kruise_probe.api.times import loop_time

FIRST_INTERVAL_SECONDS: Final = 1.6
LAST_INTERVAL_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
"""An attempt that lasted this long resets the backoff."""

SLOW_RESPONSE_SECONDS: Final = 5.0
"""An attempt without a response for this long is an outage."""


class Backoff:
    """Doubles the interval after each attempt shorter than it, from 0.8-1.6 s up to 15-30 s."""

    def __init__(self) -> None:
        self._interval_seconds = FIRST_INTERVAL_SECONDS

    def delay_after(self, lasted_seconds: float) -> float:
        """Return the seconds to wait after an attempt of this duration; 0.0 is no wait."""
        if lasted_seconds >= HEALTHY_SECONDS:
            self._interval_seconds = FIRST_INTERVAL_SECONDS
            return 0.0
        jitter = random.uniform(0.5, 1.0)
        interval_seconds = self._interval_seconds * jitter
        if lasted_seconds >= interval_seconds:
            return 0.0
        doubled = 2 * self._interval_seconds
        self._interval_seconds = min(LAST_INTERVAL_SECONDS, doubled)
        return interval_seconds - lasted_seconds


class Outage:
    """Whether the server responds. In an outage it does not, or only with 429 or 5xx."""

    def __init__(self) -> None:
        self._waiting_since: float | None = None
        """None if the server has responded, and -inf once an attempt ended without a response."""
        self._ended_at = -math.inf

    def begin_attempt(self) -> None:
        if self._waiting_since is None:
            self._waiting_since = loop_time()

    def end_attempt(self, error: Exception | None) -> None:
        is_refusal = isinstance(error, ApiError)
        if is_refusal and not isinstance(error, ServerError | TooManyRequests):
            self.record_response()
        elif self._waiting_since is not None:
            self._waiting_since = -math.inf

    def record_response(self) -> None:
        if self._waiting_since is None:
            return
        if self._lasts():
            self._ended_at = loop_time()
        self._waiting_since = None

    def seconds_since(self) -> float:
        if self._lasts():
            return 0.0
        return loop_time() - self._ended_at

    def _lasts(self) -> bool:
        since = self._waiting_since
        return since is not None and loop_time() - since >= SLOW_RESPONSE_SECONDS
