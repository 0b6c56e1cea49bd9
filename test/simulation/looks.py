"""What users see of a world, in a form in which two worlds can be compared."""

from datetime import datetime
from typing import Any

import msgspec
from simulation.world import World
from support.wire import Json

from kruise_probe.api.names import REASON_PROBE_REMOVED, daemon_lease_name
from kruise_probe.api.pods import names_of
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import parse_time
from kruise_probe.controllers.conditions import conflict

OURS = "c/"
"""Prefix of the condition types of the markers."""


def looks(world: World) -> dict[str, Any]:
    """Everything but times, uids and versions."""
    pods = world.objects(PODS)
    names = {pod["metadata"]["uid"]: f"uid of {name}" for name, pod in pods.items()}
    return {
        **{f"pod {name}": _pod(pod) for name, pod in pods.items()},
        **{
            f"nodepodprobe {name}": _plan(plan, names, world)
            for name, plan in world.objects(NODE_POD_PROBES).items()
        },
        **{f"marker {name}": _marker(marker) for name, marker in world.objects(MARKERS).items()},
        "leases": _leases(world),
    }


def _leases(world: World) -> list[str]:
    """Without those of daemons that have no entries: after its Node was deleted, such a one has none."""
    idle = set()
    for name, plan in world.objects(NODE_POD_PROBES).items():
        if not (plan.get("spec") or {}).get("podProbes"):
            idle.add(daemon_lease_name(name))
    return sorted(set(world.objects(LEASES)) - idle)


def _pod(pod: Json) -> Json:
    meta = pod["metadata"]
    owned = PODS.decode(msgspec.json.encode(pod)).owned
    return {
        "labels": meta["labels"],
        "annotations": meta.get("annotations") or {},
        "conditions": _conditions(pod["status"]["conditions"]),
        "owned": {
            field: sorted(names_of(owned, field))
            for field in ("labels", "annotations", "conditions")
        },
    }


def _plan(plan: Json, names: dict[str, str], world: World) -> Json:
    owners = plan["metadata"].get("ownerReferences") or ()
    nodes = {node["metadata"]["uid"]: name for name, node in world.objects(NODES).items()}
    entries = (plan.get("spec") or {}).get("podProbes") or ()
    results = (plan.get("status") or {}).get("podProbeStatuses") or ()
    return {
        "owners": [nodes.get(owner["uid"], "unknown") for owner in owners],
        "spec": sorted(
            ({**entry, "uid": names.get(entry["uid"], "unknown")} for entry in entries),
            key=lambda entry: str(entry["name"]),
        ),
        "status": {
            pod["name"]: {
                "uid": names.get(pod["uid"], "unknown"),
                **{
                    state["name"]: (state["state"], state.get("message", ""))
                    for state in pod.get("probeStates") or ()
                },
            }
            for pod in results
        },
    }


def _marker(marker: Json) -> Json:
    status = dict(marker.get("status") or {})
    return {
        "current": status.pop("observedGeneration", 0) == marker["metadata"]["generation"],
        "finalizers": marker["metadata"].get("finalizers") or [],
        "conditions": _marker_conditions(status.pop("conditions", None)),
        **status,
    }


def _marker_conditions(conditions: list[Json] | None) -> Json:
    """Without what depends on what happened before: Ready, and what others changed in the last ten minutes."""
    found = _conditions(conditions)
    found.pop("Ready", None)
    status, reason, _ = found.get("Conflict", ("", "", ""))
    if status and reason.startswith("ChangedBy"):
        none = conflict(())
        found["Conflict"] = (none.status, none.reason, none.message)
    return found


def _conditions(conditions: list[Json] | None) -> Json:
    return {
        condition["type"]: (
            condition["status"],
            condition.get("reason", ""),
            condition.get("message", ""),
        )
        for condition in conditions or ()
    }


def differences(actual: Any, expected: Any, path: str = "") -> list[str]:
    """One line for each value that differs."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        return [
            line
            for key in sorted(actual.keys() | expected.keys())
            for line in differences(
                actual.get(key, "absent"), expected.get(key, "absent"), f"{path}/{key}"
            )
        ]
    return [] if actual == expected else [f"{path}: is {actual!r}, should be {expected!r}"]


def wrong_times(world: World) -> list[str]:
    """Conditions whose times are not those of their result, or are in an impossible order."""
    problems = []
    results = {
        (pod["uid"], state["name"]): state
        for plan in world.objects(NODE_POD_PROBES).values()
        for pod in (plan.get("status") or {}).get("podProbeStatuses") or ()
        for state in pod.get("probeStates") or ()
    }
    wanted = _condition_owners(world)
    for name, pod in world.objects(PODS).items():
        for condition in pod["status"]["conditions"]:
            if (
                not condition["type"].startswith(OURS)
                or condition.get("reason") == REASON_PROBE_REMOVED
            ):
                continue
            probed = _time(condition.get("lastProbeTime"))
            moved = _time(condition.get("lastTransitionTime"))
            where = f"pod {name}: condition {condition['type']}"
            if moved is None or probed is None:
                problems.append(f"{where} has no times")
                continue
            supporting = (
                results.get((pod["metadata"]["uid"], key), {})
                for key in wanted.get(condition["type"], ())
            )
            if not any(_time(state.get("lastProbeTime")) for state in supporting):
                problems.append(f"{where} has no result")
    return problems


def _condition_owners(world: World) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = {}
    for name, marker in world.objects(MARKERS).items():
        for probe in marker["spec"]["probes"]:
            if "podConditionType" in probe:
                owners.setdefault(probe["podConditionType"], []).append(f"{name}#{probe['name']}")
    return owners


def _time(text: str | None) -> datetime | None:
    return parse_time(text) if text else None
