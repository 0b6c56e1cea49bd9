"""Replica: applies lists and watch events to the store, and calls the handlers.

A list arrives in pieces: pages, or the initial events of a stream. Each piece is applied to the store at
once, so a list of any size needs no second copy. Objects that are missing from the list are deleted when
it is complete. An unfinished list deletes nothing.

An object that does not decode keeps its last good version, and is absent if there is none. It still
exists on the server, so nothing that depends on it may be cleaned up.

Source: client-go tools/cache/delta_fifo.go (Replace), reflector.go (syncWith).
Differs: no second copy and no queue. An object that was replaced under its name is a delete and an add.
An object that does not decode keeps its last good version; client-go drops the whole list or skips it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import EventType, KubeObject, Undecodable, WatchEvent
from kruise_probe.informers.handlers import Handlers
from kruise_probe.informers.metrics import undecodable_total
from kruise_probe.informers.resource_versions import is_older
from kruise_probe.informers.store import Store

T = TypeVar("T", bound=KubeObject)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Replica(Generic[T]):
    """One informer's copy of the server's state.

    Attributes:
        synced: the store and the handlers have received a complete list at least once.
    """

    def __init__(
        self, store: Store[T], handlers: Handlers[T], *, name: str, on_synced: Callable[[], None]
    ) -> None:
        self.synced = False
        self._store = store
        self._handlers = handlers
        self._name = name
        self._on_synced = on_synced
        self._unconfirmed: set[NamespacedName] = set()
        self._undecodable: dict[NamespacedName, str] = {}
        self._undecodable_total = undecodable_total.labels(name)

    def begin_list(self) -> None:
        """Start a list, and discard an unfinished one before it."""
        self._unconfirmed = set(self._store.keys())

    def listed(self, obj: T) -> None:
        """Apply an object of a list or of initial events, even if it is older than the stored one."""
        self._unconfirmed.discard(obj.key)
        self._put(obj)

    def listed_undecodable(self, item: Undecodable) -> None:
        self._report_undecodable(item)
        if item.key.name == "?":
            self._unconfirmed.clear()  # It could be any of these objects, so delete none.
        else:
            self._unconfirmed.discard(item.key)

    def finish_list(self) -> None:
        """Complete the list: delete the objects that it did not contain."""
        for key in self._unconfirmed:
            self._remove(key)
        self._unconfirmed = set()
        if not self.synced:
            self.synced = True
            self._on_synced()

    def apply(self, event: WatchEvent[T]) -> None:
        """Apply one watch event. An event older than the stored object is ignored."""
        obj = event.object
        if obj is None:
            if event.undecodable is not None:
                self._apply_undecodable(event.type, event.undecodable)
            return
        key = obj.key
        stored = self._store.get(key)
        if stored is not None and is_older(obj.resource_version, stored.resource_version):
            return
        self._unconfirmed.discard(key)
        if event.type is EventType.DELETED:
            self._remove(key)
        else:
            self._put(obj)

    def resync(self, obj: T) -> None:
        """Call the handlers with `obj` again if it is still the stored object."""
        if self._store.get(obj.key) is obj:
            self._handlers.updated(obj, obj)

    def _put(self, obj: T) -> None:
        key = obj.key
        if self._undecodable:
            self._undecodable.pop(key, None)
        old = self._store.get(key)
        if old is not None and old.uid != obj.uid:
            self._remove(key)
            old = None
        if old is None:
            self._store.put(obj)
            self._handlers.added(obj, not self.synced)
        elif old.resource_version != obj.resource_version:
            self._store.put(obj)
            self._handlers.updated(old, obj)

    def _remove(self, key: NamespacedName) -> None:
        self._undecodable.pop(key, None)
        last_known = self._store.remove(key)
        if last_known is not None:
            self._handlers.deleted(last_known)

    def _apply_undecodable(self, event_type: EventType, item: Undecodable) -> None:
        if event_type is EventType.DELETED:
            self._remove(item.key)
        else:
            self._unconfirmed.discard(item.key)
            self._report_undecodable(item)

    def _report_undecodable(self, item: Undecodable) -> None:
        """Log and count an object that does not decode, once per version."""
        if self._undecodable.get(item.key) == item.resource_version:
            return
        self._undecodable[item.key] = item.resource_version
        self._undecodable_total.inc()
        _log.error(
            "object does not decode, its last good version stays",
            informer=self._name,
            object=str(item.key),
            resource_version=item.resource_version,
            error=item.error,
            had_good_version=item.key in self._store,
        )
