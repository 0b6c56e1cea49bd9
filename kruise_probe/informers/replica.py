"""Replica: the objects of an informer, by key and by index. It applies lists and watch events, and calls the event handlers.

A list arrives in pieces: pages, or the initial events of a stream. Each piece is applied at once, so a list of any size needs
no second copy. Objects that are missing from the list are deleted when it is complete. An unfinished list deletes nothing.

An object that does not decode keeps its last good version, and is absent if there is none. It still
exists on the server, so nothing that depends on it may be cleaned up.

The response to our own write is stored at once, so that a reconcile never reads the object before the write and repeats it.
The handlers know an own write by its key in `own_writes`. The event of that version then changes nothing. An older event of
the object shows that another client wrote in between, so the handlers are called once more, with the object before our write
and the stored one. A list may replace these events, so
they are called then as well.

Source: client-go tools/cache/store.go, thread_safe_store.go, listers.go, delta_fifo.go (Replace), reflector.go (syncWith),
mutation_cache.go, controller.go (ResourceEventHandler), shared_informer.go (sharedProcessor); apimachinery pkg/util/resourceversion.
Differs: no second copy and no queue: handlers run synchronously on the event loop. An object that was replaced under its name
is a delete and an add. client-go skips an object that does not decode, or drops the whole list. Keys and index values are
typed, not strings. Returned collections are snapshots. An object has one value in an
index. A resource version that is not a number is never older, instead of an error.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable
from typing import Final, Generic, Protocol, TypeVar, TypeVarTuple

import structlog
from prometheus_client import Counter

from kruise_probe.api.meta import EventType, KubeObject, NamespacedName, Undecodable, WatchEvent

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", contravariant=True)
Ts = TypeVarTuple("Ts")

IndexFunc = Callable[[T], Hashable]
"""Returns the index value of an object. Must be fast, depend only on the object, and raise nothing."""

_undecodable_total: Final = Counter(
    "kruise_probe_informer_undecodable_total",
    "Versions of objects that did not decode",
    ["informer"],
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def is_older(version: str, than: str) -> bool:
    """Return True if both resource versions are numbers and `version` is lower than `than`.

    They are comparable since Kubernetes 1.35, and numbers of one sequence in every release before.
    """
    try:
        return int(version) < int(than)
    except ValueError:
        return False


class EventHandler(Protocol[T_contra]):
    """Called after the store has changed. Must not block; usually it enqueues a key."""

    def on_add(self, obj: T_contra, is_initial: bool) -> None:
        """`is_initial`: the object is from the first list, or from the replay for a handler added later."""

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """`old is new` on a resync. For an own write, the key is in `own_writes`."""

    def on_delete(self, last_known: T_contra) -> None:
        """`last_known`: the state of the object that was in the store before the deletion."""


class Indexer(Generic[T]):
    """Read side of the store, like a lister in client-go. Objects are shared and frozen.

    Attributes:
        own_writes: keys whose stored object is the response to our own write, until an event or list of the object arrives;
            with the object before our first such write, None if there was none.
    """

    def __init__(self) -> None:
        self.own_writes: Final[dict[NamespacedName, T | None]] = {}
        self._objects: dict[NamespacedName, T] = {}
        self._indexers: dict[str, IndexFunc[T]] = {}
        self._indices: dict[str, dict[Hashable, dict[NamespacedName, T]]] = {}

    def get(self, key: NamespacedName) -> T | None:
        return self._objects.get(key)

    def list(self) -> Collection[T]:
        return tuple(self._objects.values())

    def add_index(self, name: str, index_func: IndexFunc[T]) -> None:
        """Add an index, before the informer runs."""
        self._indexers[name] = index_func
        self._indices[name] = {}

    def by_index(self, name: str, value: Hashable) -> Collection[T]:
        """Return the objects with `value` in index `name`.

        Raises:
            KeyError: the index does not exist.
        """
        return tuple(self._indices[name].get(value, {}).values())


class Replica(Indexer[T]):
    """One informer's copy of the server's state, and its handlers.

    Attributes:
        synced: set once the replica and the handlers have received a complete list.
    """

    def __init__(self, *, name: str) -> None:
        super().__init__()
        self.synced = asyncio.Event()
        self._handlers: tuple[EventHandler[T], ...] = ()
        self._name = name
        self._unconfirmed: set[NamespacedName] = set()
        self._undecodable: dict[NamespacedName, str] = {}
        self._undecodable_total = _undecodable_total.labels(name)

    def add_event_handler(self, handler: EventHandler[T]) -> None:
        """Add `handler`. It first gets every stored object as an initial add, then all changes."""
        for obj in self.list():
            self._call(handler.on_add, obj, True)
        self._handlers = (*self._handlers, handler)

    def _call(
        self,
        method: Callable[[T, *Ts], None],
        obj: T,
        *args: *Ts,
    ) -> None:
        try:
            method(obj, *args)
        except Exception:  # noqa: BLE001 - one bad handler or object must not stop the informer
            _log.exception("event handler failed", informer=self._name, object=str(obj.key))

    def begin_list(self) -> None:
        """Start a list, and discard an unfinished one before it."""
        self._unconfirmed = set(self._objects)
        for key in sorted(self.own_writes):
            self.own_writes.pop(key, None)
            self._updated(self._objects[key], self._objects[key])

    def listed(self, obj: T) -> None:
        """Apply an object of a list or of initial events, even if it is older than the stored one.

        But not if it is older than our own write since the list began.
        """
        key = obj.key
        self._unconfirmed.discard(key)
        stored = self._objects.get(key)
        if stored is not None and key in self.own_writes:
            if is_older(obj.resource_version, stored.resource_version):
                return
            self.own_writes.pop(key, None)
            self._updated(stored, stored)
        self._put(key, stored, obj)

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
        """Apply one watch event. The store ignores an event older than the stored object."""
        obj = event.object
        undecodable = event.undecodable
        if undecodable is not None and event.type is EventType.DELETED:
            self._remove(undecodable.key)
        elif undecodable is not None:
            self.listed_undecodable(undecodable)
        if obj is None:
            return
        key = obj.key
        stored = self._objects.get(key)
        own_write = key in self.own_writes
        before = self.own_writes.pop(key, None)
        if stored is not None and is_older(event.resource_version, stored.resource_version):
            if own_write:
                self._updated(before or obj, stored)
            return
        self._unconfirmed.discard(key)
        if event.type is EventType.DELETED:
            self._remove(key)
        else:
            self._put(key, stored, obj)

    def record_write(self, obj: T, seen_version: str) -> None:
        """Store the response to our own write, unless the store is newer.

        An object that is missing although its version has been seen was deleted meanwhile. Without a version seen, the list
        in progress decides at its end.
        """
        key = obj.key
        stored = self._objects.get(key)
        version = seen_version
        if stored is not None:
            version = stored.resource_version
        if not version:
            self._unconfirmed.add(key)
        if not version or is_older(version, obj.resource_version):
            self.own_writes.setdefault(key, stored)
            self._put(key, stored, obj)

    def resync(self, key: NamespacedName) -> None:
        """Call the handlers with the stored object again; ignore a key without one."""
        obj = self._objects.get(key)
        if obj is not None:
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
        elif old is not None and old.resource_version == obj.resource_version:
            return
        self._objects[key] = obj
        self._index(key, old, obj)
        if old is not None:
            self._updated(old, obj)
            return
        for handler in self._handlers:
            self._call(handler.on_add, obj, not self.synced.is_set())

    def _index(
        self,
        key: NamespacedName,
        old: T | None,
        new: T | None,
    ) -> None:
        """Replace `old` by `new` in the indexes."""
        for name, index in self._indices.items():
            value_of = self._indexers[name]
            after: Hashable = None
            if new is not None:
                after = value_of(new)
                index.setdefault(after, {})[key] = new
            before = value_of(old) if old is not None else after
            if before != after:
                objects = index[before]
                del objects[key]
                if not objects:
                    del index[before]

    def _remove(self, key: NamespacedName) -> None:
        self._undecodable.pop(key, None)
        self.own_writes.pop(key, None)
        last_known = self._objects.pop(key, None)
        if last_known is not None:
            self._index(key, last_known, None)
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
            had_good_version=item.key in self._objects,
        )
