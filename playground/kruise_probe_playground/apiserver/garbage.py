"""The garbage collector: deletes dependents of deleted owners, contents of terminating namespaces and old events.

Source: kubernetes pkg/controller/garbagecollector, pkg/controller/namespace.
Differs: a sweep after each deletion instead of a graph; owners are looked up by uid; no orphan and foreground deletion.
References to one of several owners stay; events have a maximal number instead of a time to live.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kruise_probe_playground.apiserver.deleting import DeleteOptions, delete
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.store import Stored

MAX_EVENTS: Final = 20_000
SETTLE_SECONDS: Final = 0.1
"""Delay between a deletion and the sweep, because deletions come in bursts."""
SWEEP_INTERVAL_SECONDS: Final = 60.0
"""Interval of sweeps without deletions."""


class GarbageCollector:
    """Sweeps one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def run(self) -> None:
        """Sweep after every deletion and at an interval, until cancelled."""
        while True:
            self.sweep()
            try:
                async with asyncio.timeout(SWEEP_INTERVAL_SECONDS):
                    await self._registry.sweep_due.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(SETTLE_SECONDS)

    def sweep(self) -> None:
        """Make one pass over all objects. Its deletions may trigger another one."""
        self._registry.sweep_due.clear()
        present = {
            stored.uid: stored
            for collection in self._registry.store.collections.values()
            for stored in collection.objects.values()
        }
        for kind in self._registry.kinds.values():
            for stored in [*self._registry.collection(kind).objects.values()]:
                self._collect(kind, stored, present)
        self._empty_namespaces()
        self._expire_events()

    def _collect(self, kind: Kind, stored: Stored, present: Mapping[str, Stored]) -> None:
        """Delete an object whose owners are gone."""
        if not stored.owners or any(_is_owner(present.get(each), stored) for each in stored.owners):
            return
        references = kind.decode(stored)["metadata"]["ownerReferences"]
        served = {(each.api_version, each.kind) for each in self._registry.kinds.values()}
        # An owner of another kind may exist elsewhere.
        if served.issuperset((each["apiVersion"], each["kind"]) for each in references):
            delete(self._registry, kind, stored, DeleteOptions())

    def _empty_namespaces(self) -> None:
        """Delete the objects of terminating namespaces, then the namespaces themselves."""
        namespaces = self._registry.kinds["namespaces"]
        for stored in [*self._registry.collection(namespaces).objects.values()]:
            if stored.terminating:
                deletions = [
                    delete(self._registry, kind, each, DeleteOptions())
                    for kind in self._registry.kinds.values()
                    for each in [*self._registry.collection(kind).objects.values()]
                    if each.key.namespace == stored.key.name
                ]
                if all(each.gone for each in deletions):
                    self._registry.remove(namespaces, namespaces.decode(stored), stored)

    def _expire_events(self) -> None:
        kind = self._registry.kinds["events"]
        objects = self._registry.collection(kind).objects
        oldest = sorted(objects.values(), key=lambda each: each.revision)
        for stored in oldest[: max(len(oldest) - MAX_EVENTS, 0)]:
            self._registry.remove(kind, kind.decode(stored), stored)


def _is_owner(owner: Stored | None, dependent: Stored) -> bool:
    """Whether this object may own the dependent: it exists, in the same namespace or in none."""
    return owner is not None and owner.key.namespace in ("", dependent.key.namespace)
