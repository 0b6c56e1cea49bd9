"""Retries of failed keys: a backoff for each key, and one rate for all keys, shared by group.

Source: client-go util/workqueue: default_rate_limiters.go (ItemExponentialFailureRateLimiter, BucketRateLimiter).
Differs: other defaults (see the constants). The token is taken when the backoff has ended, by the keys that wait then, in
turns of their groups. In client-go it is reserved at the failure, so the failures of one owner delay those of all others.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from kruise_probe.api.times import CLOCK_SLACK_SECONDS, TokenBucket, loop_time
from kruise_probe.workqueue.turns import GroupOf, Priority, Turns, every_group

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


def backoff_seconds(failures: int) -> float:
    """The delay of the retry after a failure, which doubles with each failure before it."""
    return min(MAX_DELAY_SECONDS, BASE_DELAY_SECONDS * 2.0 ** min(failures, 64))


class RetryTurns(Generic[K]):
    """Keys whose backoff has ended; `add` gets them at the rate of all retries, their groups in turn.

    With G groups waiting, the first key of a group waits for at most G tokens, whatever the others hold.
    """

    def __init__(self, group_of: GroupOf[K], add: Callable[[K, Priority], None]) -> None:
        self._group_of = group_of
        self._add = add
        self._tokens = TokenBucket(
            burst=OVERALL_BURST, interval_seconds=1.0 / OVERALL_RETRIES_PER_SECOND
        )
        self._waiting: Turns[K, Priority] = Turns()

    def push(self, key: K, priority: Priority) -> None:
        """Add a key at its turn. A key that waits already keeps its turn."""
        group = self._group_of(key)
        waiting = self._waiting.get(group)
        if waiting is not None and key in waiting:
            waiting[key] = max(priority, waiting[key])
            return
        self._waiting.push(group, key, priority)
        if self._waiting.size == 1:
            self._release()

    def _release(self) -> None:
        """Add as many keys as there are tokens; call it again when there is one for the next."""
        now = loop_time()
        while self._waiting:
            wait = self._tokens.wait_seconds(now)
            if wait > CLOCK_SLACK_SECONDS:
                asyncio.get_running_loop().call_later(wait, self._release)
                return
            self._tokens.take(now)
            self._add(*self._waiting.pop_first(self._waiting.next_group(every_group)))
