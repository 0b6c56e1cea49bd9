"""Objects for tests: each builder fills in what a test does not care about.

`*_wire` builders give JSON as an API server has it; the others decode it, so that nothing is built that the wire
cannot carry.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from support.wire import Json, typed

from kruise_probe.api.names import MANAGER_FIELD_MANAGER, daemon_lease_name
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.pods import Pod
from kruise_probe.api.probe import Probe
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS
from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbeMarker

CREATED = "2026-01-01T00:00:00Z"


def entry_of(probe: Probe, **criteria: Json) -> ContainerProbe:
    """An entry of a NodePodProbe. `criteria` are `extract` and `successWhen`."""
    entry = ContainerProbe("marker#probe", "main", probe)
    return msgspec.convert({**msgspec.to_builtins(entry), **criteria}, ContainerProbe)


def owned_fields(
    *, labels: Iterable[str] = (), annotations: Iterable[str] = (), conditions: Iterable[str] = ()
) -> Json:
    """The managedFields entry that says that our manager wrote these."""
    fields: Json = {
        "f:metadata": {
            "f:labels": {f"f:{key}": {} for key in labels},
            "f:annotations": {f"f:{key}": {} for key in annotations},
        },
        "f:status": {
            "f:conditions": {
                f'k:{{"type":"{type}"}}': {".": {}, "f:status": {}} for type in conditions
            }
        },
    }
    return {
        "manager": MANAGER_FIELD_MANAGER,
        "operation": "Update",
        "apiVersion": "v1",
        "subresource": "status",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def container_wire(
    name: str = "main",
    *,
    ports: Mapping[str, int] | None = None,
    startup_probe: bool = False,
    sidecar: bool = False,
) -> Json:
    wire: Json = {"name": name}
    if ports:
        wire["ports"] = [{"name": port, "containerPort": number} for port, number in ports.items()]
    if startup_probe:
        wire["startupProbe"] = {"exec": {"command": ["true"]}}
    if sidecar:
        wire["restartPolicy"] = "Always"
    return wire


def condition_wire(type: str, status: str = "True", **more: str) -> Json:
    return {"type": type, "status": status, **more}


def pod_wire(
    name: str = "web-0",
    *,
    namespace: str = "default",
    uid: str = "",
    node: str = "node-1",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    ip: str = "127.1.0.1",
    phase: str = "Running",
    initialized: bool = True,
    containers: Sequence[Json] | None = None,
    init_containers: Sequence[Json] = (),
    started: Iterable[str] = (),
    conditions: Sequence[Json] = (),
    readiness_gates: Iterable[str] = (),
    owned: Json | None = None,
    deleting: bool = False,
) -> Json:
    """A running, initialised pod `app=web` on `node-1`, with one container `main`."""
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "resourceVersion": "1",
        "creationTimestamp": CREATED,
        "labels": dict(labels) if labels is not None else {"app": "web"},
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owned:
        metadata["managedFields"] = [owned]
    if deleting:
        metadata["deletionTimestamp"] = CREATED
    spec: Json = {
        "containers": list(containers) if containers is not None else [container_wire()],
        "initContainers": list(init_containers),
        "readinessGates": [{"conditionType": gate} for gate in readiness_gates],
    }
    if node:
        spec["nodeName"] = node
    native = [condition_wire("Initialized", "True" if initialized else "False")]
    status: Json = {
        "phase": phase,
        "conditions": [*native, *conditions],
        "containerStatuses": [{"name": container, "started": True} for container in started],
    }
    if ip:
        status["podIP"] = ip
    return typed("Pod", metadata=metadata, spec=spec, status=status)


def pod(name: str = "web-0", **more: Any) -> Pod:
    """See `pod_wire`."""
    return PODS.decode(msgspec.json.encode(pod_wire(name, **more)))


def policy_wire(
    state: str = "Succeeded",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    from_message: Sequence[Json] = (),
) -> Json:
    wire: Json = {"state": state}
    if from_message:
        wire["fromMessage"] = list(from_message)
    if labels:
        wire["labels"] = dict(labels)
    if annotations:
        wire["annotations"] = dict(annotations)
    return wire


def probe_wire(
    name: str = "healthy",
    *,
    container: str = "main",
    condition: str | None = "example.com/healthy",
    policies: Sequence[Json] = (),
    handler: Json | None = None,
    **numbers: int,
) -> Json:
    """An exec probe that sets a condition."""
    wire: Json = {
        "name": name,
        "containerName": container,
        "probe": {**(handler or {"exec": {"command": ["true"]}}), **numbers},
    }
    if condition:
        wire["podConditionType"] = condition
    if policies:
        wire["markerPolicy"] = list(policies)
    return wire


def marker_wire(
    name: str = "web",
    *,
    namespace: str = "default",
    uid: str = "",
    probes: Sequence[Json] | None = None,
    selector: Json | None = None,
    created: str = CREATED,
    generation: int = 1,
    finalizers: Sequence[str] = (),
    annotations: Mapping[str, str] | None = None,
    deleting: bool = False,
    status: Json | None = None,
) -> Json:
    """A marker of all pods `app=web`, with one probe."""
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "resourceVersion": "1",
        "creationTimestamp": created,
        "generation": generation,
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    if deleting:
        metadata["deletionTimestamp"] = CREATED
    wire: Json = {
        "apiVersion": MARKERS.api_version,
        "kind": MARKERS.kind,
        "metadata": metadata,
        "spec": {
            "selector": selector if selector is not None else {"matchLabels": {"app": "web"}},
            "probes": list(probes) if probes is not None else [probe_wire()],
        },
    }
    if status is not None:
        wire["status"] = status
    return wire


def marker(name: str = "web", **more: Any) -> PodProbeMarker:
    """See `marker_wire`."""
    return MARKERS.decode(msgspec.json.encode(marker_wire(name, **more)))


def node_wire(
    name: str = "node-1", *, uid: str = "", labels: Mapping[str, str] | None = None
) -> Json:
    return typed(
        "Node",
        metadata={
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": "1",
            "labels": dict(labels or {}),
        },
    )


def state_wire(
    name: str = "web#healthy",
    state: str = "Succeeded",
    message: str = "",
    *,
    probed: str = "2026-01-01T00:01:00Z",
    moved: str = "2026-01-01T00:01:00Z",
    probe_hash: str = "",
) -> Json:
    wire: Json = {"name": name, "state": state}
    if message:
        wire["message"] = message
    if probe_hash:
        wire["probeHash"] = probe_hash
    if probed:
        wire["lastProbeTime"] = probed
    if moved:
        wire["lastTransitionTime"] = moved
    return wire


def state(
    name: str = "web#healthy", state: str = "Succeeded", message: str = "", **more: str
) -> ContainerProbeState:
    """See `state_wire`."""
    return msgspec.convert(state_wire(name, state, message, **more), ContainerProbeState)


def states(*each: ContainerProbeState) -> dict[str, ContainerProbeState]:
    return {state.name: state for state in each}


def pod_status_wire(of: Json, *states: Json) -> Json:
    """The results of one pod, given as `pod_wire`."""
    meta = of["metadata"]
    return {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "probeStates": list(states),
    }


def npp_wire(
    name: str = "node-1",
    *,
    entries: Sequence[Json] = (),
    statuses: Sequence[Json] = (),
    owner_uid: str = "",
) -> Json:
    """A NodePodProbe owned by its Node."""
    wire: Json = {
        "apiVersion": NODE_POD_PROBES.api_version,
        "kind": NODE_POD_PROBES.kind,
        "metadata": {
            "name": name,
            "uid": f"uid-npp-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "ownerReferences": [typed("Node", name=name, uid=owner_uid or f"uid-{name}")],
        },
        "spec": {"podProbes": list(entries)} if entries else {},
    }
    if statuses:
        wire["status"] = {"podProbeStatuses": list(statuses)}
    return wire


def lease_wire(
    node: str = "node-1",
    *,
    renewed: str = "2026-01-01T00:00:00.000000Z",
    seconds: int = 60,
    name: str = "",
) -> Json:
    """The Lease of the daemon of `node`, or another Lease."""
    return typed(
        "Lease",
        metadata={
            "name": name or daemon_lease_name(node),
            "namespace": "kruise-system",
            "uid": f"uid-lease-{node}",
            "resourceVersion": "1",
        },
        spec={
            "holderIdentity": node,
            "leaseDurationSeconds": seconds,
            "renewTime": renewed,
        },
    )
