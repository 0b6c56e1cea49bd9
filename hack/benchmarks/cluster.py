"""A control plane of the benchmark's own with hollow nodes and pods, and what its processes have used."""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from support.control_plane import ControlPlane, set_up

from benchmarks import hollow, procfs
from benchmarks.api import BareClient
from benchmarks.process import Launcher, Measured
from benchmarks.reporting import progress
from benchmarks.watching import Watched, WatchedMarker, WatchedNode, WatchedPod

CONNECTIONS = 48


@dataclass(frozen=True, kw_only=True)
class ManagerBench:
    """The command line. `in_pod` runs the manager with a service account's files instead of a kubeconfig."""

    command: str
    ready: str
    nodes: int
    pods: int
    crds: tuple[Path, ...]
    in_pod: bool
    label: str
    floor: bool
    rates: tuple[float, ...]
    rate_seconds: float
    time_limit: float | None


SERVERS = {"apiserver": "kube-apiserver", "etcd": "etcd"}
"""In figures, and as components of hack/cluster."""


class Usage(NamedTuple):
    """What the API server counted so far, and the CPU seconds of each of `SERVERS`."""

    writes: Counter[str]
    cpu_seconds: dict[str, float]


class Cluster(NamedTuple):
    """The control plane, hollow pods by node, and watches of what changes."""

    plane: ControlPlane
    api: BareClient
    pods_of: hollow.PodsOf
    pods: Watched[WatchedPod]
    nodes: Watched[WatchedNode]
    markers: Watched[WatchedMarker]
    launcher: Launcher

    def manager(self, options: ManagerBench) -> AbstractAsyncContextManager[Measured]:
        return self.launcher.running("manager", options.command, options.ready)

    async def usage(self) -> Usage:
        writes = await self.api.writes()
        used = {name: procfs.cpu_seconds(self.plane.pid(SERVERS[name])) for name in SERVERS}
        return Usage(writes, used)


def control_plane(folder: Path) -> ControlPlane:
    """etcd, API server and controller manager of the benchmark's own."""
    port = os.environ.get("KRUISE_PROBE_BENCH_PORT", "29443")
    return ControlPlane(folder / "cluster", port=port)


@asynccontextmanager
async def hollow_cluster(options: ManagerBench) -> AsyncIterator[Cluster]:
    """A control plane with hollow nodes and pods, and without a manager.

    The controller manager ends with its start: its caches of all pods would use a processor that is measured.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kp-bench-")))
        plane = control_plane(folder)
        stack.enter_context(plane.running())
        crds = list(crds_in(options.crds)) or None
        setup = await stack.enter_async_context(set_up(plane, hollow.NAMESPACE, crds=crds))
        await plane.do("stop", "kube-controller-manager")
        api = await stack.enter_async_context(BareClient(plane.config(), connections=CONNECTIONS))
        progress(f"creating {options.nodes} hollow nodes and {options.pods} hollow pods")
        pods_of = await hollow.create(
            setup,
            nodes=options.nodes,
            pods=options.pods,
        )
        pods = Watched(api, hollow.PODS_PATH, WatchedPod)
        nodes = Watched(api, hollow.NODE_POD_PROBES_PATH, WatchedNode)
        markers = Watched(api, hollow.MARKERS_PATH, WatchedMarker)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        watches = [group.create_task(each.run()) for each in (pods, nodes, markers)]
        names = {pod.name for on_node in pods_of.values() for pod in on_node}
        await pods.until(lambda _: True, of=names)
        launcher = Launcher(plane, setup, folder, as_pod=options.in_pod)
        yield Cluster(plane, api, pods_of, pods, nodes, markers, launcher)
        for watch in watches:
            watch.cancel()


def crds_in(paths: tuple[Path, ...]) -> Iterator[dict[str, Any]]:
    """The CRDs in files and folders."""
    for path in paths:
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            for document in yaml.safe_load_all(file.read_text()):
                if document and document["kind"] == "CustomResourceDefinition":
                    yield document
