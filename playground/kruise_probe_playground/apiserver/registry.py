"""The served kinds and their objects; every change is committed here.

Source: apiserver pkg/registry/generic/registry/store.go.
Differs: the storage cannot fail.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from random import Random
from typing import Final

from kruise_probe.api.meta import NamespacedName
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Change, Collection, ObjectStore, Stored

MAX_OBJECT_BYTES: Final = 3 << 19
"""The maximum of etcd for one request."""


class Registry:
    """Kinds and their collections.

    Attributes:
        kinds: by qualified resource, e.g. `nodepodprobes.apps.kruise.io`.
        store: the objects.
        now: the wall clock.
        random: for generated names and uids.
        sweep_due: set when the garbage collector may have work; the collector clears it.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        now: Callable[[], datetime],
        random: Random | None = None,
    ) -> None:
        self.store: Final = ObjectStore()
        self.now: Final = now
        self.random: Final = random or Random()
        self.sweep_due: Final = asyncio.Event()
        self.kinds: Final = {kind.resource: kind for kind in kinds}

    def collection(self, kind: Kind) -> Collection:
        return self.store.collections[kind.resource]

    def get(self, kind: Kind, key: NamespacedName) -> Stored:
        """The stored object; fails with 404 without one."""
        stored = self.collection(kind).objects.get(key)
        if stored is None:
            raise failures.not_found(kind.target(key.name))
        return stored

    def commit(
        self,
        kind: Kind,
        new: Json,
        old: Stored | None,
    ) -> Stored:
        """Store an object with the next revision and send the change to the watchers."""
        stored = kind.encode(new, self.store.revision + 1)._replace(new=old is None)
        if len(stored.body) > MAX_OBJECT_BYTES:
            raise failures.Failure(500, "", "etcdserver: request is too large")
        self.store.next_revision()
        self.collection(kind).record(
            Change(
                stored.revision,
                old,
                stored,
                removed=False,
            )
        )
        if stored.terminating or (stored.owners and old is None):
            self.sweep_due.set()
        return stored

    def remove(self, kind: Kind, last: Json, old: Stored) -> Stored:
        """Remove an object; the watchers get `last`."""
        stored = kind.encode(last, self.store.next_revision())
        self.collection(kind).record(
            Change(
                stored.revision,
                old,
                stored,
                removed=True,
            )
        )
        self.sweep_due.set()
        return stored

    def check_namespace(self, kind: Kind, namespace: str) -> None:
        """Fail if the namespace of a new object does not exist or is terminating."""
        if not kind.namespaced:
            return
        namespaces = self.kinds["namespaces"]
        stored = self.get(namespaces, NamespacedName("", namespace))
        if stored.fields.get("status.phase") == "Terminating":
            why = (
                f"unable to create new content in namespace {namespace} because it is being"
                " terminated"
            )
            message = f"namespace {namespace} is being terminated"
            cause = Cause("NamespaceTerminating", message, "metadata.namespace")
            raise failures.forbidden(kind.target(), why, [cause])
