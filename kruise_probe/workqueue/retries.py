"""The delays of retries: a backoff for each key, and one rate for all keys, shared by group.

Source: client-go util/workqueue: default_rate_limiters.go (ItemExponentialFailureRateLimiter, BucketRateLimiter).
Differs: other defaults. The token is taken when the backoff has ended, by the keys that wait then, in turns of their groups
(`TokenTurns`). In client-go it is reserved at the failure, so the failures of one owner delay those of all others.
"""

from typing import Final

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


def backoff_seconds(failures: int) -> float:
    """The delay of the retry after a failure, which doubles with each failure before it."""
    return min(MAX_DELAY_SECONDS, BASE_DELAY_SECONDS * 2.0 ** min(failures, 64))
