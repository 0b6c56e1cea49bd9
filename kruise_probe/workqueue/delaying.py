"""Keys that become ready later.

Source: client-go util/workqueue/delaying_queue.go.
Differs: one timer handle of the event loop per key replaces the waiting loop and its heap.
"""

import asyncio
from collections.abc import Hashable
from typing import TypeVar

from kruise_probe.workqueue.priority import GroupOf, Priority, one_group
from kruise_probe.workqueue.queue import Queue

K = TypeVar("K", bound=Hashable)


class DelayingQueue(Queue[K]):
    """A queue with `add_after`. Of several delays for one key the one that ends first counts.

    A delay is not ended by an `add` of the same key in between: whoever asked for the later look gets it.
    """

    def __init__(self, *, name: str, group_of: GroupOf[K] = one_group) -> None:
        super().__init__(name=name, group_of=group_of)
        self._delayed: dict[K, tuple[asyncio.TimerHandle, Priority]] = {}

    @property
    def delayed(self) -> int:
        """Keys whose delay has not ended."""
        return len(self._delayed)

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.NORMAL) -> None:
        """Adds `key` once `seconds` have passed, at the highest priority asked for meanwhile."""
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
            timer, waiting = pending
            priority = max(priority, waiting)
            if timer.when() <= ready_at:
                self._delayed[key] = (timer, priority)
                return
            timer.cancel()
        self._delayed[key] = (loop.call_at(ready_at, self._delay_ended, key), priority)

    def shut_down(self) -> None:
        """Also drops the keys whose delay has not ended, as client-go does."""
        super().shut_down()
        for timer, _ in self._delayed.values():
            timer.cancel()
        self._delayed.clear()

    def _delay_ended(self, key: K) -> None:
        _, priority = self._delayed.pop(key)
        self.add(key, priority)
