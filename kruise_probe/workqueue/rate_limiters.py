"""Rate limiters: the delay before a failed key is retried.

Source: client-go util/workqueue/default_rate_limiters.go.
Differs: other defaults, see the constants.
"""

import asyncio
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from kruise_probe.api.token_bucket import TokenBucket

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

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


class RateLimiter(Protocol[K_contra]):
    """Decides the delay of each retry, and counts the failures of a key until `forget`."""

    def when(self, key: K_contra) -> float:
        """Count one failure of `key` and return the seconds until its retry."""

    def forget(self, key: K_contra) -> None:
        """Reset the failures of `key`, because it succeeded or is not retried."""

    def num_requeues(self, key: K_contra) -> int:
        """Return the failures of `key` since the last `forget`."""


class ItemExponentialFailureRateLimiter(Generic[K]):
    """Exponential backoff per key: `base_seconds` * 2^failures, at most `max_seconds`.

    Stores one number per failing key until `forget`.
    """

    def __init__(self, *, base_seconds: float, max_seconds: float) -> None:
        self._base_seconds = base_seconds
        self._max_seconds = max_seconds
        self._failures: dict[K, int] = {}

    def when(self, key: K) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._max_seconds, self._base_seconds * 2.0 ** min(failures, 64))

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        return self._failures.get(key, 0)


class BucketRateLimiter:
    """A token bucket shared by all keys: `burst` at once, then `per_second`."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._bucket = TokenBucket(burst=burst, interval_seconds=1.0 / per_second)

    def when(self, _key: Hashable) -> float:
        """Take a token and return the seconds until it is available."""
        return self._bucket.take(asyncio.get_running_loop().time())

    def forget(self, _key: Hashable) -> None:
        """Do nothing: tokens are not returned."""

    def num_requeues(self, _key: Hashable) -> int:
        return 0


class MaxOfRateLimiter(Generic[K]):
    """Returns the longest delay of several rate limiters."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        self._limiters = limiters

    def when(self, key: K) -> float:
        return max([each.when(key) for each in self._limiters])

    def forget(self, key: K) -> None:
        for each in self._limiters:
            each.forget(key)

    def num_requeues(self, key: K) -> int:
        return max([each.num_requeues(key) for each in self._limiters])


def default_controller_rate_limiter() -> RateLimiter[Hashable]:
    """Return the default for controllers: exponential backoff per key, and one token bucket."""
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(
            base_seconds=BASE_DELAY_SECONDS, max_seconds=MAX_DELAY_SECONDS
        ),
        BucketRateLimiter(per_second=OVERALL_RETRIES_PER_SECOND, burst=OVERALL_BURST),
    )
