"""The queue of a controller: deduplicating, with priorities, delays and retries.

Source: client-go util/workqueue/rate_limiting_queue.go.
Differs: a failed key can have a minimum delay, the server's Retry-After.
"""

from collections.abc import Hashable
from typing import TypeVar

from kruise_probe.workqueue.delaying import DelayingQueue
from kruise_probe.workqueue.priority import GroupOf, Priority, one_group
from kruise_probe.workqueue.rate_limiters import RateLimiter, default_controller_rate_limiter

K = TypeVar("K", bound=Hashable)


class WorkQueue(DelayingQueue[K]):
    """A delaying queue that also rate limits the retries of failed keys.

    Args:
        name: of the controller; labels the metrics. Queues with the same name are summed.
        rate_limiter: `default_controller_rate_limiter()` if not given.
        group_of: the group of a key; among ready keys of equal priority, groups take turns.
    """

    def __init__(
        self,
        *,
        name: str,
        rate_limiter: RateLimiter[K] | None = None,
        group_of: GroupOf[K] = one_group,
    ) -> None:
        super().__init__(name=name, group_of=group_of)
        self._rate_limiter = rate_limiter or default_controller_rate_limiter()

    def add_rate_limited(
        self, key: K, priority: Priority = Priority.NORMAL, *, at_least_seconds: float = 0.0
    ) -> None:
        """Add `key` after its backoff, or after `at_least_seconds` if that is longer.

        The backoff grows with each call until `forget`.
        """
        self.add_after(key, max(self._rate_limiter.when(key), at_least_seconds), priority)

    def forget(self, key: K) -> None:
        """Reset the backoff of `key`. A pending delay is kept."""
        self._rate_limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was added rate limited since the last `forget`."""
        return self._rate_limiter.num_requeues(key)
