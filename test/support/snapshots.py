"""Snapshots for tests of status and explain: a healthy cluster of one node, plus what a test changes."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from support.builders import (
    condition_wire,
    container_wire,
    entry_of,
    lease_wire,
    marker_wire,
    node_wire,
    npp_wire,
    owned_fields,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.computations import at_once
from support.tables import load_table
from support.wire import Json

from kruise_probe.api.names import LEADER_ELECTION_ID
from kruise_probe.api.node_pod_probe import MAX_OBJECT_BYTES
from kruise_probe.api.probe import Probe
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES
from kruise_probe.controllers.budget import RESERVED_BYTES
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.plan import plan_steps
from kruise_probe.inspection.seen_pods import SEEN_PODS, SeenPod
from kruise_probe.inspection.snapshot import Snapshot

NOW = datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
FRESH = "2026-01-01T00:01:20.000000Z"


_LARGE_ENTRY = {
    "name": "large",
    "namespace": "other",
    "uid": "uid-large",
    "IP": "",
    "probes": [
        {
            "name": "large#probe",
            "containerName": "main",
            "probe": {"exec": {"command": ["x" * (MAX_OBJECT_BYTES - RESERVED_BYTES - 1000)]}},
        }
    ],
}


def seen_pod(wire: Json, *, containers: Json | None = None, last: Json | None = None) -> SeenPod:
    """`containers`: the `state` of each by name; those that are not named run. `last`: their `lastState`."""
    named = [container["name"] for container in wire["spec"]["containers"]]
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    started = {
        container["name"]
        for container in wire["status"]["containerStatuses"]
        if container.get("started")
    }
    statuses = [
        {
            "name": name,
            "state": (containers or {}).get(name, running),
            "lastState": (last or {}).get(name, {}),
            "started": name in started,
        }
        for name in named
    ]
    wire = {**wire, "status": {**wire["status"], "containerStatuses": statuses}}
    return SEEN_PODS.decode(msgspec.json.encode(wire))


def healthy_pod(name: str = "web-0", **more: Any) -> Json:
    """A pod that shows the result of `marker_wire`'s probe."""
    more.setdefault("conditions", [condition_wire("example.com/healthy", "True")])
    return pod_wire(name, **more)


def snapshot(
    *,
    markers: Sequence[Json] | None = None,
    pods: Sequence[Json] | None = None,
    states: Sequence[Json] | None = None,
    seen: Sequence[SeenPod] | None = None,
    planned: bool = True,
    full: bool = False,
    node: Json | None = None,
    renewed: str | None = FRESH,
    seconds: int = 60,
    led: str | None = None,
    forbidden: Sequence[str] = (),
    now: datetime = NOW,
) -> Snapshot:
    """By default one marker selects one pod. `states` of every pod's probes; a node is `full` by the entry of another pod; `renewed` None for a node without a daemon; `led` is when a leader renewed its Lease; `forbidden` kinds are None."""
    pods, markers = (
        [healthy_pod()] if pods is None else pods,
        [marker()] if markers is None else markers,
    )
    found = list(seen) if seen is not None else [seen_pod(wire) for wire in pods]
    decoded = [MARKERS.decode(msgspec.json.encode(wire)) for wire in markers]
    compiled = [compile_marker(decoded_marker) for decoded_marker in decoded]
    matching = Matching(lambda namespace: [pod for pod in found if pod.namespace == namespace])
    for compiled_marker in compiled:
        matching.set_marker(compiled_marker)
    entries = at_once(plan_steps(found, matching.considered_of, ())).entries
    kept = msgspec.to_builtins(entries) if planned else ()
    report = npp_wire(
        entries=[*kept, _LARGE_ENTRY] if full else kept,
        statuses=[
            pod_status_wire(
                {"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}},
                *([state_wire()] if states is None else states),
            )
            for pod in found
        ],
    )
    wires = [lease_wire(renewed=renewed, seconds=seconds)] if renewed else []
    if led:
        wires.append(lease_wire("manager-1", renewed=led, seconds=15, name=LEADER_ELECTION_ID))
    leases = [LEASES.decode(msgspec.json.encode(wire)) for wire in wires]
    nodes = [NODES.decode(msgspec.json.encode(node or node_wire()))]
    reports = [NODE_POD_PROBES.decode(msgspec.json.encode(report))]
    return Snapshot(
        now=now,
        markers=tuple(decoded),
        pods=tuple(found),
        nodes=None if "nodes" in forbidden else {node.key.name: node for node in nodes},
        node_pod_probes=None if "nodepodprobes" in forbidden else {reports[0].key.name: reports[0]},
        leases=None if "leases" in forbidden else {lease.key.name: lease for lease in leases},
    )


def marker(**more: Any) -> Json:
    """A marker that the manager has reconciled."""
    more.setdefault("status", {"observedGeneration": 1, "matchedPods": 1})
    return marker_wire(**more)


def _probing(probe: Json) -> list[Json]:
    """A marker with one probe."""
    return [marker(probes=[probe_wire(**probe)])]


def _reporting(conditions: list[Json]) -> list[Json]:
    """A marker whose status has these conditions."""
    return [marker(status={"observedGeneration": 1, "conditions": conditions})]


def _older(count: str) -> list[Json]:
    """The default marker, and as many older ones."""
    names = [f"a{number:02}" for number in range(int(count))]
    return [*(marker(name=name, created="2020-01-01T00:00:00Z") for name in names), marker()]


def _hash(probe: Json) -> str:
    return entry_of(msgspec.convert(probe, Probe)).hash


def _restored(more: Json) -> Json:
    """A finished pod with marks that a backup wrote."""
    owned = owned_fields(labels=["role"], conditions=["example.com/healthy"])
    backup = {**owned, "manager": "velero", "subresource": ""}
    labels = {"app": "web", "role": "primary"}
    return pod_wire(phase="Failed", labels=labels, owned=backup, **more)


def ended(exit_code: int) -> SeenPod:
    """A pod with a container that is not restarted."""
    wire = healthy_pod()
    wire["spec"]["restartPolicy"] = "Never"
    state = {"terminated": {"exitCode": exit_code, "reason": "Completed"}}
    return seen_pod(wire, containers={"main": state})


TAGS: dict[str, Any] = {
    "restored": _restored,
    "ended": lambda exit_code: ended(int(exit_code)),
    "owned": lambda more: owned_fields(**more),
    "pod": lambda more: healthy_pod(**more),
    "seen": lambda more: seen_pod(healthy_pod(**more.pop("pod", {})), **more),
    "marker": lambda more: marker(**more),
    "probe": lambda more: more.pop("wire", {}) | probe_wire(**more),
    "policy": lambda more: policy_wire(**more),
    "condition": lambda more: condition_wire(**more),
    "container": lambda more: container_wire(**more),
    "state": lambda more: state_wire(**more),
    "node": lambda more: node_wire(**more),
    "unknown": lambda message: [state_wire(state="Unknown", message=message)],
    "probing": _probing,
    "reporting": _reporting,
    "older": _older,
    "hash": _hash,
    "json": json.dumps,
}


def table(name: str) -> Json:
    """The tables in `test/data/inspection/NAME.yaml`."""
    path = Path(__file__).parents[1] / "data" / "inspection" / f"{name}.yaml"
    found: Json = load_table(path, TAGS)
    return found
