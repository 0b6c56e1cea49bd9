"""The queue of a controller: deduplicating, with priorities, delays and retries.

Invariants, as in client-go: every ready key is dirty and not processing. A key added while it is
processing is only dirty, and becomes ready when it is done. No method awaits inside a state change.

Source: client-go util/workqueue: queue.go, delaying_queue.go, rate_limiting_queue.go, default_rate_limiters.go;
controller-runtime pkg/controller/priorityqueue.
Differs: one class instead of four, with other defaults of the retries (see the constants). There is no ShutDown, because
workers end by cancellation. Each delayed key has its own event loop timer, instead of one waiting loop with a heap. A failed
key can have a minimum delay, the server's Retry-After. `done` raises for a key that is not processing, instead of queueing it
a second time. Priorities are three bands instead of any integer. Lower bands have a guaranteed share; in controller-runtime
they starve while higher priorities keep coming. Within a band, groups of keys take turns, like the flows of API Priority and
Fairness; in controller-runtime, one owner's thousands of keys delay all others.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

from kruise_probe.api.times import DurationHistogram, TokenBucket, loop_time

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

DURATION_BUCKETS: Final = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
"""Seconds: 10 ns to 1,000 s in twelve powers of ten, as in client-go."""

FAIR_TURN_AFTER: Final = 7
"""After this many keys of the highest band, one key of a lower band gets its turn: 1 in 8."""

OVERDUE_SECONDS: Final = 10.0
"""After this wait, keys of lower bands get every second turn instead of every eighth."""


class Priority(IntEnum):
    """LOW: resyncs. NORMAL: edits. HIGH: state transitions of a probe."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


GroupOf = Callable[[K], Hashable]
"""Returns the group of a key, for example its tenant. The groups of a band take turns."""


def one_group(_key: Hashable) -> None:
    """Put all keys into one group: first in, first out."""


class _Band(OrderedDict[Hashable, OrderedDict[K, float]]):
    """Ready keys of one priority by group, each with the loop time at which it became ready.

    Groups take turns, in dict order. Keys of one group are first in, first out.
    """

    __slots__ = ("last_turn", "size")

    def __init__(self) -> None:
        super().__init__()
        self.last_turn = self.size = 0

    def take(self, group: Hashable, key: K) -> float:
        """Remove `key` and return the loop time at which it became ready."""
        keys = self[group]
        ready_at = keys.pop(key)
        if not keys:
            del self[group]
        self.size -= 1
        return ready_at

    def next_ready_at(self) -> float:
        """Loop time at which the next key became ready."""
        keys = next(iter(self.values()))
        return next(iter(keys.values()))

    def pop_next(self) -> K:
        group = next(iter(self))
        keys = self[group]
        key, _ = keys.popitem(last=False)
        if not keys:
            del self[group]
        else:
            self.move_to_end(group)
        self.size -= 1
        return key


class PriorityFifo(Generic[K]):
    """Ready keys in three bands. Within a band, groups take turns, and each group is first in, first out.

    The highest band goes first. Waiting lower bands together get every eighth turn, in rotation. They get
    every second turn once the next key of one of them has waited for `OVERDUE_SECONDS`. No key starves,
    and at most one key of a lower band goes between two HIGH keys. Within a band, a group's first key
    waits for at most one key of each other group. A key is held at most once.
    """

    def __init__(self, group_of: GroupOf[K] = one_group) -> None:
        self._group_of = group_of
        self._bands: tuple[_Band[K], ...] = tuple(_Band() for _ in Priority)
        self._turns = self._passed_over = 0

    def __len__(self) -> int:
        low, normal, high = self._bands
        return low.size + normal.size + high.size

    def push(self, key: K, priority: Priority, ready_at: float) -> None:
        """Add a key that became ready at this loop time to the end of its group."""
        band, group = self._bands[priority], self._group_of(key)
        keys = band.get(group)
        if keys is None:
            keys = band[group] = OrderedDict()
        keys[key] = ready_at
        band.size += 1

    def touch(self, key: K, old: Priority, new: Priority) -> None:
        """Move a ready key to the end of its group in a higher band. Its waiting time still counts."""
        self.push(key, new, self._bands[old].take(self._group_of(key), key))

    def pop(self, now: float) -> K:
        """Remove and return the next key. Only for a queue that is not empty."""
        top, *lower = filter(None, reversed(self._bands))
        self._turns += 1
        if not lower or self._passed_over < self._allowed(lower, now):
            self._passed_over = self._passed_over + 1 if lower else 0
            return top.pop_next()
        self._passed_over = 0
        band = min(lower, key=lambda each: each.last_turn)
        band.last_turn = self._turns
        return band.pop_next()

    def _allowed(self, lower: list[_Band[K]], now: float) -> int:
        """How many keys of the highest band may go before one of a lower band."""
        longest = now - min(each.next_ready_at() for each in lower)
        return 1 if longest >= OVERDUE_SECONDS else FAIR_TURN_AFTER


class WorkQueue(Generic[K]):
    """Keys that need processing. Belongs to one event loop; needs no task. A cancelled `get` loses no key.

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

    def __init__(self, name: str, group_of: GroupOf[K] = one_group, is_open: bool = True) -> None:
        self.name = name
        self.is_open = is_open
        self.dirty: dict[K, Priority] = {}
        self.processing: dict[K, float] = {}
        self.adds = self.retries = 0
        self.queue_duration = DurationHistogram(DURATION_BUCKETS)
        self.work_duration = DurationHistogram(DURATION_BUCKETS)
        self._failures: dict[K, int] = {}
        self._retries = TokenBucket(
            burst=OVERALL_BURST, interval_seconds=1.0 / OVERALL_RETRIES_PER_SECOND
        )
        self._ready: PriorityFifo[K] = PriorityFifo(group_of)
        self._added_at: dict[K, float] = {}
        self.delayed: dict[K, tuple[asyncio.TimerHandle, Priority]] = {}
        self._tokens: asyncio.Queue[None] = asyncio.Queue()
        """Has one token for each ready key, so a getter waits until there is a key."""

    def __len__(self) -> int:
        """Number of ready keys, without delayed keys and keys being processed."""
        return len(self._ready)

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Mark `key` dirty. A key that is already dirty takes `priority` if that is higher."""
        if not self.is_open:
            return
        current = self.dirty.get(key)
        if current is None:
            now = asyncio.get_running_loop().time()
            self.dirty[key] = priority
            self.adds += 1
            self._added_at[key] = now
            if key not in self.processing:
                self._ready.push(key, priority, now)
                self._tokens.put_nowait(None)
        elif priority > current:
            self.dirty[key] = priority
            if key not in self.processing:
                self._ready.touch(key, current, priority)

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.NORMAL) -> None:
        """Add `key` after `seconds`, with the highest priority requested during the delay.

        If a key has several delays, the one that ends first is kept. `add` does not cancel a delay: the
        key is added again when the delay ends.
        """
        if seconds <= 0:
            self.add(key, priority)
            return
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
        self.delayed[key] = (loop.call_at(ready_at, self._add_delayed, key), priority)

    def add_rate_limited(
        self, key: K, priority: Priority = Priority.NORMAL, *, at_least_seconds: float = 0.0
    ) -> None:
        """Add `key` after its backoff, the wait for the token bucket of all keys, or `at_least_seconds`: the longest.

        The backoff doubles with each call until `forget`. A key with a pending delay takes no token, so that keys which fail
        again and again do not delay the first retry of others; of its two delays, the one that ends first is kept.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(MAX_DELAY_SECONDS, BASE_DELAY_SECONDS * 2.0 ** min(failures, 64))
        wait = 0.0 if key in self.delayed else self._retries.take(loop_time())
        self.add_after(key, max(backoff, wait, at_least_seconds), priority)

    def forget(self, key: K) -> None:
        """Reset the backoff of `key`. A pending delay is kept."""
        self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was added rate limited since the last `forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> tuple[K, Priority]:
        """Wait for the next key and return it with its priority. The caller must call `done` with it."""
        await self._tokens.get()
        now = asyncio.get_running_loop().time()
        key = self._ready.pop(now)
        self.processing[key] = now
        self.queue_duration.observe(now - self._added_at.pop(key))
        return key, self.dirty.pop(key)

    def done(self, key: K) -> None:
        """Mark `key` as processed. It becomes ready again if it was added meanwhile.

        Raises:
            KeyError: the key is not being processed.
        """
        started_at = self.processing.pop(key)
        now = asyncio.get_running_loop().time()
        self.work_duration.observe(now - started_at)
        priority = self.dirty.get(key)
        if priority is not None:
            self._ready.push(key, priority, now)
            self._tokens.put_nowait(None)

    def _add_delayed(self, key: K) -> None:
        _, priority = self.delayed.pop(key)
        self.add(key, priority)
