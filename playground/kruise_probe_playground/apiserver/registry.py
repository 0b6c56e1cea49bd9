"""The served kinds and their objects; every change is committed here.

Source: apiserver pkg/registry/generic/registry/store.go.
Differs: the storage cannot fail.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from random import Random
from typing import Final

from kruise_probe.api.keys import NamespacedName
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause, Target
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Change, Collection, Store, Stored

MAX_OBJECT_BYTES: Final = 3 << 19
"""The maximum of etcd for one request."""

_NAMESPACES: Final = "namespaces"


class Registry:
    """Kinds and their collections.

    Attributes:
        store: the objects.
        now: the wall clock.
        random: for generated names.
        ended: set when the garbage collector may have work; the collector clears it.
    """

    def __init__(self, kinds: Iterable[Kind], *, now: Callable[[], datetime]) -> None:
        self.store: Final = Store()
        self.now: Final = now
        self.random: Final = Random()
        self.ended: Final = asyncio.Event()
        self._kinds = {each.resource: each for each in kinds}
        self._by_path = {
            (each.group, each.version, each.plural): each for each in self._kinds.values()
        }

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """By qualified resource, e.g. `nodepodprobes.apps.kruise.io`."""
        return self._kinds

    def kind_at(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def collection(self, kind: Kind) -> Collection:
        return self.store.collection(kind.resource)

    def get(self, kind: Kind, key: NamespacedName) -> Stored:
        """The stored object; fails with 404 without one."""
        stored = self.collection(kind).objects.get(key)
        if stored is None:
            raise failures.not_found(kind.target(key.name))
        return stored

    def commit(self, kind: Kind, new: Json, old: Stored | None) -> Stored:
        """Store an object with the next revision and send the change to the watchers."""
        stored = kind.encode(new, self.store.revision + 1)
        if len(stored.body) > MAX_OBJECT_BYTES:
            raise failures.too_large_for_storage()
        self.store.next_revision()
        self.collection(kind).record(Change(stored.revision, old, stored, removed=False))
        if stored.ending or (stored.owners and old is None):
            self.ended.set()
        return stored

    def remove(self, kind: Kind, last: Json, old: Stored) -> Stored:
        """Remove an object; the watchers get `last`."""
        stored = kind.encode(last, self.store.next_revision())
        self.collection(kind).record(Change(stored.revision, old, stored, removed=True))
        self.ended.set()
        return stored

    def check_namespace(self, kind: Kind, namespace: str) -> None:
        """Fail if the namespace of a new object does not exist or is terminating."""
        if not kind.namespaced:
            return
        namespaces = self._kinds[_NAMESPACES]
        stored = self.get(namespaces, NamespacedName("", namespace))
        if stored.fields.get("status.phase") == "Terminating":
            why = (
                f"unable to create new content in namespace {namespace} because it is being"
                " terminated"
            )
            message = f"namespace {namespace} is being terminated"
            cause = Cause("NamespaceTerminating", message, "metadata.namespace")
            raise failures.forbidden(Target(kind.group, kind.plural, kind.kind), why, [cause])
