"""An API server in memory for the reconcilers: patches, finalizers, generations, managedFields of pods.

Every verb can be made to fail. Left out: validation, resource versions in lists of other kinds, and that a status
subresource protects the rest of the object (our patches change nothing else).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec
from support.builders import CREATED
from support.fake_source import FakeSource
from support.wire import Json, decoded

from kruise_probe.api.core import EVENTS
from kruise_probe.api.errors import AlreadyExists, Conflict, Invalid, NotFound
from kruise_probe.api.meta import KubeObject, ListPage, NamespacedName, Resource
from kruise_probe.api.names import MANAGER_FIELD_MANAGER
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_time
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.definitions import DEFINITIONS
from kruise_probe.controllers.own_reads import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.managed_fields import ManagerIdentifier, track
from kruise_probe_playground.apiserver.requests import merge_patch
from kruise_probe_playground.apiserver.strategic import strategic_merge_patch

T = TypeVar("T", bound=KubeObject)

LATENCY_SECONDS = 0.002
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_FIELDS_OF_CREATOR = {
    "manager": "creator",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsV1": {"f:spec": {"f:containers": {}}},
}
_POD = next(kind for kind in builtin_kinds() if kind.plural == "pods")
RIGHTS = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
"""What --own-node-reads needs for each node."""
_GENERATED = ("podprobemarkers", "nodepodprobes")


class Write(NamedTuple):
    """One writing request of the manager."""

    verb: str
    kind: str
    key: NamespacedName
    body: Json
    subresource: str = ""


def refusing(
    error: Exception, *, kind: str = "", name: str = "", subresource: str | None = None
) -> Callable[[Write], None]:
    """What `FakeApi.before` does if the server refuses these writes; "" is any kind or name, None any subresource."""

    def refuse(write: Write) -> None:
        is_object = kind in ("", write.kind) and name in ("", write.key.name)
        if is_object and subresource in (None, write.subresource):
            raise error

    return refuse


class RecordedEvent(NamedTuple):
    about: str
    type: str
    reason: str
    message: str


def recorded_event(wire: Json) -> RecordedEvent:
    involved = wire["involvedObject"]
    return RecordedEvent(
        f"{involved['kind']}/{involved['name']}",
        wire["type"],
        wire["reason"],
        wire["message"],
    )


class FakeApi:
    """The requests of the manager; its `sources` feed informers.

    Attributes:
        watched: the namespace of each informer, by the plural of its kind.
        writes: what the manager wrote, in order, refused requests included; without events.
        events: what the manager recorded as events, each occurrence.
        before: called with each write before it is done; may raise its error.
        before_read: called with each key before it is read; may raise its error.
        read_seconds: how long the response to a read is in flight.
        latency_seconds: by kind, how long a write is in flight; `LATENCY_SECONDS` if not given.
        mutate: called with each pod that the manager patched, before it is stored, as an admission policy.
        prune: called with each custom object before it is stored; removes the fields that a CRD prunes.
    """

    def __init__(self) -> None:
        self.sources: dict[str, FakeSource[Any]] = {
            kind.plural: FakeSource()
            for kind in (PODS, MARKERS, NODES, NODE_POD_PROBES, LEASES, DEFINITIONS, *RIGHTS)
        }
        self.watched: dict[str, str] = {}
        self.writes: list[Write] = []
        self.events: list[RecordedEvent] = []
        self.before: Callable[[Write], None] = lambda write: None
        self.before_read: Callable[[NamespacedName], None] = lambda key: None
        self.read_seconds = 0.0
        self.mutate: Callable[[Json], None] = lambda wire: None
        self.prune: Callable[[Json], None] = lambda wire: None
        self.latency_seconds: dict[str, float] = {}
        self._wire: dict[tuple[str, NamespacedName], Json] = {}
        self._uids = 0

    def source(self, resource: Resource[Any], namespace: str) -> FakeSource[Any]:
        """The source of an informer."""
        self.watched[resource.plural] = namespace
        return self.sources[resource.plural]

    def count(self, kind: str = "", since: int = 0) -> Counter[str]:
        """Writes by kind and subresource (`Pod/status`), from the `since`-th on."""
        writes = [write for write in self.writes[since:] if kind in ("", write.kind)]
        return Counter(f"{write.kind}/{write.subresource}".rstrip("/") for write in writes)

    def find(self, resource: Resource[T], name: str, namespace: str = "default") -> Json | None:
        """The object as JSON, or None."""
        return self._wire.get((resource.plural, _key(resource, name, namespace)))

    def read(self, resource: Resource[Any], name: str, namespace: str = "default") -> Json:
        """The object as JSON.

        Raises:
            KeyError: it does not exist.
        """
        return self._wire[resource.plural, _key(resource, name, namespace)]

    def put(self, resource: Resource[Any], wire: Json) -> None:
        """Creates or replaces the object, as another client."""
        meta = wire["metadata"]
        key = NamespacedName(meta.get("namespace", ""), meta["name"])
        self._store(resource, key, wire)

    def publish(self, *statuses: Json, node: str = "node-1") -> None:
        """The daemon of the node publishes the results of these pods, and of no others."""
        self.edit(NODE_POD_PROBES, node, {"status": {"podProbeStatuses": list(statuses)}})

    def edit(
        self,
        resource: Resource[Any],
        name: str,
        patch: Json,
        *,
        namespace: str = "default",
        manager: str = "kubectl",
    ) -> None:
        """Patches the object as another client (a strategic merge patch if it is a pod)."""
        key = _key(resource, name, namespace)
        live = self._wire[resource.plural, key]
        if resource is PODS:
            self._store(resource, key, patched_pod(live, patch, manager))
        else:
            self._store(resource, key, merge_patch(live, patch))

    def remove(self, resource: Resource[Any], name: str, namespace: str = "default") -> None:
        """Deletes the object as another client; finalizers delay this."""
        live = self.read(resource, name, namespace)
        deleting = merge_patch(live, {"metadata": {"deletionTimestamp": CREATED}})
        self._store(resource, _key(resource, name, namespace), deleting)

    async def get(self, resource: Resource[T], key: NamespacedName) -> T:
        self.before_read(key)
        wire = self.find(resource, key.name, key.namespace)
        await asyncio.sleep(self.read_seconds)
        if wire is None:
            raise NotFound(f"{resource.plural} {key.name} not found")
        return decoded(resource, wire)

    async def list_page(
        self, resource: Resource[T], *, namespace: str = "", continue_token: str = ""
    ) -> ListPage[T]:
        """All objects of a namespace, in one page."""
        self.before_read(NamespacedName(namespace, ""))
        items: list[T] = []
        for (plural, key), wire in self._wire.items():
            if plural == resource.plural and key.namespace == namespace:
                items.append(decoded(resource, wire))
        await asyncio.sleep(self.read_seconds)
        return ListPage(
            items,
            [],
            str(len(self.writes)),
            "",
        )

    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T:
        wire = msgspec.json.decode(body)
        if resource.plural == EVENTS.plural:
            self.events.append(recorded_event(wire))
            return resource.decode(body)
        key = NamespacedName(namespace, wire["metadata"]["name"])
        await self._admit(
            Write(
                "create",
                resource.kind,
                key,
                wire,
            )
        )
        if (resource.plural, key) in self._wire:
            raise AlreadyExists(f"{key} already exists")
        self._uids += 1
        age = timedelta(seconds=asyncio.get_running_loop().time())
        created = format_time(_NOW + age)
        wire["metadata"] |= {
            "uid": f"made-{self._uids}",
            "generation": 1,
            "creationTimestamp": created,
        }
        return self._store(resource, key, wire)

    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> T:
        if resource.plural == EVENTS.plural:
            raise NotFound("each occurrence is an event of its own here")
        patch = msgspec.json.decode(body)
        await self._admit(
            Write(
                "patch",
                resource.kind,
                key,
                patch,
                subresource,
            )
        )
        live = self._live(resource, key)
        named = {**live["metadata"], **patch.get("metadata", {})}
        if named["uid"] != live["metadata"]["uid"]:
            raise Invalid(f"{key} is invalid: metadata.uid: Invalid value: field is immutable")
        if named["resourceVersion"] != live["metadata"]["resourceVersion"]:
            raise Conflict(f"{key}: the object has been modified")
        if patch_type is PatchType.STRATEGIC_MERGE:
            new = patched_pod(live, patch, MANAGER_FIELD_MANAGER)
            self.mutate(new)
        else:
            new = merge_patch(live, patch)
        return self._store(resource, key, new)

    async def delete(self, resource: Resource[Any], key: NamespacedName, *, uid: str = "") -> None:
        await self._admit(
            Write(
                "delete",
                resource.kind,
                key,
                {},
            )
        )
        live = self._live(resource, key)
        if uid and uid != live["metadata"]["uid"]:
            raise Conflict(f"{key}: Precondition failed: UID")
        self.remove(resource, key.name, key.namespace)

    def _live(self, resource: Resource[Any], key: NamespacedName) -> Json:
        live = self._wire.get((resource.plural, key))
        if live is None:
            raise NotFound(f"{key} not found")
        return live

    async def _admit(self, write: Write) -> None:
        self.writes.append(write)
        await asyncio.sleep(self.latency_seconds.get(write.kind, LATENCY_SECONDS))
        self.before(write)

    def _store(self, resource: Resource[T], key: NamespacedName, wire: Json) -> T:
        wire = deepcopy(wire)
        meta = wire["metadata"]
        live = self._wire.get((resource.plural, key))
        source = self.sources[resource.plural]
        if resource.plural in _GENERATED:
            self.prune(wire)
            if live and _intent(live) != _intent(wire):
                meta["generation"] = live["metadata"]["generation"] + 1
        if live and meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self._wire[resource.plural, key]
            source.delete(key)
            return decoded(resource, wire)
        if live and _without_version(live) == _without_version(wire):
            return decoded(resource, live)
        stored: T = source.put(decoded(resource, wire))
        meta["resourceVersion"] = stored.resource_version
        self._wire[resource.plural, key] = wire
        return stored


def _key(resource: Resource[Any], name: str, namespace: str) -> NamespacedName:
    return NamespacedName(namespace if resource.namespaced else "", name)


def _intent(wire: Json) -> tuple[Any, bool]:
    return wire.get("spec"), "deletionTimestamp" in wire["metadata"]


def _without_version(wire: Json) -> Json:
    return wire | {"metadata": wire["metadata"] | {"resourceVersion": ""}}


def patched_pod(live: Json, patch: Json, manager: str) -> Json:
    """A strategic merge patch of any part of a pod, with managedFields, by the playground's API server."""
    live = {**live, "metadata": {"managedFields": [_FIELDS_OF_CREATOR], **live["metadata"]}}
    new = strategic_merge_patch(live, patch, _POD.schema)
    identifier = ManagerIdentifier(
        manager,
        "Update",
        "v1",
        "status",
    )
    track(
        live,
        new,
        _POD.schema,
        identifier,
        _NOW,
    )
    return new
