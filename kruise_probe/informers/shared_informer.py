"""SharedInformer: a local cache of one kind's objects, with event handlers.

The contract, as in client-go: the store has the server's current state or an earlier one. It never goes
back in time for any object, and is current again some time after a failure ends. Intermediate states of
an object may be skipped. Handlers are called in order per object, after the store has the change. A
deletion passes the last known state, also if the watch missed it and a later list revealed it.

Source: client-go tools/cache/shared_informer.go.
Differs: an object that was replaced under its name is a delete and an add. Resync is off by default.
"""

import asyncio
from typing import Final, TypeVar

from kruise_probe.api.meta import KubeObject
from kruise_probe.informers.reflector import ListerWatcher, Reflector
from kruise_probe.informers.replica import EventHandler, Indexer, Replica

T = TypeVar("T", bound=KubeObject)

RESYNC_SLICE: Final = 256
"""Objects of a resync that are processed before it yields to the event loop."""


class SharedInformer(Reflector[T]):
    """Lists and watches one kind with `lister_watcher` while `run` runs.

    Args:
        name: plural of the kind; used in logs, metrics and health checks.
        resync_seconds: interval of resyncs; 0 is never.

    Attributes:
        lister: the read side of the store.
    """

    def __init__(
        self,
        lister_watcher: ListerWatcher[T],
        *,
        name: str,
        resync_seconds: float = 0.0,
    ) -> None:
        replica = Replica[T](name=name)
        super().__init__(lister_watcher, replica, name=name)
        self.name = name
        self.lister: Final[Indexer[T]] = replica
        self._resync_seconds = resync_seconds

    @property
    def has_synced(self) -> bool:
        """The store and every handler have received the complete initial list."""
        return self._replica.synced.is_set()

    async def wait_for_sync(self) -> None:
        """Wait until `has_synced`; waits forever if the server does not respond."""
        await self._replica.synced.wait()

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Add `handler`. It first gets every stored object as an initial add, then all changes."""
        self._replica.add_event_handler(handler)

    def record_write(self, obj: T) -> None:
        """Store the response to our own write before its event arrives, unless the store is newer."""
        self._replica.record_write(obj, self._resource_version)

    async def run(self) -> None:
        """List and watch until cancelled. Cancelling does not clear the store."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(), name=f"reflector {self.name}")
            if self._resync_seconds > 0:
                group.create_task(self._resync_forever(), name=f"resync {self.name}")

    async def resync(self) -> None:
        """Call the handlers with every stored object, as an update without a change."""
        for number, obj in enumerate(self.lister.list(), start=1):
            self._replica.resync(obj.key)
            if number % RESYNC_SLICE == 0:
                await asyncio.sleep(0)

    async def _resync_forever(self) -> None:
        while True:
            await asyncio.sleep(self._resync_seconds)
            await self.resync()
