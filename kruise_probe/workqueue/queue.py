"""The queue of a controller: deduplicating, with priorities, delays, retries, and shares of the workers.

Invariants, as in client-go: every ready key is dirty and not processing. A key added while it is
processing is only dirty, and becomes ready when it is done. No method awaits inside a state change.

Source: client-go util/workqueue: queue.go, delaying_queue.go, rate_limiting_queue.go; controller-runtime
pkg/controller/priorityqueue.
Differs: one class instead of four; retries and turns have modules of their own. There is no ShutDown, because workers end by
cancellation. Each delayed key has its own event loop timer, instead of one waiting loop with a heap. A failed key can have a
minimum delay, the server's Retry-After. `done` raises for a key that is not processing, instead of queueing it a second time.
Groups of keys share the workers; in controller-runtime, slow reconciles of one owner hold all of them.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from kruise_probe.api.histogram import DurationHistogram
from kruise_probe.api.times import loop_time
from kruise_probe.workqueue.retries import (
    OVERALL_BURST,
    OVERALL_RETRIES_PER_SECOND,
    backoff_seconds,
)
from kruise_probe.workqueue.token_turns import TokenTurns
from kruise_probe.workqueue.turns import GroupOf, Priority, PriorityFifo, one_group

K = TypeVar("K", bound=Hashable)

DURATION_BUCKETS: Final = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
"""Seconds: 10 ns to 1,000 s in twelve powers of ten, as in client-go."""


class WorkQueue(Generic[K]):
    """Keys that need processing. Belongs to one event loop; needs no task. A cancelled `get` loses no key.

    A group may hold all workers but one, while it alone has ready keys of its priority; of several such groups, each may
    hold an equal share of them. The last free worker is for a group that holds none. So a group whose reconciles are slow
    delays no other. A worker that has called `done` calls `get` again.

    Args:
        name: of the controller, and of the queue's metrics.
        group_of: the group of a key; among ready keys of equal priority, groups take turns, one key each.
        is_open: a closed queue ignores all keys. Otherwise it would grow while no worker takes its keys.

    Attributes:
        dirty: keys that need processing, with their priority.
        delayed: keys that will be added, with their timer and priority.
        processing: keys being processed, with the loop time at which that began.
        adds, retries, queue_duration, work_duration: the counters of the queue's metrics.
    """

    def __init__(
        self,
        name: str,
        group_of: GroupOf[K] = one_group,
        is_open: bool = True,
    ) -> None:
        self.name = name
        self.is_open = is_open
        self.dirty: dict[K, Priority] = {}
        self.processing: dict[K, float] = {}
        self.adds = 0
        self.retries = 0
        self.queue_duration = DurationHistogram(DURATION_BUCKETS)
        self.work_duration = DurationHistogram(DURATION_BUCKETS)
        self._group_of = group_of
        self._failures: dict[K, int] = {}
        self._retries: TokenTurns[K] = TokenTurns(
            group_of,
            self.add,
            burst=OVERALL_BURST,
            interval_seconds=1.0 / OVERALL_RETRIES_PER_SECOND,
        )
        self._ready: PriorityFifo[K] = PriorityFifo(group_of)
        self._added_at: dict[K, float] = {}
        self.delayed: dict[K, tuple[asyncio.TimerHandle, Priority]] = {}
        self._workers = math.inf
        self._most = math.inf
        self._held: dict[Hashable, int] = {}
        """The workers that each group holds."""
        self._idle: deque[asyncio.Future[None]] = deque()
        """The workers that wait for a key that they may take."""

    def __len__(self) -> int:
        """Number of ready keys, without delayed keys and keys being processed."""
        return len(self._ready)

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Mark `key` dirty. A key that is already dirty takes `priority` if that is higher."""
        if not self.is_open:
            return
        current = self.dirty.get(key)
        if current is None:
            self.dirty[key] = priority
            self.adds += 1
            self._added_at[key] = loop_time()
            if key not in self.processing:
                self._ready.push(key, priority)
                self._wake()
        elif priority > current:
            self.dirty[key] = priority
            if key not in self.processing:
                self._ready.touch(key, current, priority)
                self._wake()

    def add_after(
        self,
        key: K,
        seconds: float,
        priority: Priority = Priority.NORMAL,
    ) -> None:
        """Add `key` after `seconds`, with the highest priority requested during the delay.

        If a key has several delays, the one that ends first is kept. `add` does not cancel a delay: the
        key is added again when the delay ends.
        """
        if seconds <= 0:
            self.add(key, priority)
            return
        self._delay(key, seconds, priority, self._add_delayed)

    def _delay(
        self,
        key: K,
        seconds: float,
        priority: Priority,
        then: Callable[[K], None],
    ) -> None:
        self.retries += 1
        loop = asyncio.get_running_loop()
        ready_at = loop.time() + seconds
        pending = self.delayed.get(key)
        if pending is not None:
            timer, pending_priority = pending
            priority = max(priority, pending_priority)
            if timer.when() <= ready_at:
                self.delayed[key] = (timer, priority)
                return
            timer.cancel()
        self.delayed[key] = (loop.call_at(ready_at, then, key), priority)

    def add_rate_limited(
        self,
        key: K,
        priority: Priority = Priority.NORMAL,
        *,
        at_least_seconds: float = 0.0,
    ) -> None:
        """Add `key` after its backoff, or `at_least_seconds` if that is longer, once it has a token for retries.

        The backoff doubles with each call until `forget`. Of two delays of a key, the one that ends first is kept.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = max(backoff_seconds(failures), at_least_seconds)
        self._delay(key, seconds, priority, self._retry)

    def forget(self, key: K) -> None:
        """Reset the backoff of `key`. A pending delay is kept."""
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was added rate limited since the last `forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> tuple[K, Priority]:
        """Wait for the next key and return it with its priority. The caller must call `done` with it."""
        while (key := self._ready.pop(self._may_hold)) is None:
            await self._wait()
        now = loop_time()
        self.processing[key] = now
        group = self._group_of(key)
        self._held[group] = self._held.get(group, 0) + 1
        self.queue_duration.observe(now - self._added_at.pop(key))
        self._wake()
        return key, self.dirty.pop(key)

    def done(self, key: K) -> None:
        """Mark `key` as processed. It becomes ready again if it was added meanwhile.

        Raises:
            KeyError: the key is not being processed.
        """
        started_at = self.processing.pop(key)
        group = self._group_of(key)
        held = self._held.pop(group)
        if held > 1:
            self._held[group] = held - 1
        now = loop_time()
        self.work_duration.observe(now - started_at)
        priority = self.dirty.get(key)
        if priority is not None:
            self._ready.push(key, priority)
            self._wake()

    def discard(self, key: K) -> None:
        """Forget that `key` was added, or will be after a delay. If it is being processed, that continues."""
        delayed = self.delayed.pop(key, None)
        if delayed is not None:
            delayed[0].cancel()
        priority = self.dirty.pop(key, None)
        if priority is not None:
            del self._added_at[key]
            if key not in self.processing:
                self._ready.discard(key, priority)

    def share(self, workers: int, *, most: float = math.inf) -> None:
        """Let the groups share so many workers, `most` for one group. A queue of one group has nothing to share."""
        if self._group_of is not one_group:
            self._workers = workers
            self._most = most

    def _may_hold(self, group: Hashable, groups: int) -> bool:
        """Whether the group may hold one more worker; the number is that of the groups that wait with it."""
        held = self._held.get(group, 0)
        if not held:
            return True
        to_share = self._workers - 1
        if len(self.processing) >= to_share or held >= self._most:
            return False
        return held * groups < to_share

    async def _wait(self) -> None:
        """Wait until there is a key that a worker may take; another one may take it first."""
        turn = asyncio.get_running_loop().create_future()
        self._idle.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._idle:
                self._idle.remove(turn)
            else:
                self._wake()
            raise

    def _wake(self) -> None:
        """Wake an idle worker if there is a key that it may take."""
        if self._idle and self._ready.has_turn(self._may_hold):
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)

    def _retry(self, key: K) -> None:
        _, priority = self.delayed.pop(key)
        if self._retries.take(key, priority):
            self.add(key, priority)

    def _add_delayed(self, key: K) -> None:
        _, priority = self.delayed.pop(key)
        self.add(key, priority)
