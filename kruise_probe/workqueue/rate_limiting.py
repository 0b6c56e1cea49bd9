"""The queue that controllers use: de-duplicating, with priorities, delays and retries.

Source: client-go util/workqueue/rate_limiting_queue.go.
Differs: a failed key can be told a least delay, the server's wish.
"""

from collections.abc import Hashable
from typing import TypeVar

from kruise_probe.workqueue.delaying import DelayingQueue
from kruise_probe.workqueue.priority import GroupOf, Priority, one_group
from kruise_probe.workqueue.rate_limiters import RateLimiter, default_controller_rate_limiter

K = TypeVar("K", bound=Hashable)


class WorkQueue(DelayingQueue[K]):
    """A delaying queue that knows how long a failed key waits.

    Args:
        name: of the controller; labels the metrics. Two queues of one name are added up.
        rate_limiter: `default_controller_rate_limiter()` if not given.
        group_of: the group of a key; ready keys of equal priority are handed out in turns by group.
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
        """Adds `key` after a delay that grows with each call, until `forget`; after `at_least_seconds` if that is longer."""
        self.add_after(key, max(self._rate_limiter.when(key), at_least_seconds), priority)

    def forget(self, key: K) -> None:
        """Ends the growth of delays of `key`; one that runs is left as it is."""
        self._rate_limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """How often `key` was added rate limited since it was last forgotten."""
        return self._rate_limiter.num_requeues(key)
