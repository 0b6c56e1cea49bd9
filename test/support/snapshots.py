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
from support.wire import Json, decoded

from kruise_probe.api.meta import Resource
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


_LONG = "x" * (MAX_OBJECT_BYTES - RESERVED_BYTES - 1000)
_LARGE_ENTRY = {
    "name": "large",
    "namespace": "other",
    "uid": "uid-large",
    "IP": "",
    "probes": [
        {
            "name": "large#probe",
            "containerName": "main",
            "probe": {"exec": {"command": [_LONG]}},
        }
    ],
}


def seen_pod(wire: Json, *, containers: Json | None = None, last: Json | None = None) -> SeenPod:
    """`containers`: the `state` of each by name; those that are not named run. `last`: their `lastState`."""
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    states = containers or {}
    last_states = last or {}
    given = wire["status"]
    started = {status["name"] for status in given["containerStatuses"] if status.get("started")}
    statuses = []
    for container in wire["spec"]["containers"]:
        name = container["name"]
        status = {
            "name": name,
            "state": states.get(name, running),
            "lastState": last_states.get(name, {}),
            "started": name in started,
        }
        statuses.append(status)
    return decoded(SEEN_PODS, {**wire, "status": {**given, "containerStatuses": statuses}})


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
    if pods is None:
        pods = [healthy_pod()]
    if markers is None:
        markers = [marker()]
    if states is None:
        states = [state_wire()]
    found = [seen_pod(wire) for wire in pods] if seen is None else list(seen)
    decoded_markers = [decoded(MARKERS, wire) for wire in markers]
    matching = Matching(lambda namespace: [pod for pod in found if pod.namespace == namespace])
    for decoded_marker in decoded_markers:
        matching.set_marker(compile_marker(decoded_marker))
    entries = []
    if planned:
        plan = at_once(plan_steps(found, matching.considered_of, ()))
        entries += msgspec.to_builtins(plan.entries)
    if full:
        entries.append(_LARGE_ENTRY)
    statuses = []
    for pod in found:
        meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        statuses.append(pod_status_wire({"metadata": meta}, *states))
    leases = []
    if renewed:
        leases.append(lease_wire(renewed=renewed, seconds=seconds))
    if led:
        leases.append(
            lease_wire(
                "manager-1",
                renewed=led,
                seconds=15,
                name=LEADER_ELECTION_ID,
            )
        )
    reports = [npp_wire(entries=entries, statuses=statuses)]
    known: dict[str, Any] = {
        "nodes": _by_name(NODES, [node or node_wire()]),
        "nodepodprobes": _by_name(NODE_POD_PROBES, reports),
        "leases": _by_name(LEASES, leases),
        **dict.fromkeys(forbidden),
    }
    return Snapshot(
        now=now,
        markers=tuple(decoded_markers),
        pods=tuple(found),
        nodes=known["nodes"],
        node_pod_probes=known["nodepodprobes"],
        leases=known["leases"],
    )


def _by_name(resource: Resource[Any], wires: Sequence[Json]) -> dict[str, Any]:
    return {wire["metadata"]["name"]: decoded(resource, wire) for wire in wires}


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
    return pod_wire(
        phase="Failed",
        labels=labels,
        owned=backup,
        **more,
    )


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
