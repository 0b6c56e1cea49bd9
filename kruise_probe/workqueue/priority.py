"""Priorities of keys, and the order in which ready keys leave the queue.

Source: controller-runtime pkg/controller/priorityqueue; client-go util/workqueue Queue (Touch, Push, Pop).
Differs: three bands instead of any integer. Lower bands have a guaranteed share; in controller-runtime
they starve while higher priorities keep coming. Within a band, groups of keys take turns, like the flows
of API Priority and Fairness; in controller-runtime, one owner's thousands of keys delay all others.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FAIR_TURN_AFTER: Final = 7
"""After this many keys of the highest band, one key of a lower band gets its turn: 1 in 8."""

OVERDUE_SECONDS: Final = 10.0
"""After this wait, keys of lower bands get every second turn instead of every eighth."""


class Priority(IntEnum):
    """LOW: initial lists and resyncs. NORMAL: edits. HIGH: state transitions of a probe."""

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
        top, *lower = [band for band in reversed(self._bands) if band]
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
