"""The table columns of the built-in kinds.

Source: kubernetes pkg/printers/internalversion/printers.go.
Differs: shorter column descriptions.
"""

from datetime import datetime
from typing import Final

from kruise_probe_playground.apiserver.columns import Column, age, text_at
from kruise_probe_playground.apiserver.pod_printer import pod_ready, pod_restarts, pod_status
from kruise_probe_playground.apiserver.replica_sets import scale_of
from kruise_probe_playground.apiserver.schema import Json

_NONE: Final = "<none>"
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def _age(of: Json, now: datetime) -> str:
    return age(of["metadata"].get("creationTimestamp"), now)


NAME: Final = Column(
    "Name", text_at("metadata.name"), format="name", description="Name of the object."
)
AGE: Final = Column("Age", _age, description="Time since its creation.")


def _pod_ip(pod: Json, _: datetime) -> str:
    addresses = (pod.get("status") or {}).get("podIPs") or ()
    return (addresses[0].get("ip") if addresses else "") or _NONE


def _gates(pod: Json, _: datetime) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return _NONE
    conditions = (pod.get("status") or {}).get("conditions") or ()
    states = {each["type"]: each.get("status") for each in reversed(conditions)}
    passed = sum(states.get(each["conditionType"]) == "True" for each in gates)
    return f"{passed}/{len(gates)}"


PODS: Final = (
    NAME,
    Column("Ready", lambda pod, _: pod_ready(pod)),
    Column("Status", lambda pod, _: pod_status(pod)),
    Column("Restarts", pod_restarts),
    AGE,
    Column("IP", _pod_ip, wide=True),
    Column("Node", text_at("spec.nodeName", _NONE), wide=True),
    Column("Nominated Node", text_at("status.nominatedNodeName", _NONE), wide=True),
    Column("Readiness Gates", _gates, wide=True),
)


def _node_status(node: Json, _: datetime) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = {each["type"]: each.get("status") for each in conditions}.get("Ready")
    shown = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        shown.append("SchedulingDisabled")
    return ",".join(shown)


def _node_roles(node: Json, _: datetime) -> str:
    roles = set()
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or _NONE


def _kernel(node: Json, _: datetime) -> str:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    kernel, architecture = info.get("kernelVersion") or "<unknown>", info.get("architecture")
    return f"{kernel} ({architecture})" if architecture else kernel


def _node_address(node: Json, kind: str) -> str:
    for each in (node.get("status") or {}).get("addresses") or ():
        if each.get("type") == kind:
            return each.get("address") or ""
    return _NONE


NODES: Final = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    Column("Version", text_at("status.nodeInfo.kubeletVersion")),
    Column("Internal-IP", lambda node, _: _node_address(node, "InternalIP"), wide=True),
    Column("External-IP", lambda node, _: _node_address(node, "ExternalIP"), wide=True),
    Column("OS-Image", text_at("status.nodeInfo.osImage", "<unknown>"), wide=True),
    Column("Kernel-Version", _kernel, wide=True),
    Column(
        "Container-Runtime",
        text_at("status.nodeInfo.containerRuntimeVersion", "<unknown>"),
        wide=True,
    ),
)


def _first_seen(event: Json, now: datetime) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: Json, now: datetime) -> str:
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp")
    return age(last, now) if last else _first_seen(event, now)


def _involved(event: Json, _: datetime) -> str:
    involved = event.get("involvedObject") or {}
    kind = (involved.get("kind") or "").lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _source(event: Json, _: datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _count(event: Json, _: datetime) -> int:
    series = event.get("series") or {}
    count: int = series.get("count") or event.get("count") or 1
    return count


EVENTS: Final = (
    Column("Last Seen", _last_seen),
    Column("Type", text_at("type")),
    Column("Reason", text_at("reason")),
    Column("Object", _involved),
    Column("Subobject", text_at("involvedObject.fieldPath"), wide=True),
    Column("Source", _source, wide=True),
    Column("Message", lambda event, _: (event.get("message") or "").strip()),
    Column("First Seen", _first_seen, wide=True),
    Column("Count", _count, wide=True),
    Column("Name", text_at("metadata.name"), wide=True, format="name"),
)


def _containers(replica_set: Json, key: str) -> str:
    containers = replica_set["spec"]["template"]["spec"].get("containers") or ()
    return ",".join(each.get(key) or "" for each in containers)


REPLICA_SETS: Final = (
    NAME,
    Column("Desired", lambda it, _: it["spec"]["replicas"], "integer"),
    Column("Current", lambda it, _: it["status"]["replicas"], "integer"),
    Column("Ready", lambda it, _: it["status"].get("readyReplicas", 0), "integer"),
    AGE,
    Column("Containers", lambda it, _: _containers(it, "name"), wide=True),
    Column("Images", lambda it, _: _containers(it, "image"), wide=True),
    Column("Selector", lambda it, _: scale_of(it)["status"]["selector"], wide=True),
)


def _ports(service: Json, _: datetime) -> str:
    ports = service["spec"].get("ports") or ()
    return ",".join(f"{each['port']}/{each['protocol']}" for each in ports) or _NONE


def _selector(service: Json, _: datetime) -> str:
    selector = service["spec"].get("selector") or {}
    return ",".join(f"{key}={selector[key]}" for key in sorted(selector)) or _NONE


def _data(of: Json, _: datetime) -> int:
    return len(of.get("data") or ()) + len(of.get("binaryData") or ())


_DATA: Final = Column("Data", _data)
CONFIG_MAPS: Final = (NAME, _DATA, AGE)
SECRETS: Final = (NAME, Column("Type", text_at("type")), _DATA, AGE)
SERVICES: Final = (
    NAME,
    Column("Type", text_at("spec.type")),
    Column("Cluster-IP", text_at("spec.clusterIP", _NONE)),
    Column("External-IP", lambda it, _: _NONE),
    Column("Port(s)", _ports),
    AGE,
    Column("Selector", _selector, wide=True),
)
NAMESPACES: Final = (NAME, Column("Status", text_at("status.phase")), AGE)
SERVICE_ACCOUNTS: Final = (NAME, AGE)
LEASES: Final = (NAME, Column("Holder", text_at("spec.holderIdentity")), AGE)
DEFINITIONS: Final = (NAME, Column("Created At", text_at("metadata.creationTimestamp"), "date"))
