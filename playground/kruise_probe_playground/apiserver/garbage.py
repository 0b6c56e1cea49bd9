"""The garbage collector: deletes dependents of deleted owners, contents of terminating namespaces and old events.

Source: kubernetes pkg/controller/garbagecollector, pkg/controller/namespace, events' time to live.
Differs: a sweep after each deletion instead of a graph; owners are looked up by uid; no orphan and foreground deletion.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from kruise_probe.api.times import parse_time
from kruise_probe_playground.apiserver.deleting import DeleteOptions, delete
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.store import Stored

EVENT_LIFETIME: Final = timedelta(hours=1)
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
        """Delete an object without owners, or remove its references to owners that are gone."""
        kept = [each for each in stored.owners if _is_owner(present.get(each), stored)]
        if len(kept) == len(stored.owners):
            return
        decoded = kind.decode(stored)
        references = decoded["metadata"]["ownerReferences"]
        served = {(each.api_version, each.kind) for each in self._registry.kinds.values()}
        if not served.issuperset((each["apiVersion"], each["kind"]) for each in references):
            return  # an owner of another kind may exist elsewhere
        if kept:
            owners = [each for each in references if each["uid"] in kept]
            decoded["metadata"]["ownerReferences"] = owners
            self._registry.commit(kind, decoded, stored)
        else:
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
        limit = self._registry.now() - EVENT_LIFETIME
        for stored in sorted(objects.values(), key=lambda each: each.revision):
            event = kind.decode(stored)
            stamps = (event.get("lastTimestamp"), event["metadata"]["creationTimestamp"])
            if len(objects) <= MAX_EVENTS and any(
                at and at > limit for at in map(parse_time, stamps)
            ):
                return
            self._registry.remove(kind, event, stored)


def _is_owner(owner: Stored | None, dependent: Stored) -> bool:
    """Whether this object may own the dependent: it exists, in the same namespace or in none."""
    return owner is not None and owner.key.namespace in ("", dependent.key.namespace)
