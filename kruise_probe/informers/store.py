"""The objects that an informer holds, found by key or by index.

Source: client-go tools/cache/store.go, thread_safe_store.go, listers.go.
Differs: keys and index values are typed, not strings; answers are snapshots that stay whole while the
store changes; an index function that fails on an object leaves that object out of that index only.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import structlog

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import KubeObject

T = TypeVar("T", bound=KubeObject)

IndexFunc = Callable[[T], Iterable[Hashable]]
"""The values under which an object is found in one index: pure, quick, of the object alone."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Indexer(Generic[T]):
    """Read side of the store: what listers are in client-go. Objects are shared and frozen."""

    def __init__(self, indexers: Mapping[str, IndexFunc[T]]) -> None:
        self._objects: dict[NamespacedName, T] = {}
        self._indexers = dict(indexers)
        self._indices: dict[str, dict[Hashable, dict[NamespacedName, T]]] = {
            name: {} for name in indexers
        }

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

    def by_index(self, name: str, value: Hashable) -> Collection[T]:
        """The objects that index `name` files under `value`.

        Raises:
            KeyError: there is no such index.
        """
        found = self._indices[name].get(value)
        return tuple(found.values()) if found else ()

    def index_keys(self, name: str) -> Collection[Hashable]:
        """The values under which index `name` files anything (client-go's ListIndexFuncValues).

        Raises:
            KeyError: there is no such index.
        """
        return tuple(self._indices[name])


class Store(Indexer[T]):
    """Write side of the store; its informer alone has it in hands."""

    def put(self, obj: T) -> None:
        """Adds the object, or replaces the one of the same key."""
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
        """Removes and returns the object of that key; None if there is none."""
        obj = self._objects.pop(key, None)
        if obj is not None:
            for name, index_func in self._indexers.items():
                index = self._indices[name]
                for value in self._values(name, index_func, obj):
                    _discard(index, value, key)
        return obj

    def _values(self, name: str, index_func: IndexFunc[T], obj: T) -> frozenset[Hashable]:
        try:
            return frozenset(index_func(obj))
        except Exception:  # noqa: BLE001 - one bad object must not stop the informer of all
            _log.exception("index function failed", index=name, object=str(obj.key))
            return frozenset()


def _discard(
    index: dict[Hashable, dict[NamespacedName, T]], value: Hashable, key: NamespacedName
) -> None:
    found = index[value]
    del found[key]
    if not found:
        del index[value]
