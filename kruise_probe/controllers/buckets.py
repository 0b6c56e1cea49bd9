"""Values by key: what the indexes have in common.

Source: client-go tools/cache/thread_safe_store.go (index, sets.String).
Differs: values keep the order in which they were added.
"""

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class Buckets(Generic[K, V]):
    """Several values for each key. A key without values is not kept."""

    def __init__(self) -> None:
        self._values: dict[K, dict[V, None]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def of(self, key: K) -> Collection[V]:
        return self._values.get(key, ())

    def add(self, key: K, value: V) -> None:
        values = self._values.setdefault(key, {})
        values[value] = None

    def discard(self, key: K, value: V) -> None:
        values = self._values.get(key)
        if values is None:
            return
        values.pop(value, None)
        if not values:
            del self._values[key]
