"""What users see of a world, in a form in which two worlds can be compared."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from simulation.world import World
from support.wire import Json, decoded

from kruise_probe.api.names import REASON_PROBE_REMOVED, daemon_lease_name
from kruise_probe.api.pods import names_of
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import parse_time
from kruise_probe.controllers.conditions import conflict

OURS = "c/"
"""Prefix of the condition types of the markers."""


def looks(world: World) -> Json:
    """Everything but times, uids and versions."""
    pods = world.objects(PODS)
    names = {pod["metadata"]["uid"]: f"uid of {name}" for name, pod in pods.items()}
    shown: Json = {"leases": _leases(world)}
    for name, pod in pods.items():
        shown[f"pod {name}"] = _pod(pod)
    for name, plan in world.objects(NODE_POD_PROBES).items():
        shown[f"nodepodprobe {name}"] = _plan(plan, names, world)
    for name, marker in world.objects(MARKERS).items():
        shown[f"marker {name}"] = _marker(marker)
    return shown


def _leases(world: World) -> list[str]:
    """Without those of daemons that have no entries: after its Node was deleted, such a one has none."""
    leases = set(world.objects(LEASES))
    for name, plan in world.objects(NODE_POD_PROBES).items():
        if not _entries(plan):
            leases.discard(daemon_lease_name(name))
    return sorted(leases)


def _entries(plan: Json) -> list[Json]:
    return (plan.get("spec") or {}).get("podProbes") or []


def statuses(plan: Json) -> list[Json]:
    """The results of each pod of a NodePodProbe."""
    return (plan.get("status") or {}).get("podProbeStatuses") or []


def states(plan: Json) -> Iterator[tuple[str, Json]]:
    """All results of a NodePodProbe, with the uids of their pods."""
    for pod in statuses(plan):
        for state in pod.get("probeStates") or ():
            yield pod["uid"], state


def _pod(pod: Json) -> Json:
    meta = pod["metadata"]
    owned = decoded(PODS, pod).owned
    fields = ("labels", "annotations", "conditions")
    return {
        "labels": meta["labels"],
        "annotations": meta.get("annotations") or {},
        "conditions": _conditions(pod["status"]["conditions"]),
        "owned": {field: sorted(names_of(owned, field)) for field in fields},
    }


def _plan(plan: Json, names: dict[str, str], world: World) -> Json:
    nodes = {node["metadata"]["uid"]: name for name, node in world.objects(NODES).items()}
    owners = plan["metadata"].get("ownerReferences") or ()
    entries = [{**entry, "uid": names.get(entry["uid"], "unknown")} for entry in _entries(plan)]
    status: Json = {}
    for pod in statuses(plan):
        shown: Json = {"uid": names.get(pod["uid"], "unknown")}
        for state in pod.get("probeStates") or ():
            message = state.get("message", "")
            shown[state["name"]] = (state["state"], message)
        status[pod["name"]] = shown
    return {
        "owners": [nodes.get(owner["uid"], "unknown") for owner in owners],
        "spec": sorted(entries, key=lambda entry: str(entry["name"])),
        "status": status,
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
    found = _conditions(conditions or [])
    found.pop("Ready", None)
    _, reason, _ = found.get("Conflict", ("", "", ""))
    if reason.startswith("ChangedBy"):
        none = conflict(())
        found["Conflict"] = (none.status, none.reason, none.message)
    return found


def _conditions(conditions: list[Json]) -> Json:
    """Status, reason and message by type."""
    found = {}
    for condition in conditions:
        reason = condition.get("reason", "")
        message = condition.get("message", "")
        found[condition["type"]] = (condition["status"], reason, message)
    return found


def differences(actual: Any, expected: Any, path: str = "") -> list[str]:
    """One line for each value that differs."""
    if actual == expected:
        return []
    if not isinstance(actual, dict) or not isinstance(expected, dict):
        return [f"{path}: is {actual!r}, should be {expected!r}"]
    lines = []
    for key in sorted(actual.keys() | expected.keys()):
        value = actual.get(key, "absent")
        wanted = expected.get(key, "absent")
        lines += differences(value, wanted, f"{path}/{key}")
    return lines


def wrong_times(world: World) -> list[str]:
    """Conditions whose times are not those of their result, or are in an impossible order."""
    problems = []
    probed = set()
    for uid, state in chain(*map(states, world.objects(NODE_POD_PROBES).values())):
        if parse_time(state.get("lastProbeTime")):
            probed.add((uid, state["name"]))
    owners = list(chain(*map(condition_owners, world.objects(MARKERS).values())))
    for name, pod in world.objects(PODS).items():
        uid = pod["metadata"]["uid"]
        for condition in pod["status"]["conditions"]:
            kind = condition["type"]
            if not kind.startswith(OURS) or condition.get("reason") == REASON_PROBE_REMOVED:
                continue
            times = [condition.get("lastProbeTime"), condition.get("lastTransitionTime")]
            probes = [probe for owned, probe in owners if owned == kind]
            if not all(map(parse_time, times)):
                problems.append(f"pod {name}: condition {kind} has no times")
            elif not any((uid, probe) in probed for probe in probes):
                problems.append(f"pod {name}: condition {kind} has no result")
    return problems


def condition_owners(marker: Json) -> Iterator[tuple[str, str]]:
    """The types of the conditions of a marker, each with the name of its probe in a NodePodProbe."""
    for probe in marker["spec"]["probes"]:
        kind = probe.get("podConditionType")
        if kind:
            yield kind, f"{marker['metadata']['name']}#{probe['name']}"
