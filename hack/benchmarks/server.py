"""The CPU that the API server needs for one write of a NodePodProbe, by kind of write, size and number of changed results.

It is the CPU time of the API server's process, less what that uses at rest. So other processes on the machine have
little effect. The kinds of writes alternate in random order, and a figure is the median of all turns. Garbage collection is a
large part of the cost and does not run at every write, so a turn has many writes. A manager's watch of all
NodePodProbes and the watch of the node's daemon are open, because the API server encodes each change for them.
`hack/bench manager` measures the same for whole phases (column `apiserver_cpu_s`).
"""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
from support.control_plane import prepared
from support.hollow import LEASES, node_name, node_pod_probe_object
from support.raw_api import node_pod_probe_path

from benchmarks import hollow, procfs
from benchmarks.api import APPLY, JSON, JSON_PATCH, MERGE, BareClient, BareRequest
from benchmarks.manager import control_plane, crds_in
from benchmarks.reporting import Row, emit, machine_speed, progress
from kruise_probe.api.core import ExecAction, Probe
from kruise_probe.api.meta import ApiObject
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import (
    ContainerProbe,
    ContainerProbeState,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbe,
    PodProbeStatus,
)
from kruise_probe.client.request import METADATA_ONLY
from kruise_probe.daemon.status import patch_of, update_of

PROBES: Final = ("game#idle", "game#healthy", "game#players")
NODE: Final = node_name(0)
LEASE: Final = daemon_lease_name(NODE)
MESSAGE: Final = "x" * 60
CONTAINER_ID: Final = "containerd://" + "0123456789abcdef" * 4
PROBE_HASH: Final = "0123456789abcdef"
IDLE_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 0.3
"""Encoding for watches goes on after the response."""

_encode = msgspec.json.encode
_metadata = msgspec.json.Decoder(ApiObject)


@dataclass(frozen=True, kw_only=True)
class ServerBench:
    """The command line."""

    sizes: tuple[int, ...]
    changed: tuple[int, ...]
    writes: int
    turns: int
    crds: tuple[Path, ...]
    label: str


class WriteContent(NamedTuple):
    """The content of one write to an object with `pods` pods and resource version `version`.

    The first `changed` results, and a spec, differ with each `tick`.
    """

    pods: int
    changed: int
    tick: int
    version: str


async def measure(options: ServerBench) -> list[Row]:
    """One run; each row is printed when it is measured."""
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        emit(row)

    add(machine_speed())
    with tempfile.TemporaryDirectory(prefix="kp-bench-") as folder:
        plane = control_plane(Path(folder))
        progress("starting a control plane")
        with plane.running():
            crds = list(crds_in(options.crds)) or None
            async with (
                prepared(plane, hollow.NAMESPACE, crds=crds),
                BareClient(plane.config(), connections=2) as api,
                _watched(api),
            ):
                server = plane.pid("kube-apiserver")
                await api.json("POST", LEASES, {"metadata": {"name": LEASE}})
                for pods in options.sizes:
                    progress(f"{pods} pods with {len(PROBES)} probes each")
                    async for row in _measure_size(api, server, pods, options):
                        add(row)
    return rows


async def _measure_size(
    api: BareClient, server: int, pods: int, options: ServerBench
) -> AsyncIterator[Row]:
    ticks = count()
    path = node_pod_probe_path(NODE)
    await api.call(BareRequest("DELETE", path), accepted=(404,))
    body = _encode({**node_pod_probe_object(NODE), "spec": _spec(pods, 0)})
    await api.call(BareRequest("POST", hollow.NODE_POD_PROBES_PATH, body))
    await api.call(_merge(WriteContent(pods, 0, next(ticks), "")))
    cases: list[tuple[str, int, list[float]]] = [
        (kind, changed, [])
        for changed in sorted({min(each, pods * len(PROBES)) for each in options.changed})
        for kind in STATUS_WRITES
        if kind != STATUS_APPLY or not options.crds
    ]
    cases += [(kind, 1, []) for kind in (*SPEC_WRITES, LEASE_WRITE)]
    idle = await _idle_share(server)
    for _ in range(options.turns):
        for kind, changed, costs in random.sample(cases, len(cases)):
            request_of = WRITES[kind]
            version = _version(await api.call(BareRequest("GET", path)))
            used = began_at = 0.0
            for number in range(options.writes + 1):  # The first write is a warm-up.
                if number == 1:
                    await asyncio.sleep(SETTLE_SECONDS)
                    used, began_at = procfs.cpu_seconds(server), time.monotonic()
                request = request_of(WriteContent(pods, changed, next(ticks), version))
                version = _version(await api.call(request))
            await asyncio.sleep(SETTLE_SECONDS)
            used += idle * (time.monotonic() - began_at)
            costs.append((procfs.cpu_seconds(server) - used) / options.writes)
    for kind, changed, costs in cases:
        sent = WRITES[kind](WriteContent(pods, changed, next(ticks), "1000000"))
        yield {
            "benchmark": "server",
            "label": options.label,
            "write": kind,
            "pods": pods,
            "changed": changed,
            "body_kb": round(len(sent.body) / 1000, 1),
            "apiserver_cpu_ms": round(median(costs) * 1000, 1),
            "least_ms": round(min(costs) * 1000, 1),
            "most_ms": round(max(costs) * 1000, 1),
        }


async def _idle_share(server: int) -> float:
    """CPU seconds per second that the API server uses without these writes."""
    used = procfs.cpu_seconds(server)
    await asyncio.sleep(IDLE_SECONDS)
    return (procfs.cpu_seconds(server) - used) / IDLE_SECONDS


def _version(body: bytes) -> str:
    return _metadata.decode(body).resource_version


@asynccontextmanager
async def _watched(api: BareClient) -> AsyncIterator[None]:
    """Keep the watches of a manager and of the node's daemon open."""

    async def drain(selector: str) -> None:
        path = f"{hollow.NODE_POD_PROBES_PATH}?watch=true&timeoutSeconds=7200{selector}"
        async with api.watch(path) as lines:
            async for _ in lines:
                pass

    async with asyncio.TaskGroup() as group:
        selectors = ("", f"&fieldSelector=metadata.name%3D{NODE}")
        watches = [group.create_task(drain(selector)) for selector in selectors]
        yield
        for watch in watches:
            watch.cancel()


# Objects.


def _pod(number: int) -> tuple[str, str, str]:
    return f"web-{number}", hollow.NAMESPACE, f"00000000-0000-0000-0000-{number:012}"


def _spec(pods: int, tick: int) -> NodePodProbeSpec:
    """The spec that a manager writes. The IP of the first pod changes with `tick`."""
    handler = ExecAction(command=("sh", "-c", "cat /state"))
    probe = Probe(exec=handler, period_seconds=10, timeout_seconds=1, failure_threshold=3)
    probes = tuple(ContainerProbe(name, "main", probe) for name in PROBES)
    return NodePodProbeSpec(
        tuple(
            PodProbe(*_pod(number), f"10.0.0.{0 if number else tick % 250}", probes)
            for number in range(pods)
        )
    )


def _status(content: WriteContent) -> NodePodProbeStatus:
    """The status that a daemon writes. The first `changed` results have the state and times of `tick`."""
    ticks = (content.tick if number < content.changed else 0 for number in count())
    return NodePodProbeStatus(
        tuple(
            PodProbeStatus(*_pod(number), tuple(map(_state, PROBES, islice(ticks, len(PROBES)))))
            for number in range(content.pods)
        )
    )


def _state(name: str, tick: int) -> ContainerProbeState:
    stamp = f"2026-01-01T{tick // 3600 % 24:02}:{tick // 60 % 60:02}:{tick % 60:02}Z"
    state = "Failed" if tick % 2 else "Succeeded"
    return ContainerProbeState(
        name, state, stamp, stamp, f"{MESSAGE}{tick}", CONTAINER_ID, PROBE_HASH
    )


# Writes.


def _request(method: str, subresource: str, body: bytes, kind: str, **more: Any) -> BareRequest:
    manager = "kruise-probe-daemon" if subresource else "kruise-probe-manager"
    path = f"{node_pod_probe_path(NODE)}{subresource}?fieldManager={manager}"
    return BareRequest(method, path, body, kind, **more)


def _merge(content: WriteContent) -> BareRequest:
    return _request("PATCH", "/status", patch_of(_status(content)), MERGE)


def _update(content: WriteContent, accept: str) -> BareRequest:
    body = update_of(_status(content), NODE, content.version)
    return _request("PUT", "/status", body, JSON, accept=accept)


def _json_patch(content: WriteContent) -> BareRequest:
    """Replace the changed results, and test that each place still has the same probe."""
    pods = _status(content).pod_probe_statuses or ()
    operations: list[dict[str, Any]] = []
    for place, pod in enumerate(pods[: -(-content.changed // len(PROBES))]):
        at = f"/status/podProbeStatuses/{place}"
        operations.append({"op": "test", "path": f"{at}/uid", "value": pod.uid})
        left = content.changed - place * len(PROBES)
        for number, state in enumerate((pod.probe_states or ())[:left]):
            replaced = f"{at}/probeStates/{number}"
            operations.append({"op": "test", "path": f"{replaced}/name", "value": state.name})
            operations.append({"op": "replace", "path": replaced, "value": state})
    return _request("PATCH", "/status", _encode(operations), JSON_PATCH)


def _apply(content: WriteContent) -> BareRequest:
    """Server-side apply. Without a map list in the schema, a list is one value.

    It refuses fields that the schema does not declare, so it is measured with our CRDs only.
    """
    body = {
        "apiVersion": NODE_POD_PROBES.api_version,
        "kind": NODE_POD_PROBES.kind,
        "metadata": {"name": NODE},
        "status": _status(content),
    }
    request = _request("PATCH", "/status", _encode(body), APPLY)
    return request._replace(path=f"{request.path}&force=true")


def _spec_merge(content: WriteContent, accept: str) -> BareRequest:
    body = _encode({"spec": _spec(content.pods, content.tick)})
    return _request("PATCH", "", body, MERGE, accept=accept)


def _spec_json_patch(content: WriteContent) -> BareRequest:
    value = _encode(
        [{"op": "replace", "path": "/spec", "value": _spec(content.pods, content.tick)}]
    )
    return _request("PATCH", "", value, JSON_PATCH)


def _spec_update(content: WriteContent) -> BareRequest:
    body = {
        **node_pod_probe_object(NODE),
        "metadata": {"name": NODE, "resourceVersion": content.version},
        "spec": _spec(content.pods, content.tick),
    }
    return _request("PUT", "", _encode(body), JSON, accept=METADATA_ONLY)


def _renewal(content: WriteContent) -> BareRequest:
    """Renew the daemon's Lease, as its heartbeat does."""
    body = {"spec": {"renewTime": f"2026-01-01T00:00:00.{content.tick % 1_000_000:06}Z"}}
    path = f"{LEASES}/{LEASE}?fieldManager=kruise-probe-daemon"
    return BareRequest("PATCH", path, _encode(body), MERGE, accept=JSON)


STATUS_APPLY: Final = "status: apply"
STATUS_WRITES: Final[dict[str, Callable[[WriteContent], BareRequest]]] = {
    "status: PUT, metadata returned (the daemon)": partial(_update, accept=METADATA_ONLY),
    "status: PUT (Kruise's daemon)": partial(_update, accept=JSON),
    "status: merge patch": _merge,
    "status: JSON patch": _json_patch,
    STATUS_APPLY: _apply,
}
SPEC_WRITES: Final[dict[str, Callable[[WriteContent], BareRequest]]] = {
    "spec: merge patch (the manager)": partial(_spec_merge, accept=JSON),
    "spec: merge patch, metadata returned": partial(_spec_merge, accept=METADATA_ONLY),
    "spec: JSON patch": _spec_json_patch,
    "spec: PUT": _spec_update,
}
LEASE_WRITE: Final = "Lease: renewal"
WRITES: Final = {**STATUS_WRITES, **SPEC_WRITES, LEASE_WRITE: _renewal}
