"""How urgent a key is, and the order in which keys of different urgency are handed out.

Source: controller-runtime pkg/controller/priorityqueue; client-go util/workqueue Queue (Touch, Push, Pop).
Differs: three bands instead of any integer, and a guaranteed share for the lower ones. There, a low
priority key waits for as long as higher ones keep coming. Within a band, groups of keys take turns, as the
flows of kube-apiserver's fair queuing do; there, one owner's thousands of keys delay everybody else's.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FAIR_TURN_AFTER: Final = 7
"""Hand-outs from a higher band after which one waiting key of a lower band gets its turn: 1 in 8."""

OVERDUE_SECONDS: Final = 10.0
"""From this wait on, keys of lower bands get every second turn instead of every eighth."""


class Priority(IntEnum):
    """LOW for initial lists and resyncs, NORMAL for edits, HIGH for transitions of a probe's state."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


GroupOf = Callable[[K], Hashable]
"""Which keys share one turn of a band, such as those of one tenant."""


def one_group(_key: Hashable) -> None:
    """All keys share their turns: first in, first out."""


class _Band(OrderedDict[Hashable, OrderedDict[K, float]]):
    """Keys of one priority by group, each with the loop time at which it became ready.

    Groups take turns; the first group is the next. Within a group the first key in is the first out.
    """

    __slots__ = ("last_turn", "size")

    def __init__(self) -> None:
        super().__init__()
        self.last_turn = 0
        self.size = 0

    def put(self, group: Hashable, key: K, ready_at: float) -> None:
        keys = self.get(group)
        if keys is None:
            keys = self[group] = OrderedDict()
        keys[key] = ready_at
        self.size += 1

    def take(self, group: Hashable, key: K) -> float:
        """Removes `key`; returns when it became ready."""
        keys = self[group]
        ready_at = keys.pop(key)
        if not keys:
            del self[group]
        self.size -= 1
        return ready_at

    def next_ready_at(self) -> float:
        """When the key whose turn it is became ready."""
        keys = next(iter(self.values()))
        return next(iter(keys.values()))

    def pop_next(self) -> K:
        group = next(iter(self))
        keys = self[group]
        key, _ = keys.popitem(last=False)
        if not keys:
            del self[group]
        elif len(self) > 1:
            self.move_to_end(group)
        self.size -= 1
        return key


class PriorityFifo(Generic[K]):
    """Ready keys in three bands. Within a band groups take turns, and each group is first in first out.

    The highest band goes first. While a lower one waits it gets at least every eighth turn, and every
    second one once the key whose turn it is has waited for `OVERDUE_SECONDS`; lower bands take such turns in
    rotation. So a HIGH key has at most one key of another band before it and its equals, and no key starves.
    Within a band a group's first key waits for at most one key of each other group.
    Holds a key at most once.
    """

    def __init__(self, group_of: GroupOf[K] = one_group) -> None:
        self._group_of = group_of
        self._bands: tuple[_Band[K], ...] = tuple(_Band() for _ in Priority)
        self._turns = 0
        self._passed_over = 0

    def __len__(self) -> int:
        low, normal, high = self._bands
        return low.size + normal.size + high.size

    def push(self, key: K, priority: Priority, now: float) -> None:
        self._bands[priority].put(self._group_of(key), key, now)

    def touch(self, key: K, old: Priority, new: Priority) -> None:
        """Moves a waiting key to the end of its group in a higher band; how long it has waited goes with it."""
        group = self._group_of(key)
        self._bands[new].put(group, key, self._bands[old].take(group, key))

    def pop(self, now: float) -> K:
        """Removes and returns the key whose turn it is.

        Raises:
            IndexError: nothing is ready.
        """
        low, normal, high = self._bands
        if not (low or normal):
            top = high
        elif not (low or high):
            top = normal
        elif not (normal or high):
            top = low
        else:
            return self._pop_contended(now)
        if not top:
            raise IndexError("pop from an empty queue")
        self._passed_over = 0
        return top.pop_next()

    def _pop_contended(self, now: float) -> K:
        top, *lower = [band for band in reversed(self._bands) if band]
        self._turns += 1
        band = min(lower, key=lambda each: each.last_turn)
        longest = now - min(each.next_ready_at() for each in lower)
        patience = 1 if longest >= OVERDUE_SECONDS else FAIR_TURN_AFTER
        if self._passed_over < patience:
            self._passed_over += 1
            return top.pop_next()
        self._passed_over = 0
        band.last_turn = self._turns
        return band.pop_next()
