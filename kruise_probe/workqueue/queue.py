"""The deduplicating queue: a key is queued once and never processed twice at once.

Invariants, as in client-go: every ready key is dirty and not processing. A key added while it is
processing is only dirty, and becomes ready when it is done. No method awaits inside a state change.

Source: client-go util/workqueue/queue.go.
Differs: keys have priorities (see `priority`). Draining also waits for ready keys, not only for those
being processed. `done` raises for a key that is not processing, instead of queueing it a second time.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from kruise_probe.workqueue.metrics import QueueMetrics
from kruise_probe.workqueue.priority import GroupOf, Priority, PriorityFifo, one_group

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue was shut down and has no ready key."""


class Queue(Generic[K]):
    """Keys that need processing. Belongs to one event loop; needs no task.

    A cancelled `get` loses no key. For keys of equal priority, the groups of `group_of` take turns, one key each.
    """

    def __init__(self, *, name: str, group_of: GroupOf[K] = one_group) -> None:
        self.name = name
        self.metrics: QueueMetrics[K] = QueueMetrics(name)
        self._ready: PriorityFifo[K] = PriorityFifo(group_of)
        self._dirty = self.metrics.dirty
        self._processing = self.metrics.processing
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shutting_down = False
        self._drained = asyncio.Event()

    def __len__(self) -> int:
        """Number of ready keys, without delayed keys and keys being processed."""
        return len(self._ready)

    @property
    def shutting_down(self) -> bool:
        return self._shutting_down

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Mark `key` dirty. A key that is already dirty takes `priority` if that is higher."""
        if self._shutting_down:
            return
        current = self._dirty.get(key)
        if current is None:
            now = asyncio.get_running_loop().time()
            self._dirty[key] = priority
            self.metrics.added(key, now)
            if key not in self._processing:
                self._push(key, priority, now)
        elif priority > current:
            self._dirty[key] = priority
            if key not in self._processing:
                self._ready.touch(key, current, priority)

    async def get(self) -> K:
        """Wait for the next key and return it. The caller must call `done` with it.

        Raises:
            ShutDown: the queue is shut down and has no ready key.
        """
        key, _ = await self.get_with_priority()
        return key

    async def get_with_priority(self) -> tuple[K, Priority]:
        """Do the same as `get`, and also return the key's priority.

        Raises:
            ShutDown: the queue is shut down and has no ready key.
        """
        while not len(self._ready):
            if self._shutting_down:
                raise ShutDown(self.name)
            await self._wait_for_key()
        now = asyncio.get_running_loop().time()
        key = self._ready.pop(now)
        self._processing[key] = now
        self.metrics.got(key, now)
        return key, self._dirty.pop(key)

    def done(self, key: K) -> None:
        """Mark `key` as processed. It becomes ready again if it was added meanwhile.

        Raises:
            KeyError: the key is not being processed.
        """
        started_at = self._processing.pop(key)
        now = asyncio.get_running_loop().time()
        self.metrics.finished(now - started_at)
        priority = self._dirty.get(key)
        if priority is not None:
            self._push(key, priority, now)
        elif self._shutting_down:
            self._check_drained()

    def shut_down(self) -> None:
        """Ignore new keys. `get` still returns the ready keys, then raises `ShutDown`."""
        self._shutting_down = True
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()
        self._drained.set()

    async def shut_down_with_drain(self) -> None:
        """Shut down, and wait until every ready key was processed.

        Waits forever without a worker; `shut_down` ends the wait.
        """
        self.shut_down()
        self._drained.clear()
        self._check_drained()
        await self._drained.wait()

    def _check_drained(self) -> None:
        if not self._dirty and not self._processing:
            self._drained.set()

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
            # Woken and cancelled in the same loop iteration: wake another getter for the key.
            if getter.done() and not getter.cancelled() and len(self._ready):
                self._wake_one()
            elif getter in self._getters:
                self._getters.remove(getter)
            raise
