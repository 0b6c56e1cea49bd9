"""A cache in bytes that namespaces share: over its limit, the namespace that uses the most loses what it used least recently."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedCache(Generic[K, V]):
    """Values by namespace and key. A namespace loses a value only while no other uses more bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: dict[str, OrderedDict[K, tuple[V, int]]] = {}
        self._used: dict[str, int] = {}
        self._total = 0

    def get(self, namespace: str, key: K) -> V | None:
        values = self._values.get(namespace)
        if values is None or key not in values:
            return None
        return values[key][0]

    def put(self, namespace: str, key: K, value: V, size_bytes: int) -> list[V]:
        """Store a value as the most recently used one of its namespace; return the values that are lost, perhaps this one."""
        values = self._values.setdefault(namespace, OrderedDict())
        self._used.setdefault(namespace, 0)
        _, old_size = values.pop(key, (None, 0))
        values[key] = (value, size_bytes)
        self._count(namespace, size_bytes - old_size)
        lost: list[V] = []
        while self._total > self._max_bytes:
            lost.append(self._lose_one())
        return lost

    def _lose_one(self) -> V:
        namespace = max(self._used, key=self._used.__getitem__)
        _, (value, size) = self._values[namespace].popitem(last=False)
        self._count(namespace, -size)
        if not self._values[namespace]:
            del self._values[namespace], self._used[namespace]
        return value

    def _count(self, namespace: str, size_bytes: int) -> None:
        self._used[namespace] += size_bytes
        self._total += size_bytes
