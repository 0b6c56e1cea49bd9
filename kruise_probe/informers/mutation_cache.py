"""Read-your-own-writes cache: an informer's store, overlaid with our writes until their events arrive.

Between the response to a patch and its watch event the store is stale. A reconcile that reads the stale object
repeats the write. So this cache returns the response until the store has caught up.

The response to a patch may also arrive after the event of the object's deletion. A tombstone then keeps the
cache from returning the deleted object for a minute.

Source: client-go tools/cache/mutation_cache.go.
Differs: the informer's event drops an entry, not only its time-to-live; deletions leave tombstones.
"""

import asyncio
from collections.abc import Collection, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from kruise_probe.api.meta import KubeObject, NamespacedName
from kruise_probe.informers.replica import Indexer, is_older

T = TypeVar("T", bound=KubeObject)
V = TypeVar("V")

LONGEST_LAG_SECONDS: Final = 60.0
"""Time-to-live of a written object whose event never arrives, and of a tombstone."""

MAX_TOMBSTONES: Final = 4096
"""Far more than the deletions that arrive while a patch is in flight."""


class _Tombstone(NamedTuple):
    uid: str
    resource_version: str

    def covers(self, obj: KubeObject) -> bool:
        """Whether `obj` is the deleted object or an older version of it."""
        return obj.uid == self.uid or is_older(obj.resource_version, self.resource_version)


class MutationCache(Generic[T]):
    """Returns the stored or the written object, whichever is newer. Holds the writes of about one minute."""

    def __init__(self, store: Indexer[T]) -> None:
        self._store = store
        self._written: dict[NamespacedName, tuple[T, float]] = {}
        """With the loop time at which an entry expires; the oldest entry first."""
        self._tombstones: dict[NamespacedName, tuple[_Tombstone, float]] = {}
        """With expiry as in `_written`."""

    def get(self, key: NamespacedName) -> T | None:
        stored = self._store.get(key)
        entry = self._written.get(key)
        if entry is None:
            return stored
        written, expires_at = entry
        if expires_at < asyncio.get_running_loop().time() or (
            stored is not None and not is_older(stored.resource_version, written.resource_version)
        ):
            return stored
        return written

    def by_index(self, name: str, value: Hashable) -> Collection[T]:
        """Return the objects with `value` in index `name`.

        Raises:
            KeyError: the index does not exist.
        """
        stored = self._store.by_index(name, value)
        if not self._written:
            return stored
        found = {each.key: each for each in stored}
        for key in self._written:
            current = self.get(key)
            if current is not None and value in self._store.index_values(name, current):
                found[key] = current
            else:
                found.pop(key, None)
        return tuple(found.values())

    def record_write(self, obj: T) -> None:
        """Remember the server's response to a write, unless a tombstone covers it."""
        key, now = obj.key, asyncio.get_running_loop().time()
        tombstone, expires_at = self._tombstones.get(key, (None, 0.0))
        if tombstone is not None and expires_at >= now and tombstone.covers(obj):
            return
        self._written.pop(key, None)
        self._written[key] = (obj, now + LONGEST_LAG_SECONDS)
        _drop_expired(self._written, now)

    def unseen(self) -> Sequence[T]:
        """Written objects of which the store still holds an older version. Objects missing from the store are gone."""
        now = asyncio.get_running_loop().time()
        return [
            written
            for key, (written, expires_at) in self._written.items()
            if expires_at >= now
            and (stored := self._store.get(key)) is not None
            and is_older(stored.resource_version, written.resource_version)
        ]

    def observe(self, obj: T) -> bool:
        """Drop the written object that the event of `obj` reports or replaces; return whether it reports our own write."""
        if not self._written:
            return False
        written, _ = self._written.get(key := obj.key, (None, 0.0))
        if written is None or is_older(obj.resource_version, written.resource_version):
            return False
        del self._written[key]
        return written.resource_version == obj.resource_version

    def forget(self, key: NamespacedName) -> None:
        """Drop a written object that is outdated."""
        self._written.pop(key, None)

    def observe_deletion(self, last_known: T) -> None:
        """Leave a tombstone. It covers every version with this uid, and older objects of the same name."""
        key, now = last_known.key, asyncio.get_running_loop().time()
        self.forget(key)
        self._tombstones.pop(key, None)
        if len(self._tombstones) >= MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        tombstone = _Tombstone(last_known.uid, last_known.resource_version)
        self._tombstones[key] = (tombstone, now + LONGEST_LAG_SECONDS)
        _drop_expired(self._tombstones, now)


def _drop_expired(entries: dict[NamespacedName, tuple[V, float]], now: float) -> None:
    while entries[oldest := next(iter(entries))][1] < now:
        del entries[oldest]
