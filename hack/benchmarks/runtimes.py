"""The controllers of docs/library.md beside the same ones in kopf, kr8s and lightkube, on a real API server.

The objects exist when a controller starts, so a figure is that of a start until the last object is reconciled, as a
watch shows it. CPU and requests are read when the controller has come to rest, so that late work counts too. The
libraries take turns for each controller, and begin with another one in each turn.

buckets: each Bucket gets a finalizer, a folder, an event and a status; then all are deleted.
fleets: each Fleet gets ten pods and a status.
node_load: nodes with pods of 5 KB and with Leases get two annotations each.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from support.control_plane import prepared
from support.library import MODULES
from support.programs import Program

from benchmarks import contenders, failing, hollow, procfs
from benchmarks.api import MERGE, WRITES, BareClient, BareRequest
from benchmarks.manager import CONNECTIONS, control_plane
from benchmarks.process import until_at_rest
from benchmarks.reporting import Row, emit, machine_speed, progress
from benchmarks.watching import Watched, WatchedObject
from kruise_probe import version
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.testing.definitions import read_definitions

PODS_PER_FLEET: Final = 10
REST_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 1800.0
"""On a busy machine a controller of 5,000 pods takes minutes."""

CUSTOM: Final = f"/apis/example.com/v1/namespaces/{hollow.NAMESPACE}"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODES: Final = "/api/v1/nodes"

_COUNTED: Final = {"buckets", "fleets", "pods", "nodes", "events"}
_encode = msgspec.json.encode


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line. Without `failing_seconds`, watches that fail are left out; without `turns`, all else."""

    libraries: tuple[str, ...]
    controllers: tuple[str, ...]
    buckets: int
    fleets: int
    nodes: int
    pods: int
    turns: int
    failing_seconds: float


async def measure(options: Options) -> tuple[list[list[Row]], list[Row]]:
    """The rows of each turn, and those of failing watches; each row is printed when it is measured."""
    emit(machine_speed())
    versions = {contenders.OURS: version.TEXT, **await asyncio.to_thread(contenders.versions)}
    for controller in options.controllers:
        for library in options.libraries:
            lines = contenders.contender(library, controller).lines
            emit(_row(library, controller, version=versions[library], lines=lines))
    turns: list[list[Row]] = []
    with tempfile.TemporaryDirectory(prefix="kp-bench-") as name:
        folder = Path(name)
        if options.turns:
            async with _comparison(options, folder) as comparison:
                for turn in range(options.turns):
                    progress(f"turn {turn + 1} of {options.turns}")
                    rows = [row async for row in comparison.turn(turn)]
                    turns.append(sorted(rows, key=_order))
        failed: list[Row] = []
        if options.failing_seconds:
            failed = await failing.measure(options.libraries, folder, options.failing_seconds)
    emit(machine_speed())
    return turns, failed


def _row(library: str, controller: str, **figures: Any) -> Row:
    return {"benchmark": "runtimes", "library": library, "controller": controller, **figures}


def _order(row: Row) -> tuple[int, str, int]:
    library = contenders.LIBRARIES.index(row["library"])
    return contenders.CONTROLLERS.index(row["controller"]), row["phase"], library


@asynccontextmanager
async def _comparison(options: Options, folder: Path) -> AsyncIterator["_Comparison"]:
    """A control plane with the nodes, pods and Leases of node_load."""
    plane = control_plane(folder)
    progress("starting a control plane")
    structs = (MODULES["buckets"].Bucket, MODULES["fleets"].Fleet)
    crds = [*all_crds(), *(crd for struct in structs for crd in read_definitions(struct))]
    with plane.running():
        async with (
            prepared(plane, hollow.NAMESPACE, crds=crds) as setup,
            BareClient(plane.config(), connections=CONNECTIONS) as api,
        ):
            per_node: dict[str, int] = {}
            if "node_load" in options.controllers:
                progress(f"creating {options.nodes} nodes and {options.pods} pods")
                pods_of = await hollow.create(setup, nodes=options.nodes, pods=options.pods)
                per_node = {node: len(pods) for node, pods in pods_of.items()}
                await api.each(
                    BareRequest("POST", LEASES, _encode(_lease(node))) for node in per_node
                )
            yield _Comparison(options, folder, api, plane.kubeconfig, per_node)


def _lease(node: str) -> dict[str, Any]:
    return {"metadata": {"name": node}, "spec": {"holderIdentity": node}}


class _Comparison:
    def __init__(
        self,
        options: Options,
        folder: Path,
        api: BareClient,
        kubeconfig: Path,
        per_node: dict[str, int],
    ) -> None:
        self._options = options
        self._folder = folder
        self._api = api
        self._kubeconfig = kubeconfig
        self._per_node = per_node
        self._turn = 0

    async def turn(self, turn: int) -> AsyncIterator[Row]:
        self._turn = turn
        by_name = {"buckets": self._buckets, "fleets": self._fleets, "node_load": self._node_load}
        libraries = self._options.libraries
        shift = turn % len(libraries)
        for controller in self._options.controllers:
            for library in (*libraries[shift:], *libraries[:shift]):
                progress(f"{controller} with {library}")
                async for row in by_name[controller](library):
                    row["turn"] = turn
                    emit(row)
                    yield row

    async def _buckets(self, library: str) -> AsyncIterator[Row]:
        path = f"{CUSTOM}/buckets"
        names = await self._create(path, "Bucket", self._options.buckets, {})
        async with self._watched(path) as buckets, self._program(library, "buckets") as program:
            yield await self._phase(program, "start", library, lambda: _ready(buckets, names))

            async def delete() -> float:
                await self._api.call(BareRequest("DELETE", path))
                return await buckets.until(
                    lambda _: False, of=names, gone_too=True, seconds=PATIENCE_SECONDS
                )

            yield await self._phase(program, "deletion", library, delete)

    async def _fleets(self, library: str) -> AsyncIterator[Row]:
        path = f"{CUSTOM}/fleets"
        spec = {"replicas": PODS_PER_FLEET, "image": "nginx"}
        names = await self._create(path, "Fleet", self._options.fleets, spec)
        hollow_pods = sum(self._per_node.values())
        async with self._watched(path) as fleets, self._program(library, "fleets") as program:

            def scaled() -> Awaitable[float]:
                return fleets.until(
                    lambda each: each.status.get("replicas") == PODS_PER_FLEET,
                    of=names,
                    seconds=PATIENCE_SECONDS,
                )

            row = await self._phase(program, "start", library, scaled)
            row["pods"] = await self._count(hollow.PODS_PATH) - hollow_pods
            yield row
        await self._api.call(BareRequest("DELETE", path))
        await self._delete_fleet_pods(hollow_pods)

    async def _node_load(self, library: str) -> AsyncIterator[Row]:
        reset = {f"example.com/{name}": None for name in ("pods", "leased")}
        body = _encode({"metadata": {"annotations": reset}})
        await self._api.each(
            BareRequest("PATCH", f"{NODES}/{node}", body, MERGE) for node in self._per_node
        )
        async with self._watched(NODES) as nodes, self._program(library, "node_load") as program:

            def shown(node: WatchedObject) -> bool:
                found = node.metadata.annotations
                count = str(self._per_node[node.metadata.name])
                return (found.get("example.com/pods"), found.get("example.com/leased")) == (
                    count,
                    "True",
                )

            yield await self._phase(
                program,
                "start",
                library,
                lambda: nodes.until(shown, of=set(self._per_node), seconds=PATIENCE_SECONDS),
            )

    async def _phase(
        self, program: Program, phase: str, library: str, reach: Callable[[], Awaitable[float]]
    ) -> Row:
        """Requests are those of everybody on the counted resources: nothing else writes them meanwhile."""
        loop, pid = asyncio.get_running_loop(), program.process.pid
        before = await self._api.usage((*WRITES, "GET", "LIST"))
        used = procfs.cpu_seconds(pid) if phase != "start" else 0.0
        procfs.reset_peak(pid)
        began_at = loop.time()
        reached_at = await reach()
        await until_at_rest(pid, seconds=2.0, give_up_seconds=REST_SECONDS)
        cpu = procfs.cpu_seconds(pid) - used
        after = await self._api.usage((*WRITES, "GET", "LIST"))
        return _row(
            library,
            program.name.removeprefix(f"{library}-"),
            phase=phase,
            wall_s=round(reached_at - began_at, 2),
            cpu_s=round(cpu, 2),
            peak_mb=round(procfs.peak_resident_mb(pid), 1),
            apiserver_cpu_s=round(after.cpu_seconds - before.cpu_seconds, 2),
            requests=_counted(after.writes - before.writes),
        )

    @asynccontextmanager
    async def _program(self, library: str, controller: str) -> AsyncIterator[Program]:
        contender = contenders.contender(library, controller)
        folder = self._folder / f"{library}-{controller}-{self._turn}"
        async with contenders.running_contender(contender, self._kubeconfig, folder) as program:
            try:
                yield program
            except TimeoutError as error:
                error.add_note(f"the end of the log of {program.name}:\n{program.tail()}")
                raise

    @asynccontextmanager
    async def _watched(self, path: str) -> AsyncIterator[Watched[WatchedObject]]:
        watched = Watched(self._api, path, WatchedObject)
        task = asyncio.create_task(watched.run())
        try:
            yield watched
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _create(self, path: str, kind: str, count: int, spec: dict[str, Any]) -> set[str]:
        names = [f"{kind.lower()}-{number}" for number in range(count)]
        bodies = (
            {
                "apiVersion": "example.com/v1",
                "kind": kind,
                "metadata": {"name": name},
                "spec": spec,
            }
            for name in names
        )
        await self._api.each(BareRequest("POST", path, _encode(body)) for body in bodies)
        return set(names)

    async def _count(self, path: str) -> int:
        found = await self._api.json("GET", f"{path}?limit=1")
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    async def _delete_fleet_pods(self, left: int) -> None:
        """The garbage collector of Kubernetes deletes 20 objects in a second."""
        path = f"{hollow.PODS_PATH}?fieldSelector=spec.nodeName=&gracePeriodSeconds=0"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._count(hollow.PODS_PATH) > left:
                await self._api.call(BareRequest("DELETE", path))


async def _ready(buckets: Watched[WatchedObject], names: set[str]) -> float:
    def ready(bucket: WatchedObject) -> bool:
        return any(
            (each["type"], each["status"]) == ("Ready", "True")
            for each in bucket.status.get("conditions", ())
        )

    return await buckets.until(ready, of=names, seconds=PATIENCE_SECONDS)


def _counted(requests: Counter[str]) -> dict[str, int]:
    return {
        name: count
        for name, count in sorted(requests.items())
        if count and name.split()[1].split("/")[0] in _COUNTED
    }
