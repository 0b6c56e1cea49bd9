"""The table columns of the built-in kinds.

Source: kubernetes pkg/printers/internalversion/printers.go.
Differs: shorter column descriptions; only pods have the columns of `-o wide`; nodes have no roles.
"""

from datetime import datetime
from typing import Final

from kruise_probe_playground.apiserver.columns import Column, age, text_at
from kruise_probe_playground.apiserver.pod_printer import pod_ready, pod_restarts, pod_status
from kruise_probe_playground.apiserver.schema import Json

_NONE: Final = "<none>"


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


NODES: Final = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", lambda node, _: _NONE),
    AGE,
    Column("Version", text_at("status.nodeInfo.kubeletVersion")),
)


def _last_seen(event: Json, now: datetime) -> str:
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp")
    return age(last or event.get("firstTimestamp") or event.get("eventTime"), now)


def _involved(event: Json, _: datetime) -> str:
    involved = event.get("involvedObject") or {}
    kind = (involved.get("kind") or "").lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


EVENTS: Final = (
    Column("Last Seen", _last_seen),
    Column("Type", text_at("type")),
    Column("Reason", text_at("reason")),
    Column("Object", _involved),
    Column("Message", lambda event, _: (event.get("message") or "").strip()),
)


REPLICA_SETS: Final = (
    NAME,
    Column("Desired", lambda it, _: it["spec"]["replicas"], "integer"),
    Column("Current", lambda it, _: it["status"]["replicas"], "integer"),
    Column("Ready", lambda it, _: it["status"].get("readyReplicas", 0), "integer"),
    AGE,
)


NAMESPACES: Final = (NAME, Column("Status", text_at("status.phase")), AGE)
LEASES: Final = (NAME, Column("Holder", text_at("spec.holderIdentity")), AGE)
DEFINITIONS: Final = (NAME, Column("Created At", text_at("metadata.creationTimestamp"), "date"))
