"""A cache in bytes that namespaces share: over its limit, the namespace that uses the most loses what it used least recently."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Shelf(OrderedDict[K, tuple[V, int]], Generic[K, V]):
    """The values of one namespace with their sizes, the least recently used first."""

    used = 0
    """Bytes of all values."""


class SharedCache(Generic[K, V]):
    """Values by namespace and key. A namespace loses a value only while no other uses more bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._shelves: dict[str, _Shelf[K, V]] = {}
        self._total = 0

    def get(self, namespace: str, key: K) -> V | None:
        shelf = self._shelves.get(namespace)
        if shelf is None or key not in shelf:
            return None
        value, _ = shelf[key]
        return value

    def put(
        self,
        namespace: str,
        key: K,
        value: V,
        size_bytes: int,
    ) -> list[V]:
        """Store a value as the most recently used one of its namespace; return the values that are lost, perhaps this one."""
        shelves = self._shelves
        shelf = shelves.setdefault(namespace, _Shelf())
        if key in shelf:
            self._remove(shelf, key)
        shelf[key] = (value, size_bytes)
        shelf.used += size_bytes
        self._total += size_bytes
        lost: list[V] = []
        while self._total > self._max_bytes:
            largest = max(shelves, key=self._bytes_of)
            shelf = shelves[largest]
            lost.append(self._remove(shelf, next(iter(shelf))))
            if not shelf:
                del shelves[largest]
        return lost

    def _bytes_of(self, namespace: str) -> int:
        return self._shelves[namespace].used

    def _remove(self, shelf: _Shelf[K, V], key: K) -> V:
        value, size_bytes = shelf.pop(key)
        shelf.used -= size_bytes
        self._total -= size_bytes
        return value
