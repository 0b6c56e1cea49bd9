"""A queue that adds keys after a delay.

Source: client-go util/workqueue/delaying_queue.go.
Differs: each delayed key has its own event loop timer, instead of one waiting loop with a heap.
"""

import asyncio
from collections.abc import Hashable
from typing import TypeVar

from kruise_probe.workqueue.priority import GroupOf, Priority, one_group
from kruise_probe.workqueue.queue import Queue

K = TypeVar("K", bound=Hashable)


class DelayingQueue(Queue[K]):
    """A queue with `add_after`. If a key has several delays, the one that ends first is kept.

    `add` does not cancel a pending delay of the same key: the key is added again when the delay ends.
    """

    def __init__(self, *, name: str, group_of: GroupOf[K] = one_group) -> None:
        super().__init__(name=name, group_of=group_of)
        self._delayed: dict[K, tuple[asyncio.TimerHandle, Priority]] = {}

    @property
    def delayed(self) -> int:
        """Number of keys whose delay has not ended."""
        return len(self._delayed)

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.NORMAL) -> None:
        """Add `key` after `seconds`, with the highest priority requested during the delay."""
        if self._shutting_down:
            return
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

    def shut_down(self) -> None:
        """Shut down, and drop the keys whose delay has not ended, as client-go does."""
        super().shut_down()
        for timer, _ in self._delayed.values():
            timer.cancel()
        self._delayed.clear()

    def _add_delayed(self, key: K) -> None:
        _, priority = self._delayed.pop(key)
        self.add(key, priority)
