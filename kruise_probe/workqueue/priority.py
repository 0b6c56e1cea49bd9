"""How urgent a key is, and the order in which keys of different urgency are handed out.

Source: controller-runtime pkg/controller/priorityqueue; client-go util/workqueue Queue (Touch, Push, Pop).
Differs: three bands instead of any integer, and a guaranteed share for the lower ones. There, a low
priority key waits for as long as higher ones keep coming.
"""

from collections import OrderedDict
from collections.abc import Hashable
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


class _Band(OrderedDict[K, float]):
    """Keys of one priority, first in first out, each with the loop time at which it became ready."""

    last_turn = 0


class PriorityFifo(Generic[K]):
    """Ready keys in three bands, first in first out within each.

    The highest band goes first. While a lower one waits it gets at least every eighth turn, and every
    second one once its oldest key has waited for `OVERDUE_SECONDS`; lower bands take such turns in
    rotation. So a HIGH key has at most one other key before it and its equals, and no key starves.
    Holds a key at most once.
    """

    def __init__(self) -> None:
        self._bands: tuple[_Band[K], ...] = tuple(_Band() for _ in Priority)
        self._turns = 0
        self._passed_over = 0

    def __len__(self) -> int:
        low, normal, high = self._bands
        return len(low) + len(normal) + len(high)

    def push(self, key: K, priority: Priority, now: float) -> None:
        self._bands[priority][key] = now

    def touch(self, key: K, old: Priority, new: Priority) -> None:
        """Moves a waiting key to the end of a higher band; how long it has waited goes with it."""
        self._bands[new][key] = self._bands[old].pop(key)

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
        return top.popitem(last=False)[0]

    def _pop_contended(self, now: float) -> K:
        top, *lower = [band for band in reversed(self._bands) if band]
        self._turns += 1
        band = min(lower, key=lambda each: each.last_turn)
        oldest = min(next(iter(each.values())) for each in lower)
        patience = 1 if now - oldest >= OVERDUE_SECONDS else FAIR_TURN_AFTER
        if self._passed_over < patience:
            self._passed_over += 1
            return top.popitem(last=False)[0]
        self._passed_over = 0
        band.last_turn = self._turns
        return band.popitem(last=False)[0]
