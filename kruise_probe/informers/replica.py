"""Replica: applies lists and watch events to the store, and calls the event handlers.

A list arrives in pieces: pages, or the initial events of a stream. Each piece is applied to the store at
once, so a list of any size needs no second copy. Objects that are missing from the list are deleted when
it is complete. An unfinished list deletes nothing.

An object that does not decode keeps its last good version, and is absent if there is none. It still
exists on the server, so nothing that depends on it may be cleaned up.

Source: client-go tools/cache/delta_fifo.go (Replace), reflector.go (syncWith), controller.go
(ResourceEventHandler), shared_informer.go (sharedProcessor).
Differs: no second copy and no queue: handlers run synchronously on the event loop. An object that was
replaced under its name is a delete and an add. client-go skips an object that does not decode, or drops the
whole list.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar, TypeVarTuple

import structlog
from prometheus_client import Counter

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import EventType, KubeObject, Undecodable, WatchEvent
from kruise_probe.informers.store import Store, is_older

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", contravariant=True)
Ts = TypeVarTuple("Ts")

_undecodable_total: Final = Counter(
    "kruise_probe_informer_undecodable_total",
    "Versions of objects that did not decode",
    ["informer"],
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class EventHandler(Protocol[T_contra]):
    """Called after the store has changed. Must not block; usually it enqueues a key."""

    def on_add(self, obj: T_contra, is_initial: bool) -> None:
        """`is_initial`: the object is from the first list, or from the replay for a handler added later."""

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """`old is new` on a resync."""

    def on_delete(self, last_known: T_contra) -> None:
        """`last_known`: the state of the object that was in the store before the deletion."""


class Replica(Generic[T]):
    """One informer's copy of the server's state, and its handlers.

    Attributes:
        store: the objects. Handlers are called after it has a change.
        synced: set once the store and the handlers have received a complete list.
    """

    def __init__(self, *, name: str) -> None:
        self.store: Store[T] = Store()
        self.synced = asyncio.Event()
        self._handlers: tuple[EventHandler[T], ...] = ()
        self._name = name
        self._unconfirmed: set[NamespacedName] = set()
        self._undecodable: dict[NamespacedName, str] = {}
        self._undecodable_total = _undecodable_total.labels(name)

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Add `handler`. It first gets every stored object as an initial add, then all changes."""
        for obj in self.store.list():
            self._call(handler.on_add, obj, True)
        self._handlers = (*self._handlers, handler)

    def _call(self, method: Callable[[T, *Ts], None], obj: T, *args: *Ts) -> None:
        try:
            method(obj, *args)
        except Exception:  # noqa: BLE001 - one bad handler or object must not stop the informer
            _log.exception("event handler failed", informer=self._name, object=str(obj.key))

    def begin_list(self) -> None:
        """Start a list, and discard an unfinished one before it."""
        self._unconfirmed = set(self.store.keys())

    def listed(self, obj: T) -> None:
        """Apply an object of a list or of initial events, even if it is older than the stored one."""
        key = obj.key
        self._unconfirmed.discard(key)
        self._put(key, self.store.get(key), obj)

    def listed_undecodable(self, item: Undecodable) -> None:
        self._report_undecodable(item)
        if not item.identified:
            self._unconfirmed.clear()  # It could be any of these objects, so delete none.
        else:
            self._unconfirmed.discard(item.key)

    def finish_list(self) -> None:
        """Complete the list: delete the objects that it did not contain."""
        for key in self._unconfirmed:
            self._remove(key)
        self.synced.set()

    def apply(self, event: WatchEvent[T]) -> None:
        """Apply one watch event. An event older than the stored object is ignored."""
        obj, undecodable = event.object, event.undecodable
        if undecodable is not None and event.type is EventType.DELETED:
            self._remove(undecodable.key)
        elif undecodable is not None:
            self._unconfirmed.discard(undecodable.key)
            self._report_undecodable(undecodable)
        if obj is None:
            return
        key = obj.key
        stored = self.store.get(key)
        if stored is not None and is_older(event.resource_version, stored.resource_version):
            return
        self._unconfirmed.discard(key)
        if event.type is EventType.DELETED:
            self._remove(key)
        else:
            self._put(key, stored, obj)

    def resync(self, obj: T) -> None:
        """Call the handlers with `obj` again if it is still the stored object."""
        if self.store.get(obj.key) is obj:
            self._updated(obj, obj)

    def _updated(self, old: T, new: T) -> None:
        for handler in self._handlers:
            self._call(handler.on_update, old, new)

    def _put(self, key: NamespacedName, old: T | None, obj: T) -> None:
        """Store `obj` in place of `old`, which is None if the store has none."""
        self._undecodable.pop(key, None)
        if old is not None and old.uid != obj.uid:
            self._remove(key)
            old = None
        if old is None:
            self.store.put(obj)
            for handler in self._handlers:
                self._call(handler.on_add, obj, not self.synced.is_set())
        elif old.resource_version != obj.resource_version:
            self.store.put(obj)
            self._updated(old, obj)

    def _remove(self, key: NamespacedName) -> None:
        self._undecodable.pop(key, None)
        last_known = self.store.remove(key)
        if last_known is not None:
            for handler in self._handlers:
                self._call(handler.on_delete, last_known)

    def _report_undecodable(self, item: Undecodable) -> None:
        """Log and count an object that does not decode, once per version."""
        if self._undecodable.get(item.key) == item.resource_version:
            return
        self._undecodable[item.key] = item.resource_version
        self._undecodable_total.inc()
        _log.error(
            "object does not decode, its last good version is kept",
            informer=self._name,
            object=str(item.key),
            resource_version=item.resource_version,
            error=item.error,
            had_good_version=item.key in self.store,
        )
