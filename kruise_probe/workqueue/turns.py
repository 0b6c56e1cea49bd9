"""Turns of groups: keys that wait, by group, and the ready keys of a queue in three priorities.

Differs: in controller-runtime's priority queue, one owner's thousands of keys delay all others, and lower priorities
starve while higher ones keep coming. Here groups of keys take turns, like the flows of API Priority and Fairness, and
lower bands have a guaranteed share. Priorities are three bands instead of any integer.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from enum import IntEnum
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FAIR_TURN_AFTER: Final = 7
"""After this many keys of the highest band, one key of a lower band gets its turn: 1 in 8."""


class Priority(IntEnum):
    """LOW: resyncs. NORMAL: edits. HIGH: state transitions of a probe."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


GroupOf = Callable[[K], Hashable]
"""Returns the group of a key, for example its tenant. The groups of a band take turns."""

Allows = Callable[[Hashable, int], bool]
"""Whether a group may have a turn now; the number is that of the groups that wait with it, itself included."""


def one_group(_key: Hashable) -> str:
    """Put all keys into one group: first in, first out."""
    return ""


def every_group(_group: Hashable, _groups: int) -> bool:
    return True


class Turns(OrderedDict[Hashable, OrderedDict[K, V]], Generic[K, V]):
    """Waiting keys by group, each with a value. Groups take turns, in dict order; each is first in, first out."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def push(self, group: Hashable, key: K, value: V) -> None:
        """Add a key to the end of its group."""
        keys = self.get(group)
        if keys is None:
            keys = self[group] = OrderedDict()
        keys[key] = value
        self.size += 1

    def take(self, group: Hashable, key: K) -> V:
        """Remove `key` and return its value."""
        keys = self[group]
        value = keys.pop(key)
        if not keys:
            del self[group]
        self.size -= 1
        return value

    def next_group(self, allows: Allows) -> Hashable:
        """The group whose turn it is; None if `allows` refuses all."""
        groups = len(self)
        for group in self:
            if allows(group, groups):
                return group
        return None

    def pop_first(self, group: Hashable) -> tuple[K, V]:
        """Remove and return the first key of `group` with its value; the group goes to the end."""
        keys = self[group]
        found = keys.popitem(last=False)
        if not keys:
            del self[group]
        else:
            self.move_to_end(group)
        self.size -= 1
        return found


_Turn = tuple[Turns[K, None], Hashable]
"""A band with the group whose turn it is."""


class PriorityFifo(Generic[K]):
    """Ready keys in three bands. Within a band, groups take turns, and each group is first in, first out.

    The highest band goes first. Waiting lower bands together get every eighth turn, in rotation. So no key starves,
    and at most one key of a lower band goes between two HIGH keys. Within a band, a group's first key
    waits for at most one key of each other group. A key is held at most once.
    """

    def __init__(self, group_of: GroupOf[K] = one_group) -> None:
        self._group_of = group_of
        self._bands: tuple[Turns[K, None], ...] = tuple([Turns() for _ in Priority])
        self._passed_over = 0
        """Keys of higher bands since a key of a lower one had its turn, while some waited."""
        self._lower_turns = 0

    def __len__(self) -> int:
        low, normal, high = self._bands
        return low.size + normal.size + high.size

    def push(self, key: K, priority: Priority) -> None:
        """Add a key that became ready to the end of its group."""
        self._bands[priority].push(self._group_of(key), key, None)

    def touch(self, key: K, old: Priority, new: Priority) -> None:
        """Move a ready key to the end of its group in a higher band."""
        self.discard(key, old)
        self.push(key, new)

    def discard(self, key: K, priority: Priority) -> None:
        """Remove a ready key."""
        self._bands[priority].take(self._group_of(key), key)

    def has_turn(self, allows: Allows) -> bool:
        """Whether `pop` would return a key."""
        return next(self._possible_turns(allows), None) is not None

    def pop(self, allows: Allows = every_group) -> K | None:
        """Remove and return the next key of the groups that `allows` accepts; None if there is none."""
        turns = list(self._possible_turns(allows))
        if not turns:
            return None
        band, group = turns[0]
        lower = turns[1:]
        if not lower:
            self._passed_over = 0
        elif self._passed_over < FAIR_TURN_AFTER:
            self._passed_over += 1
        else:
            self._passed_over = 0
            self._lower_turns += 1
            band, group = lower[self._lower_turns % len(lower)]
        key, _ = band.pop_first(group)
        return key

    def _possible_turns(self, allows: Allows) -> Iterator[_Turn[K]]:
        """One for each band that has a key of an accepted group, the highest band first."""
        for band in reversed(self._bands):
            if not band:
                continue
            group = band.next_group(allows)
            if group is not None:
                yield band, group
