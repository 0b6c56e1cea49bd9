"""Turns what a list and a watch say into a store that equals the source, and into notifications.

A list may arrive in pieces (pages, or the initial events of a stream). Each piece goes into the store
at once, so a list of any size needs no second copy; what no piece confirmed is deleted when the list is
complete. A list that breaks off has deleted nothing.

An object that cannot be decoded keeps its last good version, and is absent if there never was one: its
bytes are there, so nothing that it stands for may be cleaned up.

Source: client-go tools/cache/delta_fifo.go (Replace), reflector.go (syncWith).
Differs: no second copy; no queue; an object replaced under its name is a delete and an add; undecodable
objects, which client-go drops with the whole list or skips.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import KubeObject, Undecodable
from kruise_probe.api.watching import EventType, WatchEvent
from kruise_probe.informers.handlers import Handlers
from kruise_probe.informers.metrics import undecodable_total
from kruise_probe.informers.resource_versions import is_older
from kruise_probe.informers.store import Store

T = TypeVar("T", bound=KubeObject)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Replica(Generic[T]):
    """One informer's copy of the source.

    Attributes:
        synced: a whole list has been delivered to store and handlers at least once.
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
        """A list starts; an unfinished one before it counts no more."""
        self._unconfirmed = set(self._store.keys())

    def listed(self, obj: T) -> None:
        """The list, or the initial events of a stream, hold `obj`. It is the truth, also if older."""
        self._unconfirmed.discard(obj.key)
        self._put(obj)

    def listed_undecodable(self, item: Undecodable) -> None:
        self._note(item)
        if item.key.name == "?":
            self._unconfirmed.clear()  # It might be any of them: delete none.
        else:
            self._unconfirmed.discard(item.key)

    def finish_list(self) -> None:
        """The list is complete: deletes what it did not hold."""
        for key in self._unconfirmed:
            self._remove(key)
        self._unconfirmed = set()
        if not self.synced:
            self.synced = True
            self._on_synced()

    def apply(self, event: WatchEvent[T]) -> None:
        """Takes over one event of a watch. An event older than what is stored changes nothing."""
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
        """Tells handlers of `obj` again, if it is still what is stored."""
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
            self._note(item)

    def _note(self, item: Undecodable) -> None:
        """Logs an object that does not decode, once per version of it."""
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
