"""Objects for tests: each builder fills in what a test does not care about.

`*_wire` builders give JSON as an API server has it; the others decode it, so that nothing is built that the wire
cannot carry.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from support.wire import Json, decoded, typed

from kruise_probe.api.names import MANAGER_FIELD_MANAGER, daemon_lease_name
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.pods import Pod
from kruise_probe.api.probe import Probe
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbeMarker

CREATED = "2026-01-01T00:00:00Z"


def entry_of(probe: Probe, **criteria: Json) -> ContainerProbe:
    """An entry of a NodePodProbe. `criteria` are `extract` and `successWhen`."""
    entry = ContainerProbe("marker#probe", "main", probe)
    return msgspec.convert({**msgspec.to_builtins(entry), **criteria}, ContainerProbe)


def owned_fields(
    *,
    labels: Iterable[str] = (),
    annotations: Iterable[str] = (),
    conditions: Iterable[str] = (),
) -> Json:
    """The managedFields entry that says that our manager wrote these."""
    keys = [f'k:{{"type":"{condition}"}}' for condition in conditions]
    fields: Json = {
        "f:metadata": {
            "f:labels": {f"f:{key}": {} for key in labels},
            "f:annotations": {f"f:{key}": {} for key in annotations},
        },
        "f:status": {
            "f:conditions": {key: {".": {}, "f:status": {}} for key in keys},
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


def given(**fields: Any) -> Json:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value}


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


def _metadata(
    name: str,
    namespace: str,
    uid: str,
    created: str,
    annotations: Mapping[str, str] | None,
    deleting: bool,
) -> Json:
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "resourceVersion": "1",
        "creationTimestamp": created,
        **given(
            annotations=dict(annotations or {}),
            deletionTimestamp=CREATED if deleting else "",
        ),
    }


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
    native = condition_wire("Initialized", "True" if initialized else "False")
    return typed(
        "Pod",
        metadata={
            **_metadata(
                name,
                namespace,
                uid,
                CREATED,
                annotations,
                deleting,
            ),
            "labels": {"app": "web"} if labels is None else dict(labels),
            **given(managedFields=[owned] if owned else []),
        },
        spec={
            "containers": [container_wire()] if containers is None else list(containers),
            "initContainers": list(init_containers),
            "readinessGates": [{"conditionType": gate} for gate in readiness_gates],
            **given(nodeName=node),
        },
        status={
            "phase": phase,
            "conditions": [native, *conditions],
            "containerStatuses": [{"name": container, "started": True} for container in started],
            **given(podIP=ip),
        },
    )


def pod(name: str = "web-0", **more: Any) -> Pod:
    """See `pod_wire`."""
    return decoded(PODS, pod_wire(name, **more))


def policy_wire(
    state: str = "Succeeded",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    from_message: Sequence[Json] = (),
) -> Json:
    return {
        "state": state,
        **given(
            fromMessage=list(from_message),
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
        ),
    }


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
    return {
        "name": name,
        "containerName": container,
        "probe": {**(handler or {"exec": {"command": ["true"]}}), **numbers},
        **given(podConditionType=condition, markerPolicy=list(policies)),
    }


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
    wire = typed(
        "PodProbeMarker",
        metadata={
            **_metadata(
                name,
                namespace,
                uid,
                created,
                annotations,
                deleting,
            ),
            "generation": generation,
            **given(finalizers=list(finalizers)),
        },
        spec={
            "selector": {"matchLabels": {"app": "web"}} if selector is None else selector,
            "probes": [probe_wire()] if probes is None else list(probes),
        },
    )
    if status is not None:
        wire["status"] = status
    return wire


def marker(name: str = "web", **more: Any) -> PodProbeMarker:
    """See `marker_wire`."""
    return decoded(MARKERS, marker_wire(name, **more))


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
    return {
        "name": name,
        "state": state,
        **given(
            message=message,
            probeHash=probe_hash,
            lastProbeTime=probed,
            lastTransitionTime=moved,
        ),
    }


def state(
    name: str = "web#healthy", state: str = "Succeeded", message: str = "", **more: str
) -> ContainerProbeState:
    """See `state_wire`."""
    return msgspec.convert(state_wire(name, state, message, **more), ContainerProbeState)


def states(*states: ContainerProbeState) -> dict[str, ContainerProbeState]:
    return {state.name: state for state in states}


def pod_status_wire(of: Json, *states: Json) -> Json:
    """The results of one pod, given as `pod_wire`."""
    named = {key: of["metadata"][key] for key in ("name", "namespace", "uid")}
    return {**named, "probeStates": list(states)}


def npp_wire(
    name: str = "node-1",
    *,
    entries: Sequence[Json] = (),
    statuses: Sequence[Json] = (),
    owner_uid: str = "",
) -> Json:
    """A NodePodProbe owned by its Node."""
    wire = typed(
        "NodePodProbe",
        metadata={
            "name": name,
            "uid": f"uid-npp-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "ownerReferences": [typed("Node", name=name, uid=owner_uid or f"uid-{name}")],
        },
        spec=given(podProbes=list(entries)),
    )
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
