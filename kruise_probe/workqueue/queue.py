"""The queue of a controller: deduplicating, with priorities, delays and retries.

Invariants, as in client-go: every ready key is dirty and not processing. A key added while it is
processing is only dirty, and becomes ready when it is done. No method awaits inside a state change.

Source: client-go util/workqueue: queue.go, delaying_queue.go, rate_limiting_queue.go, default_rate_limiters.go.
Differs: one class instead of four, with other defaults of the retries (see the constants). There is no ShutDown, because workers end by cancellation. Keys have
priorities (see `priority`). Each delayed key has its own event loop timer, instead of one waiting loop with a
heap. A failed key can have a minimum delay, the server's Retry-After. `done` raises for a key that is not
processing, instead of queueing it a second time.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from kruise_probe.api.times import TokenBucket
from kruise_probe.workqueue.metrics import QueueMetrics
from kruise_probe.workqueue.priority import GroupOf, Priority, PriorityFifo, one_group

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


class WorkQueue(Generic[K]):
    """Keys that need processing. Belongs to one event loop; needs no task. A cancelled `get` loses no key.

    Args:
        name: of the controller, which publishes the metrics under it.
        group_of: the group of a key; among ready keys of equal priority, groups take turns, one key each.
    """

    def __init__(self, *, name: str, group_of: GroupOf[K] = one_group) -> None:
        self.name = name
        self.metrics: QueueMetrics[K] = QueueMetrics()
        self._failures: dict[K, int] = {}
        self._retries = TokenBucket(
            burst=OVERALL_BURST, interval_seconds=1.0 / OVERALL_RETRIES_PER_SECOND
        )
        self._ready: PriorityFifo[K] = PriorityFifo(group_of)
        self._dirty = self.metrics.dirty
        self._processing = self.metrics.processing
        self._added_at: dict[K, float] = {}
        self._delayed: dict[K, tuple[asyncio.TimerHandle, Priority]] = {}
        self._getters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Number of ready keys, without delayed keys and keys being processed."""
        return len(self._ready)

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Mark `key` dirty. A key that is already dirty takes `priority` if that is higher."""
        current = self._dirty.get(key)
        if current is None:
            now = asyncio.get_running_loop().time()
            self._dirty[key] = priority
            self.metrics.adds += 1
            self._added_at[key] = now
            if key not in self._processing:
                self._push(key, priority, now)
        elif priority > current:
            self._dirty[key] = priority
            if key not in self._processing:
                self._ready.touch(key, current, priority)

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.NORMAL) -> None:
        """Add `key` after `seconds`, with the highest priority requested during the delay.

        If a key has several delays, the one that ends first is kept. `add` does not cancel a delay: the
        key is added again when the delay ends.
        """
        if seconds <= 0:
            self.add(key, priority)
            return
        self.metrics.retries += 1
        loop = asyncio.get_running_loop()
        ready_at = loop.time() + seconds
        pending = self._delayed.get(key)
        if pending is not None:
            timer, pending_priority = pending
            priority = max(priority, pending_priority)
            if timer.when() <= ready_at:
                self._delayed[key] = (timer, priority)
                return
            timer.cancel()
        self._delayed[key] = (loop.call_at(ready_at, self._add_delayed, key), priority)

    def add_rate_limited(
        self, key: K, priority: Priority = Priority.NORMAL, *, at_least_seconds: float = 0.0
    ) -> None:
        """Add `key` after its backoff, the wait for the token bucket of all keys, or `at_least_seconds`: the longest.

        The backoff doubles with each call until `forget`.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(MAX_DELAY_SECONDS, BASE_DELAY_SECONDS * 2.0 ** min(failures, 64))
        wait = self._retries.take(asyncio.get_running_loop().time())
        self.add_after(key, max(backoff, wait, at_least_seconds), priority)

    def forget(self, key: K) -> None:
        """Reset the backoff of `key`. A pending delay is kept."""
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was added rate limited since the last `forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> tuple[K, Priority]:
        """Wait for the next key and return it with its priority. The caller must call `done` with it."""
        while not len(self._ready):
            await self._wait_for_key()
        now = asyncio.get_running_loop().time()
        key = self._ready.pop(now)
        self._processing[key] = now
        self.metrics.queue_duration.observe(now - self._added_at.pop(key))
        return key, self._dirty.pop(key)

    def done(self, key: K) -> None:
        """Mark `key` as processed. It becomes ready again if it was added meanwhile.

        Raises:
            KeyError: the key is not being processed.
        """
        started_at = self._processing.pop(key)
        now = asyncio.get_running_loop().time()
        self.metrics.work_duration.observe(now - started_at)
        priority = self._dirty.get(key)
        if priority is not None:
            self._push(key, priority, now)

    def _add_delayed(self, key: K) -> None:
        _, priority = self._delayed.pop(key)
        self.add(key, priority)

    def _push(self, key: K, priority: Priority, now: float) -> None:
        self._ready.push(key, priority, now)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    async def _wait_for_key(self) -> None:
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            # It may have been woken in the same loop iteration: another getter must take its key.
            self._wake_one()
            raise
