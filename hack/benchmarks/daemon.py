"""A daemon at work on real containers. Its NodePodProbe is on a control plane of the benchmark's own.

So a manager and a daemon in the cluster are not disturbed and do not disturb. The pods share the host's network and
sleep. The probes connect to servers of the benchmark, which note the time; exec probes run `true` in the containers.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from support.control_plane import set_up
from support.hollow import Hollow, spec_entry
from support.target import node_pod_probe_path

from benchmarks import hollow, procfs
from benchmarks.api import MERGE, BareClient, BareRequest
from benchmarks.cluster import control_plane
from benchmarks.process import Launcher, Measured
from benchmarks.reporting import Row, emit, machine_speed, progress
from benchmarks.targets import pages, tcp_ports
from kruise_probe.client.config import load_config
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime

NODE = "kruise-probe-bench"
IMAGE = "kruise-probe-test:busybox"
START_SECONDS = 1800.0
"""Of all pods: a kubelet starts one a second."""
END_SECONDS = 60.0
LOOK_SECONDS = 0.2
WARM_UP_SECONDS = 3.0
PERIOD_SECONDS = 1

LOADS = ("mixed", "exec", "exec-floor", "tcp", "values")

SHIM = "containerd-shim"
"""The parent of what runs in a container, and of each runc; as the kernel cuts its name."""

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
    mixed_rates: tuple[int, ...]
    tcp_rates: tuple[int, ...]


METRICS_BYTES = 200_000


Handler = dict[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})


class ProbeEntry(NamedTuple):
    """A probe: which pod, its name, the wire form of its handler, and of its fields beside it."""

    pod: int
    name: str
    handler: Handler
    beside: Mapping[str, Any] = NOTHING


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
        setup = await enter(set_up(plane, hollow.NAMESPACE))
        await Hollow(setup).add_node_pod_probe(NODE)
        api = await enter(BareClient(plane.config(), connections=8))
        cluster = await enter(BareClient(load_config(options.kubeconfig), connections=8))
        pods = await enter(_running_pods(cluster, options))
        listed = await cluster.json("GET", hollow.PODS_PATH)
        host = listed["items"][0]["status"]["hostIP"]  # pods in its network are probed only there
        launcher = Launcher(plane, setup, folder, as_pod=options.in_pod)
        await _DaemonRun(
            options,
            launcher,
            api,
            pods,
            host,
            add,
        ).all_phases()
        add(machine_speed())
    return rows


@asynccontextmanager
async def _running_pods(
    cluster: BareClient, options: DaemonBench
) -> AsyncIterator[list[hollow.HollowPod]]:
    """Pods in the host's network that sleep; deleted after the block."""
    progress(f"creating {options.pods} pods")
    namespace = f"/api/v1/namespaces/{hollow.NAMESPACE}"
    await cluster.json(
        "POST", "/api/v1/namespaces", {"metadata": {"name": hollow.NAMESPACE}}, accepted=(409,)
    )
    try:
        await _until(cluster, f"{namespace}/serviceaccounts/default", exists=True)
        for number in range(options.pods):
            await cluster.json("POST", hollow.PODS_PATH, _sleeper(number, options.image))
        yield await _running(cluster, options.pods)
    finally:
        await cluster.call(BareRequest("DELETE", f"{namespace}/pods?gracePeriodSeconds=0"))
        await cluster.call(
            BareRequest("DELETE", namespace),
            accepted=(404, 409),
        )
        await _until(cluster, namespace, exists=False)


async def _until(cluster: BareClient, path: str, *, exists: bool) -> None:
    request = BareRequest("GET", path)
    missing = exists
    async with asyncio.timeout(END_SECONDS):
        while missing == exists:
            await asyncio.sleep(LOOK_SECONDS)
            missing = b'"reason":"NotFound"' in await cluster.call(request, accepted=(404,))


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


async def _running(cluster: BareClient, count: int) -> list[hollow.HollowPod]:
    async with asyncio.timeout(START_SECONDS):
        while True:
            listed = await cluster.json("GET", hollow.PODS_PATH)
            found = [
                hollow.HollowPod(item["metadata"]["name"], item["metadata"]["uid"])
                for item in listed["items"]
                if item["status"]["phase"] == "Running"
            ]
            if len(found) >= count:
                return sorted(found)
            await asyncio.sleep(0.5)


class _DaemonRun:
    """The phases of one run."""

    def __init__(
        self,
        options: DaemonBench,
        launcher: Launcher,
        api: BareClient,
        pods: list[hollow.HollowPod],
        host: str,
        add: Callable[[Row], None],
    ) -> None:
        self._options = options
        self._launcher = launcher
        self._api = api
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
        self._add(
            self._row(
                "no daemon",
                None,
                self._options.seconds,
                used,
            )
        )
        async with self._daemon() as daemon:
            await self._load(daemon, "idle", [], per_second=0)
            runs: dict[str, Callable[[], Awaitable[None]]] = {
                "mixed": lambda: self._mixed(daemon),
                "exec": lambda: self._exec(daemon, 15),
                "exec-floor": lambda: self._exec_floor(daemon, 15),
                "tcp": lambda: self._tcp(daemon),
                "values": lambda: self._values(daemon, 50),
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
                    **each.beside,
                }
                for each in listed
            ]
            pod = self._pods[number]
            namespace = hollow.NAMESPACE
            found = spec_entry(
                pod.name,
                pod.uid,
                probes,
                namespace=namespace,
                ip=self._host,
            )
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
    ) -> None:
        """Measures one steady load after a warm-up."""
        await self._write_spec(entries)
        await asyncio.sleep(WARM_UP_SECONDS)
        daemon.lap()
        started()
        containerd_before = procfs.cpu_seconds(self._containerd)
        shims_before = procfs.family_cpu_seconds(SHIM)
        await asyncio.sleep(self._options.seconds)
        seconds = self._options.seconds
        containerd = procfs.cpu_seconds(self._containerd) - containerd_before
        row = self._row(phase, daemon, seconds, containerd)
        if per_second:
            above_idle = containerd - self._containerd_share * seconds
            spent = daemon.cpu_seconds + max(above_idle, 0.0)
            shims = procfs.family_cpu_seconds(SHIM) - shims_before
            row["cpu_ms_per_probe"] = round(spent / (per_second * seconds) * 1000, 3)
            row["shims_ms_per_probe"] = round(shims / (per_second * seconds) * 1000, 3)
        row |= more()
        self._add(row)
        await self._write_spec([])

    def _row(
        self,
        phase: str,
        daemon: Measured | None,
        seconds: float,
        containerd: float,
    ) -> Row:
        return {
            "benchmark": "daemon",
            "label": self._options.label,
            "phase": phase,
            "daemon_percent": round(daemon.cpu_seconds / seconds * 100, 2) if daemon else None,
            "containerd_percent": round(containerd / seconds * 100, 2),
            "rss_mb": round(daemon.peak_mb, 1) if daemon else None,
        }

    async def _mixed(self, daemon: Measured) -> None:
        for rate in self._options.mixed_rates:
            tcp = rate // 2
            await self._connections(daemon, "tcp and http", tcp=tcp, http=rate - tcp)

    async def _tcp(self, daemon: Measured) -> None:
        for rate in self._options.tcp_rates:
            await self._connections(daemon, "tcp", tcp=rate, http=0)

    async def _connections(self, daemon: Measured, what: str, *, tcp: int, http: int) -> None:
        """Probes: tcpSocket, each of a port of its own, and httpGet. Shows how late the former are."""
        async with tcp_ports(self._host, tcp) as open_ports, pages(self._host) as site:

            def lateness() -> dict[str, Any]:
                median, p99, missing = open_ports.lateness_seconds(PERIOD_SECONDS)
                return {
                    "late_ms_p50": round(median * 1000, 1),
                    "late_ms_p99": round(p99 * 1000, 1),
                    "ticks_missed": missing,
                }

            paths = [_http(site.port, f"/{n}") for n in range(http)]
            await self._load(
                daemon,
                f"{tcp + http} {what} a second",
                _entries("tcp", map(_tcp, open_ports.ports)) + _entries("http", paths),
                per_second=tcp + http,
                more=lateness,
                started=open_ports.arrivals.clear,
            )

    async def _values(self, daemon: Measured, count: int) -> None:
        """A metric at the end of 200 KB, beside a body of one line with the same number of probes."""
        lines = [f'other_{n}{{a="b",le="{n}"}} {n}' for n in range(METRICS_BYTES // 32)]
        metrics = "\n".join([*lines, "queue 3.0", ""]).encode()
        extract = {"extract": {"metric": {"name": "queue"}, "step": "5"}}
        for what, body, beside in (("one line", b"3\n", {}), ("200 KB", metrics, extract)):
            async with pages(self._host) as site:
                site.body = body
                await self._load(
                    daemon,
                    f"{count} httpGet of {what} a second",
                    _entries("value", [_http(site.port, "/")] * count, beside),
                    per_second=count,
                )

    async def _exec(self, daemon: Measured, count: int) -> None:
        handlers = [{"exec": {"command": ["true", str(n)]}} for n in range(count)]
        await self._load(
            daemon,
            f"{count} exec a second",
            _entries("exec", handlers),
            per_second=count,
        )

    async def _exec_floor(self, daemon: Measured, count: int) -> None:
        """The commands of `_exec` without a daemon: bare calls on one connection."""
        async with GrpcRuntime(self._options.socket) as runtime, asyncio.TaskGroup() as group:
            ids = [each.id for each in await runtime.list_containers()]

            async def call() -> None:
                for container in cycle(ids):
                    run = runtime.exec_sync(container, ["true"], timeout_seconds=1)
                    group.create_task(run)
                    await asyncio.sleep(1 / count)

            calls = group.create_task(call())
            await self._load(daemon, f"{count} bare calls a second", [], per_second=count)
            calls.cancel()


def _tcp(port: int) -> Handler:
    return {"tcpSocket": {"port": port}}


def _http(port: int, path: str) -> Handler:
    return {"httpGet": {"port": port, "path": path, "scheme": "HTTP"}}


def _entries(
    name: str, handlers: Iterable[Handler], beside: Mapping[str, Any] = NOTHING
) -> list[ProbeEntry]:
    """A probe with each of these handlers."""
    return [ProbeEntry(n, f"{name}-{n}", handler, beside) for n, handler in enumerate(handlers)]
