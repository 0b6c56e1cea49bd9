"""What a changed result costs the API server, for two versions side by side: bytes of a NodePodProbe, and CPU.

The object has every field that a version has written; the package of each version decides which of them it keeps.
The daemon's update is sent again and again, and the versions take turns, as a shared machine changes its speed. The CPU is
that of the API server's process, without what it uses at rest. The watches of a manager and of a daemon are open.
"""

import asyncio
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from support.control_plane import set_up
from support.hollow import node_pod_probe_object
from support.target import node_pod_probe_path

from benchmarks import hollow, procfs
from benchmarks.api import BareClient, BareRequest
from benchmarks.cluster import control_plane
from benchmarks.hollow import Json
from benchmarks.reporting import Row, emit, progress
from kruise_probe.client.request import METADATA_ONLY
from kruise_probe.daemon.status import update_of

ROOT: Final = Path(__file__).parents[2]
REST_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.3
"""The API server encodes for watches after its response."""

HANDLERS: Final[dict[str, Json]] = {
    "game#idle": {"exec": {"command": ["sh", "-c", "cat /idle"]}},
    "game#players": {"exec": {"command": ["/bin/players"]}},
    "game#web": {"httpGet": {"port": 8080, "path": "/healthz", "scheme": "HTTP"}},
}
RESULT: Final[Json] = {
    "lastProbeTime": "2026-01-01T10:00:09Z",
    "lastTransitionTime": "2026-01-01T08:30:00Z",
    "message": "fine",
    "containerID": "0123456789abcdef" * 4,
    "probeHash": "0123456789abcdef",
}
AS_WRITTEN: Final = """
import sys
import msgspec
try:
    from kruise_probe.api.node_pod_probe import NodePodProbeSpec, NodePodProbeStatus
except ModuleNotFoundError:  # an earlier revision
    from kruise_probe.api.v1alpha1 import NodePodProbeSpec, NodePodProbeStatus
parts = tuple[NodePodProbeSpec, NodePodProbeStatus, NodePodProbeStatus]
written = msgspec.json.decode(sys.stdin.buffer.read(), type=parts)
sys.stdout.buffer.write(msgspec.json.encode(written))
"""
"""Decodes and encodes the parts of an object with the package in the current folder."""


@dataclass(frozen=True, kw_only=True)
class ServerBench:
    """The command line. `base` is the revision to compare with."""

    base: str
    sizes: tuple[int, ...]
    writes: int
    turns: int


@dataclass
class _Version:
    """The object of one version. `statuses` differ in one result; `costs` are CPU seconds of the API server for a write."""

    label: str
    spec: msgspec.Raw
    statuses: list[msgspec.Raw]
    costs: list[float] = field(default_factory=list)


async def measure(options: ServerBench) -> list[Row]:
    """One run; each row is printed when it is measured."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="kp-bench-") as folder:
        base = _package_of(options.base, Path(folder, "base"))
        plane = control_plane(Path(folder))
        progress("starting a control plane")
        with plane.running():
            async with (
                set_up(plane, hollow.NAMESPACE),
                BareClient(plane.config(), connections=1) as api,
                _watches(api),
            ):
                run = _Run(api, plane.pid("kube-apiserver"), options)
                for pods in options.sizes:
                    progress(f"{pods} pods with {len(HANDLERS)} probes each")
                    ours = _version("kruise-probe", ROOT, pods)
                    rows += await run.compare(ours, _version("base", base, pods), pods)
    return rows


def _package_of(revision: str, folder: Path) -> Path:
    """The package at this revision of Git, in `folder`."""
    archive = subprocess.run(
        ["git", "archive", revision, "kruise_probe"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def _version(label: str, package: Path, pods: int) -> _Version:
    done = subprocess.run(
        [sys.executable, "-c", AS_WRITTEN],
        input=msgspec.json.encode(_parts(pods)),
        cwd=package,  # Python looks there first.
        check=True,
        capture_output=True,
    )
    spec, *statuses = msgspec.json.decode(done.stdout, type=list[msgspec.Raw])
    return _Version(label, spec, statuses)


def _parts(pods: int) -> list[Json]:
    """A spec, and two statuses that differ in the first result."""
    names = [
        {
            "name": f"web-7d4b9c6f5-{number:05}",
            "namespace": "default",
            "uid": f"0b7f4f62-3a4e-4c7a-9d11-{number:012}",
        }
        for number in range(pods)
    ]
    probes: list[Json] = []
    for name, handler in HANDLERS.items():
        probe = {**handler, "periodSeconds": 10}
        probes.append({"name": name, "containerName": "main", "probe": probe})
    parts: list[Json] = [
        {"podProbes": [{**pod, "IP": "127.0.0.1", "probes": probes} for pod in names]}
    ]
    same = [{"name": name, "state": "Succeeded", **RESULT} for name in HANDLERS]
    for state in ("Succeeded", "Failed"):
        pods_states = [{**pod, "probeStates": same} for pod in names]
        pods_states[0]["probeStates"] = [{**same[0], "state": state}, *same[1:]]
        newest = RESULT["lastProbeTime"]
        parts.append({"podProbeStatuses": pods_states, "pods": pods, "lastProbeTime": newest})
    return parts


@asynccontextmanager
async def _watches(api: BareClient) -> AsyncIterator[None]:
    """The watches of a manager and of the daemon of one node."""

    async def drain() -> None:
        async with api.watch(f"{hollow.NODE_POD_PROBES_PATH}?watch=true") as lines:
            async for _ in lines:
                pass

    async with asyncio.TaskGroup() as group:
        watches = [group.create_task(drain()) for _ in range(2)]
        yield
        for watch in watches:
            watch.cancel()


class _Run:
    def __init__(self, api: BareClient, server_pid: int, options: ServerBench) -> None:
        self._api = api
        self._server_pid = server_pid
        self._options = options
        self._at_rest = 0.0

    async def compare(self, ours: _Version, base: _Version, pods: int) -> list[Row]:
        for version in (ours, base):
            created = {**node_pod_probe_object(version.label), "spec": version.spec}
            await self._api.json("POST", hollow.NODE_POD_PROBES_PATH, created)
        self._at_rest = await self._cpu_share()
        for _ in range(self._options.turns):
            for version in (ours, base):
                version.costs.append(await self._cost_of_a_write(version))
        rows = [await self._row(version, pods) for version in (ours, base)]
        for figure in ("bytes_per_probe", "apiserver_cpu_ms"):
            rows[0][f"{figure}_per_base"] = round(rows[0][figure] / rows[1][figure], 3)
        for row in rows:
            emit(row)
        return rows

    async def _cpu_share(self) -> float:
        used = procfs.cpu_seconds(self._server_pid)
        await asyncio.sleep(REST_SECONDS)
        return (procfs.cpu_seconds(self._server_pid) - used) / REST_SECONDS

    async def _cost_of_a_write(self, version: _Version) -> float:
        loop = asyncio.get_running_loop()
        path = node_pod_probe_path(version.label)
        stored = await self._api.json("GET", path)
        used = procfs.cpu_seconds(self._server_pid)
        began_at = loop.time()
        for number in range(self._options.writes):
            status = bytes(version.statuses[number % 2])
            body = update_of(status, version.label, stored["metadata"]["resourceVersion"])
            request = BareRequest("PUT", f"{path}/status", body, accept=METADATA_ONLY)
            stored = msgspec.json.decode(await self._api.call(request))
        await asyncio.sleep(SETTLE_SECONDS)
        used += self._at_rest * (loop.time() - began_at)
        return (procfs.cpu_seconds(self._server_pid) - used) / self._options.writes

    async def _row(self, version: _Version, pods: int) -> Row:
        path = node_pod_probe_path(version.label)
        stored = await self._api.call(BareRequest("GET", path))
        await self._api.call(BareRequest("DELETE", path))
        return {
            "benchmark": "server",
            "label": version.label,
            "pods": pods,
            "bytes_per_probe": round(len(stored) / pods / len(HANDLERS), 1),
            "apiserver_cpu_ms": round(median(version.costs) * 1000, 2),
        }
