"""The delay before a failed key is retried.

Source: client-go util/workqueue/default_rate_limiters.go (DefaultTypedControllerRateLimiter).
Differs: one class instead of a maximum of two; other defaults, see the constants.
"""

import asyncio
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from kruise_probe.api.token_bucket import TokenBucket

K = TypeVar("K", bound=Hashable)

BASE_DELAY_SECONDS: Final = 0.005
"""Delay of the first retry, as in client-go: short enough to hide a brief network failure."""

MAX_DELAY_SECONDS: Final = 30.0
"""Maximum delay of a retry; client-go has 1,000 s. A pod's condition may decide whether it gets traffic,
so the effects of an outage must end within this time after it. It equals the maximum of a reflector's
backoff, so caches and writes recover together."""

OVERALL_RETRIES_PER_SECOND: Final = 100.0
"""Retries of all keys together; client-go has 10. When the API server is briefly unavailable, thousands
of pods fail at once. It accepts about 440 writes per second, and retries may use a quarter of them."""

OVERALL_BURST: Final = 500
"""Retries allowed at once: one for each pod of a mid-sized cluster."""


class RetryRateLimiter(Generic[K]):
    """Exponential backoff for each key, or the wait for the token bucket of all keys if that is longer.

    Stores one number per failing key until `forget`.
    """

    def __init__(self) -> None:
        self._failures: dict[K, int] = {}
        self._overall = TokenBucket(
            burst=OVERALL_BURST, interval_seconds=1.0 / OVERALL_RETRIES_PER_SECOND
        )

    def when(self, key: K) -> float:
        """Count one failure of `key` and return the seconds until its retry."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(MAX_DELAY_SECONDS, BASE_DELAY_SECONDS * 2.0 ** min(failures, 64))
        return max(backoff, self._overall.take(asyncio.get_running_loop().time()))

    def forget(self, key: K) -> None:
        """Reset the failures of `key`, because it succeeded."""
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Return the failures of `key` since the last `forget`."""
        return self._failures.get(key, 0)
