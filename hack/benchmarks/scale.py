"""The manager's informers, caches and reconcilers on as many pods as wanted, in one process and without an API server.

Lists are served as bytes, page by page, so decoding is included; writes are answered at once by what they ask for.
Every size runs in a process of its own.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from benchmarks import hollow, machine, procfs
from benchmarks.decode import stored_pod
from benchmarks.reporting import Row, emit, interpreter
from kruise_probe.api.errors import Status, error_of
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import (
    LEASES,
    MARKERS,
    NODE_POD_PROBES,
    NODES,
    PODS,
    EventType,
    KubeObject,
    ListPage,
    Resource,
    WatchEvent,
)
from kruise_probe.api.times import utc_now
from kruise_probe.cli.process import tune_garbage_collector
from kruise_probe.client.request import PatchType
from kruise_probe.controllers.caches import BY_NODE, Informers
from kruise_probe.controllers.product import Options, build_over
from kruise_probe.informers.shared_informer import SharedInformer

T = TypeVar("T", bound=KubeObject)

QUIET_SECONDS = 1.0
STALL_LOOK_SECONDS = 0.005


class _Served(Generic[T]):
    """A ListerWatcher: pages of bytes once, then whatever `tell` is given."""

    def __init__(self, resource: Resource[T], objects: list[bytes]) -> None:
        self._resource = resource
        self._objects = objects
        self._events: asyncio.Queue[WatchEvent[T]] = asyncio.Queue()

    async def list_page(
        self, *, limit: int, continue_token: str, resource_version: str
    ) -> ListPage[T]:
        start = int(continue_token or 0)
        end = start + (limit or len(self._objects))
        page = b'{"metadata":{"resourceVersion":"1","continue":"%s"},"items":[%s]}' % (
            str(end).encode() if end < len(self._objects) else b"",
            b",".join(self._objects[start:end]),
        )
        await asyncio.sleep(0)
        return self._resource.decode_list(page)

    @asynccontextmanager
    async def watch(
        self, *, resource_version: str, timeout_seconds: int, send_initial_events: bool
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        if send_initial_events:
            raise error_of(422, Status(message="pages only"), request="watch")
        yield self._told()

    async def _told(self) -> AsyncIterator[WatchEvent[T]]:
        while True:
            yield await self._events.get()

    def tell(self, kind: EventType, obj: T) -> None:
        self._events.put_nowait(WatchEvent(kind, obj, obj.resource_version))


class _Writer:
    """Answers each write with what it asks for."""

    def __init__(
        self, pods: dict[str, bytes], probes: _Served[Any], marker: dict[str, Any]
    ) -> None:
        self.writes: dict[str, int] = {}
        self._pods = pods
        self._probes = probes
        self._marker = marker
        self._version = 10_000_000

    async def create(self, resource: Resource[Any], body: bytes, *, namespace: str = "") -> Any:
        self._count(resource)
        wire = msgspec.json.decode(body)
        wire["metadata"] |= {"uid": wire["metadata"]["name"], **self._stamp()}
        obj = resource.decode(msgspec.json.encode(wire))
        if resource is NODE_POD_PROBES:
            self._probes.tell(EventType.ADDED, obj)
        await asyncio.sleep(0)
        return obj

    async def patch(
        self,
        resource: Resource[Any],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Any:
        self._count(resource)
        await asyncio.sleep(0)
        patch = msgspec.json.decode(body)
        if resource is PODS:
            return PODS.decode(self._patched_pod(key.name, patch))
        self._marker["metadata"] |= patch.get("metadata", {}) | self._stamp()
        self._marker["status"] = patch.get("status", self._marker.get("status"))
        return resource.decode(msgspec.json.encode(self._marker))

    def _patched_pod(self, name: str, patch: dict[str, Any]) -> bytes:
        pod = msgspec.json.decode(self._pods[name])
        for field in ("labels", "annotations"):
            pod["metadata"][field] |= patch["metadata"].get(field, {})
        pod["metadata"] |= self._stamp()
        conditions = {each["type"]: each for each in pod["status"]["conditions"]}
        for each in patch.get("status", {}).get("conditions", ()):
            conditions[each["type"]] = conditions.get(each["type"], {}) | each
        pod["status"]["conditions"] = list(conditions.values())
        return msgspec.json.encode(pod)

    async def delete(self, resource: Resource[Any], key: NamespacedName, *, uid: str = "") -> None:
        self._count(resource)

    def _count(self, resource: Resource[Any]) -> None:
        self.writes[resource.plural] = self.writes.get(resource.plural, 0) + 1

    def _stamp(self) -> dict[str, Any]:
        self._version += 1
        return {"resourceVersion": str(self._version), "generation": 1}


class _NoEvents:
    def event(self, pod: object, type: str, reason: str, message: str) -> None: ...


def _pods(count: int, nodes: int) -> dict[str, bytes]:
    """Bytes of pods by name; made from one encoded pod, as encoding each would take longer than the benchmark."""
    pattern = msgspec.json.encode(stored_pod(0, nodes))
    made: dict[str, bytes] = {}
    first = stored_pod(0, nodes)["metadata"]
    for number in range(count):
        name = hollow.pod_name(number)
        made[name] = (
            pattern.replace(first["name"].encode(), name.encode())
            .replace(first["uid"].encode(), f"6d1c0d3e-0000-4000-8000-{number:012d}".encode())
            .replace(
                b'"resourceVersion":"1000000"', b'"resourceVersion":"%d"' % (1_000_000 + number)
            )
            .replace(b"bench-node-00000", hollow.node_name(number % nodes).encode())
            .replace(hollow.pod_ip(0).encode(), hollow.pod_ip(number).encode())
        )
    return made


async def _one_size(nodes: int, pods: int) -> Row:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    marker = hollow.marker(period_seconds=10)
    marker["metadata"] |= {"uid": "m", "resourceVersion": "5", "generation": 1}
    pod_bytes = _pods(pods, nodes)
    node_bytes = [
        b'{"metadata":{"name":"%s","uid":"n%d","resourceVersion":"2"}}'
        % (hollow.node_name(n).encode(), n)
        for n in range(nodes)
    ]
    served = {
        PODS: _Served(PODS, list(pod_bytes.values())),
        NODES: _Served(NODES, node_bytes),
        MARKERS: _Served(MARKERS, [msgspec.json.encode(marker)]),
        NODE_POD_PROBES: _Served(NODE_POD_PROBES, []),
        LEASES: _Served(LEASES, []),
    }
    tune_garbage_collector()
    before = procfs.resident_mb(os.getpid())

    def informer(resource: Resource[Any]) -> SharedInformer[Any]:
        by_node = {BY_NODE: lambda pod: (pod.node,)} if resource is PODS else None
        return SharedInformer(served[resource], name=resource.plural, indexers=by_node)

    informers = Informers(*(map(informer, (MARKERS, PODS, NODES, NODE_POD_PROBES, LEASES))))
    writer = _Writer(pod_bytes, served[NODE_POD_PROBES], marker)
    product = build_over(informers, writer, _NoEvents(), Options("kruise-system"), now=utc_now)
    row: Row = {"benchmark": "scale", "nodes": nodes, "pods": pods}
    cpu, wall = time.process_time(), time.perf_counter()
    stalls = _Stalls()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in (stalls, *informers)]
        for each in informers:
            await each.wait_for_sync()
        row["list_cpu_s"] = round(time.process_time() - cpu, 2)
        row["list_us_per_pod"] = round((time.process_time() - cpu) / pods * 1e6, 1)
        tasks += [group.create_task(each.run()) for each in product.controllers]
        await _until(lambda: writer.writes.get("nodepodprobes", 0) >= nodes)
        row["planned_wall_s"] = round(time.perf_counter() - wall, 2)
        await _quiet()
        row["planned_cpu_s"] = round(time.process_time() - cpu, 2)
        row["us_per_pod"] = round((time.process_time() - cpu) / pods * 1e6, 1)
        row["mb"] = round(procfs.resident_mb(os.getpid()) - before, 1)
        row["kb_per_pod"] = round(row["mb"] * 1024 / pods, 2)
        row["writes"] = dict(writer.writes)
        row["longest_stall_ms"] = round(stalls.longest_seconds * 1000, 1)
        row |= await _one_flip(informers, writer, served[NODE_POD_PROBES])
        for task in tasks:
            task.cancel()
    row["python"] = interpreter()
    return row


class _Stalls:
    """The most CPU time that anything took without handing the loop on: what others had to wait for."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0

    async def run(self) -> None:
        while True:
            used = time.process_time()
            await asyncio.sleep(STALL_LOOK_SECONDS)
            self.longest_seconds = max(self.longest_seconds, time.process_time() - used)


async def _until(holds: Callable[[], bool]) -> None:
    """Looks once in each turn of the loop: what is waited for happens in this process."""
    seen = holds()
    while not seen:
        await asyncio.sleep(0)
        seen = holds()


async def _quiet() -> None:
    """Until this process has done next to nothing for a while."""
    idle = False
    while not idle:
        used = time.process_time()
        await asyncio.sleep(QUIET_SECONDS)
        idle = time.process_time() - used < 0.03


async def _one_flip(informers: Informers, writer: _Writer, probes: _Served[Any]) -> Row:
    """One result of one pod changes: what is written, and how long until it is."""
    node = hollow.node_name(0)
    stored = informers.node_pod_probes.indexer.get(NamespacedName("", node))
    assert stored is not None, "every node was planned"
    wire = msgspec.json.decode(msgspec.json.encode(stored))
    pods = [(each["name"], each["uid"]) for each in wire["spec"]["podProbes"]]
    writer.writes.clear()

    def tell(failed: set[str], version: str) -> None:
        status = msgspec.json.decode(hollow.mixed_results(node, pods, failed).body)["status"]
        wire["metadata"]["resourceVersion"] = version
        changed = NODE_POD_PROBES.decode(msgspec.json.encode(wire | {"status": status}))
        probes.tell(EventType.MODIFIED, changed)

    tell(set(), "20000000")  # what the pods show already: nothing is written
    await _quiet()
    started_at = time.perf_counter()
    tell({pods[0][0]}, "20000001")
    await _until(lambda: bool(writer.writes.get("pods")))
    took = time.perf_counter() - started_at
    await _quiet()
    return {"flip_ms": round(took * 1000, 2), "pod_writes_per_flip": writer.writes["pods"]}


async def measure(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    rows: list[Row] = [machine.speed()]
    emit(rows[0])
    for nodes, pods in sizes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.scale",
            str(nodes),
            str(pods),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        rows.append(msgspec.json.decode(output))
        emit(rows[-1])
    return rows


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_one_size(int(sys.argv[1]), int(sys.argv[2])))))
