"""Read your own writes: an informer's store, with what we wrote on top until the informer has seen it too.

Between the answer to a patch and its watch event the store shows the state before. Whoever decides on that writes
the same again. Here the answer itself is read until the store has caught up.

Source: client-go tools/cache/mutation_cache.go.
Differs: entries go as soon as the informer reports them, not by time-to-live alone.
"""

import asyncio
from typing import Final, Generic, TypeVar

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import KubeObject
from kruise_probe.informers.resource_versions import is_older
from kruise_probe.informers.store import Indexer

T = TypeVar("T", bound=KubeObject)

LONGEST_LAG_SECONDS: Final = 60.0
"""A written object whose event never came within this time is not believed any longer."""


class MutationCache(Generic[T]):
    """The newer of what the store holds and what was written; bounded by the writes of a minute."""

    def __init__(self, store: Indexer[T]) -> None:
        self._store = store
        self._written: dict[NamespacedName, tuple[T, float]] = {}

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
        """Remembers the server's answer to a write."""
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
        """The object is gone, or what we wrote turned out not to stand."""
        self._written.pop(key, None)

    def is_echo(self, obj: T) -> bool:
        """Whether an event only brings back what we wrote; whatever older was remembered is dropped."""
        entry = self._written.get(obj.key)
        if entry is None or is_older(obj.resource_version, entry[0].resource_version):
            return False
        del self._written[obj.key]
        return entry[0].resource_version == obj.resource_version
