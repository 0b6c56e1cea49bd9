"""The product in this process without an API server: steps of the event loop by CPU time, and calls of the product's functions."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Generic, TypeVar

import msgspec
import pytest
from support.builders import lease_wire, owned_fields
from support.running_manager import leading
from support.wire import Json, decoded

from kruise_probe.api.errors import Status, error_of
from kruise_probe.api.meta import (
    EventType,
    KubeObject,
    ListPage,
    NamespacedName,
    Resource,
    WatchEvent,
    run_steps,
)
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_micro_time, utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.controllers.product import build
from kruise_probe.controllers.state import ManagerOptions
from kruise_probe.manager.manager import Manager
from kruise_probe.serving.health import Checks

T = TypeVar("T", bound=KubeObject)

PRODUCT = ("/kruise_probe/controllers/", "/kruise_probe/api/labels.py")
"""Where calls are counted: decisions, and the selectors that they match."""


class Served(Generic[T]):
    """A ListerWatcher of the objects that `put` was given."""

    def __init__(self, resource: Resource[T], steps: "Steps") -> None:
        self.resource = resource
        self._steps = steps
        self.wires: dict[NamespacedName, Json] = {}
        self._events: asyncio.Queue[WatchEvent[T]] | None = None
        self._version = 100

    async def list_page(
        self, *, limit: int, continue_token: str, resource_version: str
    ) -> ListPage[T]:
        with self._steps.fake():
            page = {
                "kind": f"{self.resource.kind}List",
                "metadata": {"resourceVersion": "1"},
                "items": list(self.wires.values()),
            }
            body = msgspec.json.encode(page)
        self._events = asyncio.Queue()
        await asyncio.sleep(0)
        return await run_steps(self.resource.decode_list(body))

    @asynccontextmanager
    async def watch(
        self,
        *,
        resource_version: str,
        timeout_seconds: int,
        send_initial_events: bool,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        if send_initial_events:
            raise error_of(422, Status(message="pages only"), request="watch")
        yield self._sent()

    async def _sent(self) -> AsyncIterator[WatchEvent[T]]:
        assert self._events
        while True:
            yield await self._events.get()

    def put(self, wire: Json) -> T:
        """Create or replace an object, and send its event."""
        meta = wire["metadata"]
        key = NamespacedName(meta.get("namespace", ""), meta["name"])
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            return self.delete(key)
        self.wires[key] = wire
        return self._send(EventType.MODIFIED, wire)

    def delete(self, key: NamespacedName) -> T:
        return self._send(EventType.DELETED, self.wires.pop(key))

    def _send(self, kind: EventType, wire: Json) -> T:
        self._version += 1
        wire["metadata"]["resourceVersion"] = str(self._version)
        obj = decoded(self.resource, wire)
        if self._events:
            self._events.put_nowait(WatchEvent(kind, obj, obj.resource_version))
        return obj


class Steps:
    """The CPU time of each step of the event loop, without the work of the fakes.

    Attributes:
        longest_seconds: of a step, while `measured`.
        total_seconds: of all steps, while `measured`.
    """

    def __init__(self) -> None:
        self.longest_seconds = self.total_seconds = 0.0
        self.where = ""
        self._of_fakes = 0.0

    @contextmanager
    def fake(self) -> Iterator[None]:
        """Work that does not count."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._of_fakes += time.thread_time() - began

    @contextmanager
    def measured(self) -> Iterator[None]:
        self.longest_seconds = self.total_seconds = 0.0
        run = asyncio.Handle._run

        def step(handle: asyncio.Handle) -> None:
            self._of_fakes = 0.0
            began = time.thread_time()
            run(handle)
            seconds = time.thread_time() - began - self._of_fakes
            self.total_seconds += seconds
            if seconds > self.longest_seconds:
                self.longest_seconds = seconds
                self.where = repr(handle)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", step)
            yield


class Cluster:
    """The objects, and a client that answers each write at once with the changed object.

    Attributes:
        writes: by kind.
    """

    def __init__(self) -> None:
        kinds: tuple[Resource[Any], ...] = (PODS, MARKERS, NODES, NODE_POD_PROBES, LEASES)
        self.steps = Steps()
        self.served: dict[str, Served[Any]] = {
            kind.plural: Served(kind, self.steps) for kind in kinds
        }
        self.writes: Counter[str] = Counter()

    def put(self, resource: Resource[Any], wire: Json) -> None:
        with self.steps.fake():
            self.served[resource.plural].put(wire)

    def remove(self, resource: Resource[Any], name: str, namespace: str = "") -> None:
        """Delete an object as another client; finalizers delay this."""
        key = NamespacedName(namespace, name)
        served = self.served[resource.plural]
        wire = served.wires[key]
        with self.steps.fake():
            if wire["metadata"].get("finalizers"):
                wire["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                served.put(wire)
            else:
                served.delete(key)

    async def get(self, resource: Resource[T], key: NamespacedName) -> T:
        """A Lease that its daemon has just renewed."""
        assert resource.plural == LEASES.plural
        with self.steps.fake():
            wire = lease_wire(name=key.name, renewed=format_micro_time(utc_now()))
            return decoded(resource, wire)

    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T:
        await self._begin(resource)
        with self.steps.fake():
            wire = msgspec.json.decode(body)
            wire["metadata"] |= {"uid": f"uid-{wire['metadata']['name']}", "generation": 1}
            served: Served[T] | None = self.served.get(resource.plural)
            if served is None:  # an event
                return resource.decode(body)
            return served.put(wire)

    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        **_: Any,
    ) -> T:
        await self._begin(resource)
        with self.steps.fake():
            served: Served[T] = self.served[resource.plural]
            wire = served.wires[key]
            patch = msgspec.json.decode(body)
            if resource.plural == PODS.plural:
                _patch_pod(wire, patch)
            else:
                for part in ("metadata", "spec", "status"):
                    wire[part] = wire.get(part, {}) | patch.get(part, {})
            return served.put(wire)

    async def delete(self, resource: Resource[Any], key: NamespacedName, *, uid: str = "") -> None:
        await self._begin(resource)
        self.remove(resource, key.name, key.namespace)

    async def _begin(self, resource: Resource[Any]) -> None:
        self.writes[resource.kind] += 1
        await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[None]:
        """A manager that leads."""
        client: Any = self
        manager = Manager(
            ClusterConfig(server="http://127.0.0.1:1"),
            name="kruise-probe-manager",
            ready=Checks(),
            source=lambda resource, _: self.served[resource.plural],
            new_client=lambda **_: client,
        )
        build(manager, ManagerOptions("kruise-system", **options))
        async with leading(manager):
            yield


def _patch_pod(wire: Json, patch: Json) -> None:
    meta = wire["metadata"]
    status = wire["status"]
    ours: dict[str, set[str]] = meta.setdefault("x-ours", {"labels": set(), "annotations": set()})
    for field, names in ours.items():
        meta[field] = dict(meta.get(field, {}))
        for key, value in patch["metadata"].get(field, {}).items():
            if value is None:
                meta[field].pop(key, None)
                names.discard(key)
            else:
                meta[field][key] = value
                names.add(key)
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    for change in patch.get("status", {}).get("conditions", ()):
        kind = change["type"]
        if change.get("$patch"):
            conditions.pop(kind, None)
        else:
            conditions[kind] = {**conditions.get(kind, {}), **change, "ours": True}
    status["conditions"] = list(conditions.values())
    written = sorted(kind for kind, condition in conditions.items() if condition.get("ours"))
    meta["managedFields"] = [owned_fields(**ours, conditions=written)]


class Calls:
    """How often each function of PRODUCT is called while `counted`.

    Attributes:
        total: of all functions.
        most_in_a_step: of the event loop.
    """

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.total = self.most_in_a_step = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.of.clear()
        self.total = self.most_in_a_step = 0
        run = asyncio.Handle._run

        def profile(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and any(part in frame.f_code.co_filename for part in PRODUCT):
                self.of[frame.f_code.co_qualname] += 1
                self.total += 1

        def step(handle: asyncio.Handle) -> None:
            before = self.total
            run(handle)
            self.most_in_a_step = max(self.most_in_a_step, self.total - before)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", step)
            sys.setprofile(profile)
            try:
                yield
            finally:
                sys.setprofile(None)
