"""A daemon at work on real containers. Its NodePodProbe is on a control plane of the benchmark's own.

So a manager and a daemon in the cluster are not disturbed and do not disturb. The pods share the host's network and
sleep. The probes connect to servers of the benchmark, which note the time; exec probes run `true` in the containers.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import msgspec
from support.control_plane import prepared
from support.hollow import Hollow, spec_entry
from support.raw_api import node_pod_probe_path

from benchmarks import hollow, procfs
from benchmarks.api import MERGE, BareClient, BareRequest, Refused
from benchmarks.manager import control_plane
from benchmarks.process import Launcher, Measured
from benchmarks.reporting import Row, emit, interpreter, machine_speed, percentile, progress
from benchmarks.targets import doors, pages
from kruise_probe.client.config import load_config
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import ContainerState

NODE = "kruise-probe-bench"
IMAGE = "kruise-probe-test:busybox"
START_SECONDS = 300.0
END_SECONDS = 60.0
WARM_UP_SECONDS = 3.0
PERIOD_SECONDS = 1

EXEC_TURNS = 6

FLIP_STEP = 0.33
"""Part of a period between two flips, so that flips are spread evenly over the period."""

LOADS = ("mixed", "exec", "flips", "tcp")

OURS = (
    f"{sys.executable} -m kruise_probe daemon --kubeconfig {{kubeconfig}} --node-name {{node}} "
    "--cri-endpoint unix://{socket} --addr 127.0.0.1:{health}"
)


@dataclass(frozen=True, kw_only=True)
class DaemonBench:
    """The command line. `kubeconfig` is the cluster of the pods, `socket` its node's runtime."""

    command: str
    ready: str
    label: str
    kubeconfig: str
    socket: str
    pods: int
    seconds: float
    image: str
    in_pod: bool
    loads: tuple[str, ...]
    tcp_rates: tuple[int, ...]


class _ProbedPod(NamedTuple):
    name: str
    uid: str
    container_id: str


class ProbeEntry(NamedTuple):
    """A probe: which pod, its name, and the wire form of its handler."""

    pod: int
    name: str
    handler: dict[str, Any]


async def measure(options: DaemonBench) -> list[Row]:
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        emit(row)

    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        add(machine_speed())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kp-bench-")))
        plane = control_plane(folder)
        stack.enter_context(plane.running())
        setup = await enter(prepared(plane, hollow.NAMESPACE))
        await Hollow(setup).add_node_pod_probe(NODE)
        api = await enter(BareClient(plane.config(), connections=8))
        cluster = await enter(BareClient(load_config(options.kubeconfig), connections=8))
        runtime = await enter(GrpcRuntime(f"unix://{options.socket}"))
        pods = await enter(_running_pods(cluster, runtime, options))
        host = await _host(cluster)
        launcher = Launcher(plane, setup, folder, as_pod=options.in_pod)
        await _Run(options, launcher, api, runtime, pods, host, add).all_phases()
        add(machine_speed())
    return rows


@asynccontextmanager
async def _running_pods(
    cluster: BareClient, runtime: GrpcRuntime, options: DaemonBench
) -> AsyncIterator[list[_ProbedPod]]:
    """Pods in the host's network that sleep; deleted after the block."""
    progress(f"creating {options.pods} pods")
    namespace = f"/api/v1/namespaces/{hollow.NAMESPACE}"
    await cluster.json(
        "POST", "/api/v1/namespaces", {"metadata": {"name": hollow.NAMESPACE}}, fine=(409,)
    )
    try:
        for number in range(options.pods):
            await _create_pod(cluster, _sleeper(number, options.image))
        yield await _containers(runtime, options.pods)
    finally:
        await cluster.call(BareRequest("DELETE", f"{namespace}/pods?gracePeriodSeconds=0"))
        await cluster.call(BareRequest("DELETE", namespace), fine=(404, 409))
        await _until_gone(cluster, namespace)


async def _until_gone(cluster: BareClient, path: str) -> None:
    async with asyncio.timeout(END_SECONDS):
        while True:
            if b'"reason":"NotFound"' in await cluster.call(BareRequest("GET", path), fine=(404,)):
                return
            await asyncio.sleep(0.5)


async def _host(cluster: BareClient) -> str:
    """The node's address: the only one at which pods in the host's network are probed."""
    listed = await cluster.json("GET", hollow.PODS_PATH)
    host: str = listed["items"][0]["status"]["hostIP"]
    return host


async def _create_pod(cluster: BareClient, pod: dict[str, Any]) -> None:
    """A new namespace has no service account at first."""
    for _ in range(50):
        try:
            await cluster.json("POST", hollow.PODS_PATH, pod, fine=(409,))
            return
        except Refused as refusal:
            if refusal.status != 403:
                raise
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{hollow.PODS_PATH}: pods are refused; does a controller manager run?")


def _sleeper(number: int, image: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"bench-{number}"},
        "spec": {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "100000"],
                }
            ],
        },
    }


async def _containers(runtime: GrpcRuntime, count: int) -> list[_ProbedPod]:
    async with asyncio.timeout(START_SECONDS):
        while True:
            found = [
                _ProbedPod(each.pod_name, each.pod_uid, each.id)
                for each in await runtime.list_containers()
                if each.pod_namespace == hollow.NAMESPACE and each.state is ContainerState.RUNNING
            ]
            if len(found) >= count:
                return sorted(found)
            await asyncio.sleep(0.5)


class _Run:
    """The phases of one run."""

    def __init__(
        self,
        options: DaemonBench,
        launcher: Launcher,
        api: BareClient,
        runtime: GrpcRuntime,
        pods: list[_ProbedPod],
        host: str,
        add: Callable[[Row], None],
    ) -> None:
        self._options = options
        self._launcher = launcher
        self._api = api
        self._runtime = runtime
        self._pods = pods
        self._host = host
        self._add = add
        self._containerd = procfs.listener_pid(options.socket)
        self._containerd_share = 0.0

    async def all_phases(self) -> None:
        used = procfs.cpu_seconds(self._containerd)
        await asyncio.sleep(self._options.seconds)
        used = procfs.cpu_seconds(self._containerd) - used
        self._containerd_share = used / self._options.seconds
        self._add(self._row("no daemon", None, self._options.seconds, used, 0.0))
        async with self._daemon() as daemon:
            await self._load(daemon, "idle", [], per_second=0)
            runs: dict[str, Callable[[], Awaitable[None]]] = {
                "mixed": lambda: self._tcp_and_http(daemon, 300),
                "exec": lambda: self._exec(daemon, 15),
                "flips": lambda: self._flips(daemon, 100),
                "tcp": lambda: self._tcp_at_rates(daemon),
            }
            for name, run in runs.items():
                if name in self._options.loads:
                    await run()

    def _daemon(self) -> AbstractAsyncContextManager[Measured]:
        options = self._options
        return self._launcher.running(
            "daemon", options.command, options.ready, node=NODE, socket=options.socket
        )

    async def _write_spec(self, entries: list[ProbeEntry]) -> None:
        """Writes the spec, in place of a manager."""
        by_pod: dict[int, list[ProbeEntry]] = {}
        for entry in entries:
            by_pod.setdefault(entry.pod % len(self._pods), []).append(entry)
        numbers = {"periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 1}
        pod_probes = []
        for number, listed in by_pod.items():
            probes = [
                {
                    "name": f"bench#{each.name}",
                    "containerName": "main",
                    "probe": each.handler | numbers,
                }
                for each in listed
            ]
            pod = self._pods[number]
            namespace = hollow.NAMESPACE
            found = spec_entry(pod.name, pod.uid, probes, namespace=namespace, ip=self._host)
            pod_probes.append(found)
        body = msgspec.json.encode({"spec": {"podProbes": pod_probes or None}})
        path = f"{node_pod_probe_path(NODE)}?fieldManager=kruise-probe-manager"
        await self._api.call(BareRequest("PATCH", path, body, MERGE))

    async def _load(
        self,
        daemon: Measured,
        phase: str,
        entries: list[ProbeEntry],
        *,
        per_second: float,
        more: Callable[[], dict[str, Any]] = dict,
        started: Callable[[], None] = lambda: None,
    ) -> Row:
        """Measures one steady load after a warm-up."""
        await self._write_spec(entries)
        await asyncio.sleep(WARM_UP_SECONDS)
        daemon.lap()
        started()
        machine_before = procfs.machine_cpu_seconds()
        containerd_before = procfs.cpu_seconds(self._containerd)
        await asyncio.sleep(self._options.seconds)
        seconds = self._options.seconds
        containerd = procfs.cpu_seconds(self._containerd) - containerd_before
        machine_cpu = procfs.machine_cpu_seconds() - machine_before
        row = self._row(phase, daemon, seconds, containerd, machine_cpu)
        if per_second:
            above_idle = containerd - self._containerd_share * seconds
            spent = daemon.cpu_seconds + max(above_idle, 0.0)
            row["cpu_ms_per_probe"] = round(spent / (per_second * seconds) * 1000, 3)
        row |= more()
        self._add(row)
        await self._write_spec([])
        return row

    def _row(
        self,
        phase: str,
        daemon: Measured | None,
        seconds: float,
        containerd: float,
        machine_cpu: float,
    ) -> Row:
        return {
            "benchmark": "daemon",
            "label": self._options.label,
            "phase": phase,
            "daemon_percent": round(daemon.cpu_seconds / seconds * 100, 2) if daemon else None,
            "containerd_percent": round(containerd / seconds * 100, 2),
            "rss_mb": round(daemon.peak_mb, 1) if daemon else None,
            "machine_percent": round(machine_cpu / seconds / (os.cpu_count() or 1) * 100, 1)
            if machine_cpu
            else None,
            "python": interpreter(),
        }

    async def _tcp_and_http(self, daemon: Measured, count: int) -> None:
        async with (
            doors(self._host, count // 2) as open_doors,
            pages(self._host) as site,
        ):
            tcp = [
                ProbeEntry(n, f"tcp-{n}", {"tcpSocket": {"port": port}})
                for n, port in enumerate(open_doors.ports)
            ]
            http = [
                ProbeEntry(
                    n,
                    f"http-{n}",
                    {"httpGet": {"port": site.port, "path": f"/{n}", "scheme": "HTTP"}},
                )
                for n in range(count - len(tcp))
            ]
            await self._load(daemon, f"{count} tcp and http a second", tcp + http, per_second=count)

    async def _tcp_at_rates(self, daemon: Measured) -> None:
        for rate in self._options.tcp_rates:
            await self._tcp(daemon, rate)

    async def _tcp(self, daemon: Measured, count: int) -> None:
        async with doors(self._host, count) as open_doors:
            entries = [
                ProbeEntry(n, f"tcp-{n}", {"tcpSocket": {"port": port}})
                for n, port in enumerate(open_doors.ports)
            ]

            def lateness() -> dict[str, Any]:
                median, p99, missing = open_doors.lateness_seconds(PERIOD_SECONDS)
                return {
                    "probes_per_second": count,
                    "late_ms_p50": round(median * 1000, 1),
                    "late_ms_p99": round(p99 * 1000, 1),
                    "ticks_missed": missing,
                }

            await self._load(
                daemon,
                f"{count} tcp a second",
                entries,
                per_second=count,
                more=lateness,
                started=open_doors.arrivals.clear,
            )

    async def _exec(self, daemon: Measured, count: int) -> None:
        """In turns with the bare calls, because the cost of a call changes with the machine's speed."""
        entries = [
            ProbeEntry(n, f"exec-{n}", {"exec": {"command": ["true", str(n)]}})
            for n in range(count)
        ]
        pairs: list[tuple[float, float]] = []
        for _ in range(EXEC_TURNS):
            bare = await self._exec_alone(count)
            row = await self._load(daemon, f"{count} exec a second", entries, per_second=count)
            pairs.append((row["machine_percent"], bare["machine_percent"]))
        self._add(
            {
                "benchmark": "daemon",
                "label": self._options.label,
                "phase": f"{count} exec a second, per bare ExecSync",
                "turns": len(pairs),
                "machine_percent": round(mean(ours for ours, _ in pairs), 2),
                "bare_machine_percent": round(mean(bare for _, bare in pairs), 2),
                "machine_per_bare": round(
                    mean(ours for ours, _ in pairs) / mean(bare for _, bare in pairs), 3
                ),
                "machine_per_bare_turns": [round(ours / bare, 3) for ours, bare in pairs],
            }
        )

    async def _exec_alone(self, count: int) -> Row:
        """The same ExecSync calls without a daemon: the least cost of exec probes."""
        loop = asyncio.get_running_loop()
        machine_before = procfs.machine_cpu_seconds()
        containerd_before = procfs.cpu_seconds(self._containerd)
        own = procfs.cpu_seconds(os.getpid())
        ends_at = loop.time() + self._options.seconds

        async def one(number: int) -> None:
            await asyncio.sleep(number / count)
            container = self._pods[number % len(self._pods)].container_id
            while (at := loop.time()) < ends_at:
                await self._runtime.exec_sync(container, ["true"], timeout_seconds=5)
                await asyncio.sleep(max(at + PERIOD_SECONDS - loop.time(), 0))

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(number))
        containerd = procfs.cpu_seconds(self._containerd) - containerd_before
        machine_cpu = procfs.machine_cpu_seconds() - machine_before
        row = self._row(
            f"{count} bare ExecSync a second", None, self._options.seconds, containerd, machine_cpu
        )
        own = procfs.cpu_seconds(os.getpid()) - own
        row["daemon_percent"] = round(own / self._options.seconds * 100, 2)
        self._add(row)
        return row

    async def _flips(self, daemon: Measured, count: int) -> None:
        """Each probe flips once, one after the other; the time ends at the status."""
        loop = asyncio.get_running_loop()
        async with pages(self._host) as site, asyncio.TaskGroup() as group:
            entries = [
                ProbeEntry(
                    n,
                    f"http-{n}",
                    {"httpGet": {"port": site.port, "path": f"/{n}", "scheme": "HTTP"}},
                )
                for n in range(count)
            ]
            await self._write_spec(entries)
            published: dict[str, float] = {}
            watch = group.create_task(self._watch_failures(published))
            await asyncio.sleep(WARM_UP_SECONDS + PERIOD_SECONDS)
            daemon.lap()
            flipped: dict[str, float] = {}
            for n in range(count):
                site.flip(f"/{n}")
                flipped[f"bench#http-{n}"] = loop.time()
                await asyncio.sleep(PERIOD_SECONDS * FLIP_STEP)
            await asyncio.sleep(2 * PERIOD_SECONDS + 1)
            watch.cancel()
            row = self._row("flips", daemon, 1.0, 0.0, 0.0)
            seen = [published[name] - at for name, at in flipped.items() if name in published]
            responded = {
                f"bench#http-{path.removeprefix('/')}": at for path, at in site.responded.items()
            }
            late = [published[name] - at for name, at in responded.items() if name in published]
            del row["daemon_percent"], row["containerd_percent"], row["machine_percent"]
            self._add(
                row
                | {
                    "flips": count,
                    "flips_missed": count - len(seen),
                    "flip_to_status_s_p50": round(percentile(seen, 0.5), 3),
                    "flip_to_status_s_max": round(max(seen), 3),
                    "response_to_status_ms_p50": round(percentile(late, 0.5) * 1000, 1),
                    "response_to_status_ms_p99": round(percentile(late, 0.99) * 1000, 1),
                }
            )

    async def _watch_failures(self, published: dict[str, float]) -> None:
        loop = asyncio.get_running_loop()
        path = f"{hollow.NODE_POD_PROBES_PATH}?watch=true&fieldSelector=metadata.name%3D{NODE}"
        async with self._api.watch(path) as lines:
            async for line in lines:
                now = loop.time()
                status = msgspec.json.decode(line)["object"].get("status") or {}
                for pod in status.get("podProbeStatuses") or ():
                    for state in pod.get("probeStates") or ():
                        if state["state"] == "Failed":
                            published.setdefault(state["name"], now)
