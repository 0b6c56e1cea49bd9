"""One kind's objects in memory, with those who want to know of changes.

The contract, client-go's: the store is the source's state or an earlier one, never goes back for any
object, and is equal again some time after any trouble ends. Of an object's states some may be skipped.
Handlers are told of each change in order per object, after the store has it; a deletion hands over the
last state that was known, also when it was missed and found out by a list.

Source: client-go tools/cache/shared_informer.go.
Differs: an object replaced under its name is told as a delete and an add; no resync unless asked for.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from kruise_probe.api.resources import KubeObject
from kruise_probe.informers.handlers import EventHandler, Handlers
from kruise_probe.informers.reflector import ListerWatcher, Reflector
from kruise_probe.informers.replica import Replica
from kruise_probe.informers.store import Indexer, IndexFunc, Store

T = TypeVar("T", bound=KubeObject)

RESYNC_SLICE: Final = 256
"""Objects of a resync that are told in one go; then others on the loop have their turn."""


class SharedInformer(Generic[T]):
    """Follows `lister_watcher` while `run` runs.

    Args:
        name: of the kind, in the plural; labels logs and metrics, and names it in health checks.
        indexers: index name to the function that files an object under values.
        resync_seconds: tells handlers of every object again each time this has passed; 0 is never.
    """

    def __init__(
        self,
        lister_watcher: ListerWatcher[T],
        *,
        name: str,
        indexers: Mapping[str, IndexFunc[T]] | None = None,
        resync_seconds: float = 0.0,
    ) -> None:
        self.name = name
        self._store: Store[T] = Store(indexers or {})
        self._handlers: Handlers[T] = Handlers(name)
        self._synced = asyncio.Event()
        self._replica = Replica(self._store, self._handlers, name=name, on_synced=self._synced.set)
        self._reflector = Reflector(lister_watcher, self._replica, name=name)
        self._resync_seconds = resync_seconds

    @property
    def indexer(self) -> Indexer[T]:
        return self._store

    @property
    def lister(self) -> Indexer[T]:
        return self._store

    @property
    def has_synced(self) -> bool:
        """The initial list is in the store whole, and every handler has been told of it."""
        return self._replica.synced

    async def wait_for_sync(self) -> None:
        """Returns once `has_synced`; waits for ever if the server does not answer."""
        await self._synced.wait()

    @property
    def last_sync_resource_version(self) -> str:
        """The version of the source that the store has reached; empty while it has none."""
        return self._reflector.last_sync_resource_version

    @property
    def watches(self) -> int:
        """How many watches were opened. The server ends all of a kind whose definition is replaced."""
        return self._reflector.watches

    @property
    def last_error(self) -> str:
        """Why there is no watch right now; empty while the server talks to us."""
        return self._reflector.last_error

    def seconds_since_activity(self) -> float:
        """Seconds since the server last sent anything, bookmarks included; 0.0 before `run`."""
        return self._reflector.seconds_since_activity()

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """From now on tells `handler` of changes; first, of all that is stored already, as initial."""
        for obj in self._store.list():
            self._handlers.replay(handler, obj)
        self._handlers.add(handler)

    async def run(self) -> None:
        """Follows the source until cancelled. The store stays as it is then."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run(), name=f"reflector {self.name}")
            if self._resync_seconds > 0:
                group.create_task(self._resync(), name=f"resync {self.name}")

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_seconds)
            for number, obj in enumerate(self._store.list(), start=1):
                self._replica.resync(obj)
                if number % RESYNC_SLICE == 0:
                    await asyncio.sleep(0)
