"""The manager's informers, caches and reconcilers in one process without an API server.

Lists are pages of bytes, so decoding is included. Each write is answered at once with the changed object. Each size runs
in a process of its own.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from support.hollow import ANNOTATION, LABEL, node_name, pod_ip, pod_name
from support.hollow import pod_object as hollow_pod

from benchmarks import hollow, procfs
from benchmarks.process import until_at_rest
from benchmarks.reporting import Row, emit, in_own_process, machine_speed
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
from kruise_probe.client.config import ClusterConfig
from kruise_probe.controllers.product import build
from kruise_probe.controllers.state import ManagerOptions
from kruise_probe.manager.manager import Manager
from kruise_probe.runtime.process import tune_garbage_collector
from kruise_probe.serving.health import Checks

T = TypeVar("T", bound=KubeObject)


class _Served(Generic[T]):
    """A ListerWatcher: pages of bytes once, then whatever `send` is given."""

    def __init__(
        self,
        resource: Resource[T],
        objects: list[bytes],
    ) -> None:
        self._resource = resource
        self._objects = objects
        self._events: asyncio.Queue[WatchEvent[T]] = asyncio.Queue()

    async def list_page(
        self, *, limit: int, continue_token: str, resource_version: str
    ) -> ListPage[T]:
        start = int(continue_token or 0)
        end = start + (limit or len(self._objects))
        page = (
            b'{"kind":"%sList","metadata":{"resourceVersion":"1","continue":"%s"},"items":[%s]}'
            % (
                self._resource.kind.encode(),
                str(end).encode() if end < len(self._objects) else b"",
                b",".join(self._objects[start:end]),
            )
        )
        await asyncio.sleep(0)
        return await run_steps(self._resource.decode_list(page))

    @asynccontextmanager
    async def watch(
        self, *, resource_version: str, timeout_seconds: int, send_initial_events: bool
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        if send_initial_events:
            raise error_of(422, Status(message="pages only"), request="watch")
        yield self._sent()

    async def _sent(self) -> AsyncIterator[WatchEvent[T]]:
        while True:
            yield await self._events.get()

    def send(self, kind: EventType, obj: T) -> None:
        self._events.put_nowait(WatchEvent(kind, obj, obj.resource_version))


class _Client:
    """Answers each write with the changed object."""

    def __init__(
        self, pods: dict[str, bytes], probes: _Served[Any], marker: dict[str, Any]
    ) -> None:
        self.writes: Counter[str] = Counter()
        self._pods = pods
        self._probes = probes
        self._marker = marker
        self._version = 10_000_000

    async def create(
        self,
        resource: Resource[Any],
        body: bytes,
        *,
        namespace: str = "",
    ) -> Any:
        self.writes[resource.plural] += 1
        wire = msgspec.json.decode(body)
        wire["metadata"] |= {
            "uid": wire["metadata"]["name"],
            **self._stamp(),
        }
        obj = resource.decode(msgspec.json.encode(wire))
        if resource is NODE_POD_PROBES:
            self._probes.send(EventType.ADDED, obj)
        await asyncio.sleep(0)
        return obj

    async def patch(self, resource: Any, key: NamespacedName, body: bytes, **_: Any) -> Any:
        self.writes[resource.plural] += 1
        await asyncio.sleep(0)
        patch = msgspec.json.decode(body)
        if resource is PODS:
            return PODS.decode(self._patched_pod(key.name, patch))
        self._marker["metadata"] |= patch.get("metadata", {}) | self._stamp()
        self._marker["status"] = patch.get("status", self._marker.get("status"))
        return resource.decode(msgspec.json.encode(self._marker))

    def _patched_pod(
        self,
        name: str,
        patch: dict[str, Any],
    ) -> bytes:
        pod = msgspec.json.decode(self._pods[name])
        for field in ("labels", "annotations"):
            pod["metadata"][field] |= patch["metadata"].get(field, {})
        pod["metadata"] |= self._stamp()
        conditions = {condition["type"]: condition for condition in pod["status"]["conditions"]}
        for condition in patch.get("status", {}).get("conditions", ()):
            conditions[condition["type"]] = conditions.get(condition["type"], {}) | condition
        pod["status"]["conditions"] = list(conditions.values())
        return msgspec.json.encode(pod)

    async def delete(
        self,
        resource: Resource[Any],
        key: NamespacedName,
        *,
        uid: str = "",
    ) -> None:
        self.writes[resource.plural] += 1

    def _stamp(self) -> dict[str, Any]:
        self._version += 1
        return {"resourceVersion": str(self._version), "generation": 1}


def _stored_pod() -> dict[str, Any]:
    """A pod with placeholders, as the API server stores it after the first results."""
    pod = hollow_pod(
        "@name@",
        node="@node@",
        ip="@ip@",
        at=hollow.STAMP,
        padding_bytes=2_000,
    )
    pod["metadata"] |= {
        "namespace": hollow.NAMESPACE,
        "uid": "@uid@",
        "resourceVersion": "@version@",
        "creationTimestamp": hollow.STAMP,
        "labels": {"app": "web", LABEL: "good"},
        "annotations": {ANNOTATION: "-1"},
        "managedFields": [
            {"manager": "kubelet", "operation": "Update", "fieldsV1": _fields(pod)},
        ],
    }
    pod["status"]["conditions"] += [
        {
            "type": hollow.condition_type(name),
            "status": "True",
            "lastProbeTime": hollow.STAMP,
            "lastTransitionTime": hollow.STAMP,
            "message": f"{name}: succeeded",
        }
        for name in hollow.PROBES
    ]
    return pod


def _fields(value: Any) -> dict[str, Any]:
    """Roughly the managedFields of an object."""
    if isinstance(value, dict):
        return {f"f:{key}": _fields(item) for key, item in value.items()}
    if isinstance(value, list):
        return {f"k:{number}": _fields(item) for number, item in enumerate(value)}
    return {}


def _pods(count: int, nodes: int) -> dict[str, bytes]:
    """Bytes of pods by name. To encode each would take longer than the benchmark."""
    pattern = msgspec.json.encode(_stored_pod())
    made: dict[str, bytes] = {}
    for number in range(count):
        name = pod_name(number)
        made[name] = (
            pattern.replace(b"@name@", name.encode())
            .replace(b"@uid@", f"6d1c0d3e-0000-4000-8000-{number:012d}".encode())
            .replace(b"@version@", b"%d" % (1_000_000 + number))
            .replace(b"@node@", node_name(number % nodes).encode())
            .replace(b"@ip@", pod_ip(number).encode())
        )
    return made


async def _one_size(nodes: int, pods: int) -> Row:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    marker = hollow.marker(period_seconds=10)
    marker["metadata"] |= {
        "namespace": hollow.NAMESPACE,
        "uid": "m",
        "resourceVersion": "5",
        "generation": 1,
    }
    pod_bytes = _pods(pods, nodes)
    node_bytes = [
        b'{"metadata":{"name":"%s","uid":"n%d","resourceVersion":"2"}}' % (node_name(n).encode(), n)
        for n in range(nodes)
    ]
    served: dict[Resource[Any], _Served[Any]] = {
        PODS: _Served(PODS, list(pod_bytes.values())),
        NODES: _Served(NODES, node_bytes),
        MARKERS: _Served(MARKERS, [msgspec.json.encode(marker)]),
        NODE_POD_PROBES: _Served(NODE_POD_PROBES, []),
        LEASES: _Served(LEASES, []),
    }
    tune_garbage_collector()
    before = procfs.resident_mb(os.getpid())

    client: Any = _Client(pod_bytes, served[NODE_POD_PROBES], marker)
    manager = Manager(
        ClusterConfig(server="http://127.0.0.1:1"),
        name="benchmark",
        ready=Checks(),
        source=lambda resource, namespace: served[resource],
        new_client=lambda **_: client,
    )
    informers = build(manager, ManagerOptions("kruise-system"))
    row: Row = {"benchmark": "scale", "nodes": nodes, "pods": pods}
    cpu = time.process_time()
    wall = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in (*manager.services, *informers)]
        for informer in informers:
            await informer.wait_for_sync()
        row["list_cpu_s"] = round(time.process_time() - cpu, 2)
        row["list_us_per_pod"] = round((time.process_time() - cpu) / pods * 1e6, 1)
        tasks.append(group.create_task(manager.lead()))
        await until(lambda: client.writes["nodepodprobes"] >= nodes)
        row["planned_wall_s"] = round(time.perf_counter() - wall, 2)
        _ = await until_at_rest(os.getpid(), seconds=1.0, give_up_seconds=60.0)
        row["planned_cpu_s"] = round(time.process_time() - cpu, 2)
        row["us_per_pod"] = round((time.process_time() - cpu) / pods * 1e6, 1)
        row["mb"] = round(procfs.resident_mb(os.getpid()) - before, 1)
        row["kb_per_pod"] = round(row["mb"] * 1024 / pods, 2)
        row["writes"] = dict(client.writes)
        for task in tasks:
            task.cancel()
    return row


async def until(holds: Callable[[], bool]) -> None:
    """Waits for something in this process: looks once in each pass of the loop."""
    seen = holds()
    while not seen:
        await asyncio.sleep(0)
        seen = holds()


async def measure(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    rows: list[Row] = [machine_speed()]
    emit(rows[0])
    for nodes, pods in sizes:
        rows.append(await in_own_process("benchmarks.scale", nodes, pods))
        emit(rows[-1])
    return rows


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_one_size(int(sys.argv[1]), int(sys.argv[2])))))
