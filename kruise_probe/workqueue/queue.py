"""The de-duplicating queue: a key waits once, and is never worked on twice at once.

Invariants (client-go's): every ready key is dirty and not processing; a key added while it is
processing is dirty only, and becomes ready when it is done. No method awaits inside a state change.

Source: client-go util/workqueue/queue.go.
Differs: priorities (see `priority`); draining waits for ready keys too, not only for those being
processed; `done` of a key that is not processing raises instead of queueing it a second time.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from kruise_probe.workqueue.metrics import QueueMetrics
from kruise_probe.workqueue.priority import GroupOf, Priority, PriorityFifo, one_group

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue was shut down and holds no ready key any more."""


class Queue(Generic[K]):
    """Keys that need work. Belongs to one event loop; needs no task of its own.

    A cancelled `get` loses no key. Keys of equal priority are handed out in turns, one key of each group that
    `group_of` names.
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
        """Keys that are ready to be handed out; delayed ones and those being processed are not."""
        return len(self._ready)

    @property
    def shutting_down(self) -> bool:
        return self._shutting_down

    def add(self, key: K, priority: Priority = Priority.NORMAL) -> None:
        """Marks `key` as needing work. One that waits already is moved up if `priority` is higher."""
        if self._shutting_down:
            return
        waiting = self._dirty.get(key)
        if waiting is None:
            now = asyncio.get_running_loop().time()
            self._dirty[key] = priority
            self.metrics.added(key, now)
            if key not in self._processing:
                self._push(key, priority, now)
        elif priority > waiting:
            self._dirty[key] = priority
            if key not in self._processing:
                self._ready.touch(key, waiting, priority)

    async def get(self) -> K:
        """Waits for a key and hands it out; the caller must call `done` with it.

        Raises:
            ShutDown: shut down, and nothing is left.
        """
        key, _ = await self.get_with_priority()
        return key

    async def get_with_priority(self) -> tuple[K, Priority]:
        """As `get`, with the priority that the key had.

        Raises:
            ShutDown: shut down, and nothing is left.
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
        """Ends the processing of `key`; what was added meanwhile becomes ready.

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
        """Refuses new keys from now on; ready ones are still handed out, then `get` raises."""
        self._shutting_down = True
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()
        self._drained.set()

    async def shut_down_with_drain(self) -> None:
        """Shuts down, and waits until every ready key was handed out and done.

        Waits for ever if nobody works the queue off; `shut_down` ends the wait.
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
            # Woken and cancelled in the same turn of the loop: the key is someone else's now.
            if getter.done() and not getter.cancelled() and len(self._ready):
                self._wake_one()
            elif getter in self._getters:
                self._getters.remove(getter)
            raise
