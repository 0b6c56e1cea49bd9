"""Store: the objects of an informer, by key and by index.

Source: client-go tools/cache/store.go, thread_safe_store.go, listers.go; apimachinery pkg/util/resourceversion.
Differs: keys and index values are typed, not strings. Lists are snapshots, which do not change with the
store. If an index function fails for an object, only that index omits the object. A resource version that is
not a number is never older, instead of an error.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, TypeVar

import structlog

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject

T = TypeVar("T", bound=KubeObject)

IndexFunc = Callable[[T], Iterable[Hashable]]
"""Returns the index values of an object. Must be fast, and depend only on the object."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def is_older(version: str, than: str) -> bool:
    """Return True if both resource versions are numbers and `version` is lower than `than`.

    They are comparable since Kubernetes 1.35, and numbers of one sequence in every release before.
    """
    try:
        return int(version) < int(than)
    except ValueError:
        return False


class Indexer(Generic[T]):
    """Read side of the store, like a lister in client-go. Objects are shared and frozen."""

    def __init__(self) -> None:
        self._objects: dict[NamespacedName, T] = {}
        self._indexers: dict[str, IndexFunc[T]] = {}
        self._indices: dict[str, dict[Hashable, dict[NamespacedName, T]]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: NamespacedName) -> bool:
        return key in self._objects

    def get(self, key: NamespacedName) -> T | None:
        return self._objects.get(key)

    def list(self) -> Collection[T]:
        return tuple(self._objects.values())

    def keys(self) -> Collection[NamespacedName]:
        return tuple(self._objects)

    def add_index(self, name: str, index_func: IndexFunc[T]) -> None:
        """Add an index.

        Raises:
            ValueError: the store has objects, or another index of this name.
        """
        if self._objects or self._indexers.get(name, index_func) is not index_func:
            raise ValueError(f"index {name}: add each index once, before the informer runs")
        self._indexers[name] = index_func
        self._indices[name] = {}

    def index_values(self, name: str, obj: T) -> frozenset[Hashable]:
        """Return the values of `obj` in index `name`; none if the index function fails for it."""
        return self._values(name, self._indexers[name], obj)

    def by_index(self, name: str, value: Hashable) -> Collection[T]:
        """Return the objects with `value` in index `name`.

        Raises:
            KeyError: the index does not exist.
        """
        found = self._indices[name].get(value)
        return tuple(found.values()) if found else ()

    def _values(self, name: str, index_func: IndexFunc[T], obj: T) -> frozenset[Hashable]:
        try:
            return frozenset(index_func(obj))
        except Exception:  # noqa: BLE001 - one bad object must not stop the informer
            _log.exception("index function failed", index=name, object=str(obj.key))
            return frozenset()


class Store(Indexer[T]):
    """Write side of the store, for its informer only."""

    def put(self, obj: T) -> None:
        """Add the object, or replace the one with the same key."""
        key = obj.key
        old = self._objects.get(key)
        self._objects[key] = obj
        for name, index_func in self._indexers.items():
            index = self._indices[name]
            values = self._values(name, index_func, obj)
            if old is not None:
                for value in self._values(name, index_func, old) - values:
                    _discard(index, value, key)
            for value in values:
                index.setdefault(value, {})[key] = obj

    def remove(self, key: NamespacedName) -> T | None:
        """Remove and return the object with this key, or None."""
        obj = self._objects.pop(key, None)
        if obj is not None:
            for name, index_func in self._indexers.items():
                index = self._indices[name]
                for value in self._values(name, index_func, obj):
                    _discard(index, value, key)
        return obj


def _discard(
    index: dict[Hashable, dict[NamespacedName, T]], value: Hashable, key: NamespacedName
) -> None:
    found = index[value]
    del found[key]
    if not found:
        del index[value]
