"""What keeps the probes of a marker from working, one `Problem` for each. Pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from kruise_probe.api.names import (
    LEFT_OUT_REASONS,
    MARKER_FINALIZER,
    REASON_DAEMON_STALE,
    REASON_PAUSED,
)
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.markers.conditions import (
    INVALID_SPEC,
    VALUE_INVALID,
)
from kruise_probe.inspection.link import Link, LinkState, broken, paused_remedy, remedy_of, waiting
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.selectors import distance, selector_text, why_not
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.spec_links import paused_text
from kruise_probe.inspection.traces import ProbeTrace, readiness_gates_of
from kruise_probe.inspection.views import Problem


def marker_problems(
    snapshot: Snapshot, marker: PodProbeMarker, compiled: CompiledMarker
) -> list[Problem]:
    """Problems of the marker itself, independent of its pods."""
    if marker.deleting:
        since = marker.metadata.deletion_timestamp
        finalizers = marker.metadata.finalizers or ()
        text = f"is being deleted since {since}; held by {', '.join(finalizers) or 'nothing'}"
        held_by_us = not finalizers or MARKER_FINALIZER in finalizers
        remedy = remedy_of("MarkerDeleting" if held_by_us else "MarkerHeld")
        return [_of_marker(waiting("marker", "MarkerDeleting", text, remedy))]
    links = [broken("marker", INVALID_SPEC, str(error)) for error in compiled.errors]
    if compiled.paused:
        text = paused_text("this PodProbeMarker")
        remedy = paused_remedy("podprobemarker", marker.key)
        links.append(waiting("marker", REASON_PAUSED, text, remedy))
    return [_of_marker(each) for each in links]


def no_pods(snapshot: Snapshot, marker: CompiledMarker) -> Problem:
    """That the marker selects no pod, with the closest pod of its namespace."""
    selector, pods = marker.selector, snapshot.pods_in(marker.key.namespace)
    text = f"no pod of namespace {marker.key.namespace} has {selector_text(selector)}"
    if pods:
        closest = min(pods, key=lambda each: distance(selector, each.labels))
        text += f"; closest is pod {closest.name}: {why_not(selector, closest.labels)}"
    else:
        text += "; the namespace has no pods"
    return _of_marker(waiting("selector", "NoPods", text))


def reported_problems(snapshot: Snapshot, marker: PodProbeMarker, links: set[str]) -> list[Problem]:
    """Problems from the marker's conditions, unless a broken link reports the same problem.

    A marker's status may be one second old, so nodes that are behind are found in NodePodProbes if these can be read.
    """
    covered = frozenset() if snapshot.node_pod_probes is None else _VISIBLE_IN_NODE_POD_PROBES
    return [
        _of_marker(broken("marker", each.reason, each.message))
        for each in (marker.status and marker.status.conditions) or ()
        if each.status == _BAD_STATUS.get(each.type)
        and each.reason not in covered
        and not links & _REPORTED_BY_LINKS.get(each.reason, frozenset())
        and not snapshot.is_recent(each.last_transition_time)
    ]


_VISIBLE_IN_NODE_POD_PROBES: Final = frozenset({"NodesBehind"})
_BAD_STATUS: Final = {"Synced": "False", "Degraded": "True", "Conflict": "True"}
_REPORTED_BY_LINKS: Final = {
    "NodesBehind": frozenset({"NodePodProbe", "marker", "manager"}),
    "Deleting": frozenset({"marker"}),
    INVALID_SPEC: frozenset({"marker"}),
    "ContainerNotFound": frozenset({"container"}),
    "PodNotMarked": frozenset({"condition", "marks"}),
    REASON_DAEMON_STALE: frozenset({"daemon"}),
    "ClaimedByAnother": frozenset({"condition", "marks"}),
    VALUE_INVALID: frozenset({"marks"}),
    **dict.fromkeys(LEFT_OUT_REASONS, frozenset({"NodePodProbe"})),
}
"""By reason of a condition: the links that report the same problem in more detail."""


def pod_problems(snapshot: Snapshot, seen: SeenPod, traces: Iterable[ProbeTrace]) -> list[Problem]:
    """The first broken link of each probe on the pod, and readiness gates that nothing sets."""
    problems = [
        _of_pod(trace.end, seen, trace.context.probe.name)
        for trace in traces
        if trace.end is not None and not _is_of_marker(trace.end.reason, trace.context.marker)
    ]
    problems += [
        _of_pod(each, seen)
        for each in readiness_gates_of(snapshot, seen)
        if each.state is LinkState.BROKEN
    ]
    return problems


def _is_of_marker(reason: str, marker: CompiledMarker) -> bool:
    """Whether the reason is no problem of the pod, or is reported once for the marker."""
    if reason == INVALID_SPEC:
        return bool(marker.errors)
    if reason == REASON_PAUSED:
        return marker.paused
    return reason in _NOT_OF_POD


_NOT_OF_POD: Final = frozenset({"MarkerDeleting", "PodFinished", "PodTerminating", "ResultNew"})
"""ResultNew: the manager needs a moment for each result, so a probe that changes often would be reported all the time."""


def _of_pod(link: Link, seen: SeenPod, probe: str = "") -> Problem:
    problem = _of_marker(link)
    return msgspec.structs.replace(problem, pod=seen.pod.name, probe=probe, node=seen.pod.node)


def _of_marker(link: Link) -> Problem:
    return Problem(link.state, link.name, link.reason, link.text, link.remedy)
