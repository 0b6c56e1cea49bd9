"""How long a failed key waits for its next try.

Source: client-go util/workqueue/default_rate_limiters.go.
Differs: the defaults, see the constants.
"""

import asyncio
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from kruise_probe.api.token_bucket import TokenBucket

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

BASE_DELAY_SECONDS: Final = 0.005
"""First retry: as client-go, what failed by a blink of the network is done before anyone sees it."""

MAX_DELAY_SECONDS: Final = 30.0
"""Later retries, against client-go's 1,000 s: a condition on a pod may be the reason why traffic does
or does not reach it, so an outage of any length must not be felt for longer than this after its end.
Equal to the cap of a reflector's backoff: caches and writes recover together."""

OVERALL_RETRIES_PER_SECOND: Final = 100.0
"""Retries of all keys together, against client-go's 10: thousands of pods fail at once when the API
server goes away for a moment, and it takes some 440 writes a second, so a quarter is left to retries."""

OVERALL_BURST: Final = 500
"""Retries that may be had at once: one round over the pods of a mid-sized cluster."""


class RateLimiter(Protocol[K_contra]):
    """Decides on delays, and remembers failures until told to forget."""

    def when(self, key: K_contra) -> float:
        """Counts one failure of `key` and returns the seconds until its next try."""

    def forget(self, key: K_contra) -> None:
        """The key succeeded, or is given up: its failures no longer count."""

    def num_requeues(self, key: K_contra) -> int:
        """Failures of `key` since it was last forgotten."""


class ItemExponentialFailureRateLimiter(Generic[K]):
    """`base_seconds` times two to the power of the failures so far, at most `max_seconds`.

    Remembers one number per failing key until `forget`.
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
    """A token bucket over all keys: `burst` at once, then `per_second`, whoever asks."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._bucket = TokenBucket(burst=burst, interval_seconds=1.0 / per_second)

    def when(self, _key: Hashable) -> float:
        """Takes a token; returns the seconds until it is there."""
        return self._bucket.take(asyncio.get_running_loop().time())

    def forget(self, _key: Hashable) -> None:
        """Tokens are not given back."""

    def num_requeues(self, _key: Hashable) -> int:
        return 0


class MaxOfRateLimiter(Generic[K]):
    """Asks all of its limiters and takes the longest delay."""

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
    """What a controller's queue uses: per key exponential, and a bucket over all keys."""
    return MaxOfRateLimiter(
        ItemExponentialFailureRateLimiter(
            base_seconds=BASE_DELAY_SECONDS, max_seconds=MAX_DELAY_SECONDS
        ),
        BucketRateLimiter(per_second=OVERALL_RETRIES_PER_SECOND, burst=OVERALL_BURST),
    )
