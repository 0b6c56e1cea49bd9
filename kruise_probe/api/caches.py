"""Caches of what a tenant can grow: one budget of bytes for all of them in a process.

A cache has two generations. An entry that is found in the old one moves to the young one. When the young generations of all
caches together have used half of the budget, they become the old ones, and the old ones are dropped. So an entry in use stays,
and a hit in the young generation costs one lookup of a dict; the bookkeeping of an LRU costs more than the decode of a pod.
Everything in a cache can be computed again.

The size of an entry is an upper estimate. It counts all parts, although live objects share them, because the entry may be the
last that references them.
"""

from collections.abc import Callable, Collection
from sys import getsizeof
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MANAGER_BYTES: Final = 32 << 20
DAEMON_BYTES: Final = 8 << 20

ENTRY_BYTES: Final = 128
"""Share of one entry in the tables of a cache."""
STRING_BYTES: Final = 96
"""A string without its characters, with its share in the tables of the interpreter or of its dict."""
OBJECT_BYTES: Final = 128
"""A struct, a dict or a list of a few items, without their strings."""
ITEM_BYTES: Final = 48
"""An item of a JSON list or object, with a number as its value."""
WIDEST_CHARACTER: Final = 5
"""Bytes of memory for one byte of UTF-8: one wide character makes all of its string wide, and UTF-8 is kept as well."""


def text_bytes(data: bytes) -> int:
    """The memory of this UTF-8, and of its characters in strings."""
    return OBJECT_BYTES + len(data) * (2 if data.isascii() else 1 + WIDEST_CHARACTER)


def decoded_bytes(data: bytes) -> int:
    """The memory of this JSON, and of what is decoded from it."""
    strings = data.count(b'"') // 2 * STRING_BYTES
    objects = (data.count(b"{") + data.count(b"[")) * OBJECT_BYTES
    return text_bytes(data) + strings + objects + data.count(b",") * ITEM_BYTES


class Budget:
    """The bytes of all caches of one process. A command line sets `limit_bytes` before it starts the process's work."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._caches: list[Cache[Any, Any]] = []
        self._young_bytes = 0
        self._old_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Of both generations. An entry that moved to the young one counts twice."""
        return self._young_bytes + self._old_bytes

    def add(self, cache: "Cache[Any, Any]") -> None:
        self._caches.append(cache)

    def admit(self, size: int) -> bool:
        """Make room for an entry; False if it is too large to be kept."""
        if size > self.limit_bytes // 8:
            return False
        if self._young_bytes + size > self.limit_bytes // 2:
            self.age()
        self._young_bytes += size
        return True

    def age(self) -> None:
        """Drop the old generations, and make the young ones old."""
        for cache in self._caches:
            cache.age()
        self._old_bytes = self._young_bytes
        self._young_bytes = 0


BUDGET: Final = Budget(MANAGER_BYTES)
"""The budget of this process; a daemon lowers it."""


def _no_value(key: object) -> Any:
    raise KeyError(key)


class Cache(dict[K, V]):
    """A cache within `BUDGET`. As a dict it is its young generation, so look up by `cache[key]` or `find`, never by `in`.

    `size` estimates the bytes of an entry, key included. `make` makes the value of a key that is not kept.
    """

    def __init__(
        self,
        size: Callable[[K, V], int],
        make: Callable[[K], V] = _no_value,
        *,
        budget: Budget = BUDGET,
    ) -> None:
        super().__init__()
        self._size = size
        self._make = make
        self._budget = budget
        self._old: dict[K, V] = {}
        budget.add(self)

    def __missing__(self, key: K) -> V:
        return self._keep(key, self._make)

    def find(
        self,
        key: K,
        make: Callable[[K], V],
    ) -> V:
        """The value of `key`; `make` makes one that is not kept."""
        found = self.get(key)
        return self._keep(key, make) if found is None else found

    def age(self) -> None:
        """Make the young generation the old one. For the budget."""
        self._old = dict(self)
        self.clear()

    def _keep(
        self,
        key: K,
        make: Callable[[K], V],
    ) -> V:
        value = self._old.pop(key, None)
        if value is None:
            value = make(key)
        if self._budget.admit(ENTRY_BYTES + self._size(key, value)):
            self[key] = value
        return value


def sizes_of(strings: Collection[str]) -> int:
    """The memory of a collection of ASCII strings."""
    return getsizeof(strings) + sum(map(len, strings)) + STRING_BYTES * len(strings)
