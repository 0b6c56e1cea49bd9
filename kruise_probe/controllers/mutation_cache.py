"""Read your own writes: an informer's store, with what we wrote on top until the informer has seen it too.

Between the answer to a patch and its watch event the store shows the state before. Whoever decides on that writes
the same again. Here the answer itself is read until the store has caught up.

The answer to a patch may also come after the event of the object's deletion. It would be read for a minute as if the
object stood; so the deletion is remembered as long, and such an answer is not.

Source: client-go tools/cache/mutation_cache.go.
Differs: entries go as soon as the informer reports them, not by time-to-live alone; deletions are remembered.
"""

import asyncio
from typing import Final, Generic, NamedTuple, TypeVar

from cachetools import TTLCache

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import KubeObject
from kruise_probe.informers.resource_versions import is_older
from kruise_probe.informers.store import Indexer

T = TypeVar("T", bound=KubeObject)

LONGEST_LAG_SECONDS: Final = 60.0
"""A written object whose event never came within this time is not believed any longer."""


LONGEST_MEMORY: Final = 4096
"""Deletions remembered at most: far more than are seen while a patch is under way."""


class _Grave(NamedTuple):
    uid: str
    resource_version: str

    def holds(self, obj: KubeObject) -> bool:
        """Whether `obj` is what was deleted, or something older still."""
        return obj.uid == self.uid or is_older(obj.resource_version, self.resource_version)


class MutationCache(Generic[T]):
    """The newer of what the store holds and what was written; bounded by the writes of a minute."""

    def __init__(self, store: Indexer[T]) -> None:
        self._store = store
        self._written: dict[NamespacedName, tuple[T, float]] = {}
        self._deleted: TTLCache[NamespacedName, _Grave] = TTLCache(
            LONGEST_MEMORY, LONGEST_LAG_SECONDS, lambda: asyncio.get_running_loop().time()
        )

    def __len__(self) -> int:
        return len(self._written)

    def get(self, key: NamespacedName) -> T | None:
        stored = self._store.get(key)
        entry = self._written.get(key)
        if entry is None:
            return stored
        written, believed_until = entry
        if believed_until < asyncio.get_running_loop().time() or (
            stored is not None and not is_older(stored.resource_version, written.resource_version)
        ):
            del self._written[key]
            return stored
        return written

    def wrote(self, obj: T) -> None:
        """Remembers the server's answer to a write, unless the object's deletion was seen before it."""
        grave = self._deleted.get(obj.key)
        if grave is not None and grave.holds(obj):
            return
        now = asyncio.get_running_loop().time()
        self._written[obj.key] = (obj, now + LONGEST_LAG_SECONDS)
        oldest = next(iter(self._written))
        if self._written[oldest][1] < now:
            del self._written[oldest]

    def unseen(self) -> list[T]:
        """What was written and the store does not show yet; of what the store holds at all, as the rest is gone."""
        now = asyncio.get_running_loop().time()
        return [
            written
            for key, (written, believed_until) in self._written.items()
            if believed_until >= now
            and (stored := self._store.get(key)) is not None
            and is_older(stored.resource_version, written.resource_version)
        ]

    def forget(self, key: NamespacedName) -> None:
        """What we wrote turned out not to stand."""
        self._written.pop(key, None)

    def deleted(self, last_known: T) -> None:
        """The informer saw the object's end. A uid never comes back; a version may be that of an earlier namesake."""
        self.forget(last_known.key)
        self._deleted[last_known.key] = _Grave(last_known.uid, last_known.resource_version)

    def is_echo(self, obj: T) -> bool:
        """Whether an event only brings back what we wrote; whatever older was remembered is dropped."""
        entry = self._written.get(obj.key)
        if entry is None or is_older(obj.resource_version, entry[0].resource_version):
            return False
        del self._written[obj.key]
        return entry[0].resource_version == obj.resource_version
