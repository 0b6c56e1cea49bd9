"""Columns of tables for `kubectl get`: of the built-in kinds, and the printer columns of CustomResourceDefinitions.

Source: metav1.TableColumnDefinition; kubernetes pkg/printers/internalversion/printers.go; client-go util/jsonpath;
apiextensions-apiserver pkg/registry/customresource/tableconvertor.
Differs: shorter descriptions; only pods have the columns of `-o wide`; nodes have no roles; ages have one unit (`2m`);
the states of pods are those of their containers, without init containers and sidecars. JSONPath has only fields and `[?(@.type=="Ready")]`, which yields the first match.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.times import age
from kruise_probe_playground.apiserver.schema import Json

_NONE: Final = "<none>"
_STEP: Final = re.compile(
    r"""\.(?P<field>[^.\[\]]+) | \[\?\(@\.(?P<key>\w+)\s*==\s*['"](?P<value>[^'"]*)['"]\)\]""",
    re.VERBOSE,
)

Cell = Callable[[Json, datetime], Any]
"""Returns the value of a column for an object at a time."""


class Column(NamedTuple):
    """`wide` columns need `-o wide`."""

    name: str
    cell: Cell
    type: str = "string"
    wide: bool = False

    @property
    def definition(self) -> Json:
        """For kubectl: in the column of format name it writes the kind before the name."""
        form = "name" if self.name == "Name" else ""
        return {
            "name": self.name,
            "type": self.type,
            "format": form,
            "priority": int(self.wide),
        }


def cell_of(
    path: str,
    column_type: str = "string",
    absent: Any = None,
) -> Cell:
    """Return the function that reads a table's cell at a path of fields and `[?(@.key=="value")]`, or `absent`."""
    steps = list(_STEP.finditer(path))

    def cell(of: Any, now: datetime) -> Any:
        for step in steps:
            of = _next(of, step)
        return absent if of is None else _as(of, column_type, now)

    return cell


def _next(value: Any, step: re.Match[str]) -> Any:
    if step["field"]:
        return value.get(step["field"]) if isinstance(value, dict) else None
    items = value if isinstance(value, list) else ()
    for item in items:
        if isinstance(item, dict) and item.get(step["key"]) == step["value"]:
            return item
    return None


def _as(value: Any, column_type: str, now: datetime) -> Any:
    match column_type:
        case "integer":
            return int(value) if isinstance(value, (int, float)) else None
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case _:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()


NAME: Final = Column("Name", cell_of(".metadata.name"))
AGE: Final = Column("Age", cell_of(".metadata.creationTimestamp", "date", "<unknown>"))


def _listed(pod: Json, key: str) -> Sequence[Json]:
    return (pod.get("status") or {}).get(key) or ()


def _is_true(pod: Json, condition: str) -> bool:
    return any(
        item["type"] == condition and item.get("status") == "True"
        for item in _listed(pod, "conditions")
    )


def _reason(status: Json) -> str:
    """Why a container does not run, or nothing."""
    state = status.get("state") or {}
    if ended := state.get("terminated"):
        return ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    return (state.get("waiting") or {}).get("reason") or ""


def _runs(status: Json) -> bool:
    return bool(status.get("ready")) and "running" in (status.get("state") or {})


def _ready(pod: Json, _: datetime) -> str:
    """`1/2`: ready containers, and all of them."""
    ready = sum(map(_runs, _listed(pod, "containerStatuses")))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _status(pod: Json, _: datetime) -> str:
    """The phase, or a more specific reason."""
    status = pod.get("status") or {}
    phase = status.get("phase") or ""
    if "deletionTimestamp" in pod["metadata"] and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    containers = _listed(pod, "containerStatuses")
    reasons = sorted(
        map(_reason, containers),
        key=lambda each: each == "Completed",
    )
    reason: str = next(filter(None, (*reasons, status.get("reason"), phase)), "")
    if reason == "Completed" and any(map(_runs, containers)):
        return "Running" if _is_true(pod, "Ready") else "NotReady"
    return reason


def _restarts(pod: Json, _: datetime) -> str:
    return str(sum(status.get("restartCount", 0) for status in _listed(pod, "containerStatuses")))


def _gates(pod: Json, _: datetime) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    passed = sum(_is_true(pod, gate["conditionType"]) for gate in gates)
    return f"{passed}/{len(gates)}" if gates else _NONE


PODS: Final = (
    NAME,
    Column("Ready", _ready),
    Column("Status", _status),
    Column("Restarts", _restarts),
    AGE,
    Column("IP", cell_of(".status.podIP", absent=_NONE), wide=True),
    Column("Node", cell_of(".spec.nodeName", absent=_NONE), wide=True),
    Column("Nominated Node", cell_of(".status.nominatedNodeName", absent=_NONE), wide=True),
    Column("Readiness Gates", _gates, wide=True),
)


def _node_status(node: Json, _: datetime) -> str:
    ready = "Ready" if _is_true(node, "Ready") else "NotReady"
    cordoned = (node.get("spec") or {}).get("unschedulable")
    return f"{ready},SchedulingDisabled" if cordoned else ready


NODES: Final = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", lambda node, _: _NONE),
    AGE,
    Column("Version", cell_of(".status.nodeInfo.kubeletVersion", absent="")),
)


def _last_seen(event: Json, now: datetime) -> str:
    keys = ("lastTimestamp", "firstTimestamp", "eventTime")
    return age(next(filter(None, map(event.get, keys)), None), now) or "<unknown>"


def _involved(event: Json, _: datetime) -> str:
    involved = event.get("involvedObject") or {}
    return f"{(involved.get('kind') or '').lower()}/{involved.get('name') or ''}"


EVENTS: Final = (
    Column("Last Seen", _last_seen),
    Column("Type", cell_of(".type", absent="")),
    Column("Reason", cell_of(".reason", absent="")),
    Column("Object", _involved),
    Column("Message", lambda event, _: (event.get("message") or "").strip()),
)
REPLICA_SETS: Final = (
    NAME,
    Column("Desired", cell_of(".spec.replicas", "integer"), "integer"),
    Column("Current", cell_of(".status.replicas", "integer"), "integer"),
    Column("Ready", cell_of(".status.readyReplicas", "integer", 0), "integer"),
    AGE,
)
NAMESPACES: Final = (NAME, Column("Status", cell_of(".status.phase", absent="")), AGE)
LEASES: Final = (NAME, Column("Holder", cell_of(".spec.holderIdentity", absent="")), AGE)
DEFINITIONS: Final = (NAME, Column("Created At", cell_of(".metadata.creationTimestamp")))
