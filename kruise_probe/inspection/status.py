"""The view of `status`: for each marker its probes, pods, newest results and problems. Pure.

The structs are the format of `-o json`. While `version` is the same, fields may be added, but no field is renamed,
removed or changed in meaning.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

import msgspec

from kruise_probe.api.core import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.api.meta import Condition
from kruise_probe.api.names import (
    LEFT_OUT_REASONS,
    MARKER_FINALIZER,
    REASON_AGENT_STALE,
    REASON_PAUSED,
)
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import PodContainerProbe, PodProbeMarker, ProbeState
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.markers.conditions import (
    INVALID_SPEC,
    SELECTOR_CYCLE,
    VALUE_INVALID,
)
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.inspection.link import LinkState, paused_remedy, remedy_of
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.selectors import distance, selector_text, why_not
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.spec_links import pause_notes, paused_text
from kruise_probe.inspection.traces import ProbeTrace, readiness_gates_of, traces_of

JSON_VERSION: Final = 1
PENDING: Final = "Pending"
"""The state of a probe that has no result yet."""


class JsonView(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the structs for `-o json`: every field is always printed."""


class Problem(JsonView, frozen=True):
    """`severity` is `broken` or `waiting`; `link` is the link of the trace; pod and probe may be empty."""

    severity: str
    link: str
    reason: str
    message: str
    remedy: str
    pod: str
    probe: str
    node: str


class ProbeView(JsonView, frozen=True):
    """A probe of the marker, with effective numbers."""

    name: str
    container_name: str
    check: str
    initial_delay_seconds: int
    period_seconds: int
    timeout_seconds: int
    success_threshold: int
    failure_threshold: int
    pod_condition_type: str


class ResultView(JsonView, frozen=True):
    """The newest result; `state` is Succeeded, Failed, Unknown or Pending, times are RFC 3339 or empty.

    `labels` and `annotations` are those of the pod that this probe owns. `outdated`: the result is that of the probe
    before its last edit.
    """

    probe: str
    state: str
    since: str
    last_probe_time: str
    message: str
    labels: dict[str, str]
    annotations: dict[str, str]
    outdated: bool


class PodView(JsonView, frozen=True):
    name: str
    uid: str
    node: str
    phase: str
    results: list[ResultView]
    labels: dict[str, str]
    annotations: dict[str, str]


class CountsView(JsonView, frozen=True):
    """Probed pods by state. A pod is failed if any probe is Failed, succeeded if all are, otherwise unknown."""

    pods: int
    succeeded: int
    failed: int
    unknown: int


class MarkerView(JsonView, frozen=True):
    namespace: str
    name: str
    selector: str
    counts: CountsView
    conditions: list[Condition]
    probes: list[ProbeView]
    pods: list[PodView]
    problems: list[Problem]


class StatusView(JsonView, frozen=True):
    """`notes` name the kinds that could not be read, and annotations without effect."""

    version: int
    time: str
    notes: list[str]
    markers: list[MarkerView]


def status_view(
    snapshot: Snapshot, markers: Iterable[PodProbeMarker], notes: Sequence[str]
) -> StatusView:
    """The view of `markers`, sorted by namespace and name."""
    shown = sorted(markers, key=lambda each: each.key)
    return StatusView(
        version=JSON_VERSION,
        time=format_time(snapshot.now),
        notes=[
            *notes,
            *pause_notes(
                shown, (each.pod for each in snapshot.pods if snapshot.markers_of(each.pod))
            ),
        ],
        markers=[_marker_view(snapshot, each) for each in shown],
    )


def _marker_view(snapshot: Snapshot, marker: PodProbeMarker) -> MarkerView:
    compiled = snapshot.compiled[marker.key]
    pods: list[PodView] = []
    counted: list[PodView] = []
    problems = _marker_problems(snapshot, marker, compiled)
    for seen in snapshot.pods_of(compiled):
        traces = traces_of(snapshot, seen, compiled)
        pods.append(_pod_view(snapshot, seen, traces, compiled))
        if is_probed(seen.pod):
            counted.append(pods[-1])
        problems += [problem for trace in traces if (problem := _problem_of(seen, trace))]
        problems += [
            _problem(each.state, each.name, each.reason, each.text, each.remedy, seen=seen)
            for each in readiness_gates_of(snapshot, seen)
            if each.state is LinkState.BROKEN
        ]
    problems += _reported_problems(snapshot, marker, {each.link for each in problems})
    if not pods and compiled.selector.requirements and not marker.deleting:
        problems.append(_no_pods(snapshot, compiled))
    return MarkerView(
        namespace=marker.key.namespace,
        name=marker.key.name,
        selector=selector_text(compiled.selector),
        counts=_counts(counted),
        conditions=list((marker.status and marker.status.conditions) or ()),
        probes=[_probe_view(each) for each in marker.spec.probes or ()],
        pods=pods,
        problems=problems,
    )


def _problem(
    severity: str,
    link: str,
    reason: str,
    message: str,
    remedy: str,
    *,
    seen: SeenPod | None = None,
    probe: str = "",
) -> Problem:
    return Problem(
        severity=severity,
        link=link,
        reason=reason,
        message=message,
        remedy=remedy,
        pod=seen.pod.name if seen else "",
        probe=probe,
        node=seen.pod.node if seen else "",
    )


def _marker_problems(
    snapshot: Snapshot, marker: PodProbeMarker, compiled: CompiledMarker
) -> list[Problem]:
    """Problems of the marker itself, independent of its pods."""
    if marker.deleting:
        since = marker.metadata.deletion_timestamp
        finalizers = marker.metadata.finalizers or ()
        text = f"is being deleted since {since}; held by {', '.join(finalizers) or 'nothing'}"
        held_by_us = not finalizers or MARKER_FINALIZER in finalizers
        remedy = remedy_of("MarkerDeleting" if held_by_us else "MarkerHeld")
        return [_problem(LinkState.WAITING, "marker", "MarkerDeleting", text, remedy)]
    remedy = remedy_of(INVALID_SPEC)
    problems = [
        _problem(LinkState.BROKEN, "marker", INVALID_SPEC, str(error), remedy)
        for error in compiled.errors
    ]
    if compiled.paused:
        text = paused_text("this PodProbeMarker")
        remedy = paused_remedy("podprobemarker", marker.key)
        problems.append(_problem(LinkState.WAITING, "marker", REASON_PAUSED, text, remedy))
    cycle = snapshot.cycle_through(marker.key)
    if cycle:
        remedy = remedy_of(SELECTOR_CYCLE)
        problems.append(_problem(LinkState.BROKEN, "marker", SELECTOR_CYCLE, cycle, remedy))
    return problems


def _no_pods(snapshot: Snapshot, marker: CompiledMarker) -> Problem:
    """That the marker selects no pod, with the closest pod of its namespace."""
    selector, pods = marker.selector, snapshot.pods_in(marker.key.namespace)
    text = f"no pod of namespace {marker.key.namespace} has {selector_text(selector)}"
    if pods:
        closest = min(pods, key=lambda each: distance(selector, each.labels))
        text += f"; closest is pod {closest.name}: {why_not(selector, closest.labels)}"
    else:
        text += "; the namespace has no pods"
    return _problem(LinkState.WAITING, "selector", "NoPods", text, remedy_of("NoPods"))


def _reported_problems(
    snapshot: Snapshot, marker: PodProbeMarker, links: set[str]
) -> list[Problem]:
    """Problems from the marker's conditions, unless a broken link reports the same problem.

    A marker's status may be one second old, so nodes that are behind are found in NodePodProbes if these can be read.
    """
    covered = frozenset() if snapshot.node_pod_probes is None else _VISIBLE_IN_NODE_POD_PROBES
    return [
        _problem(LinkState.BROKEN, "marker", each.reason, each.message, remedy_of(each.reason))
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
    SELECTOR_CYCLE: frozenset({"marker"}),
    "ContainerNotFound": frozenset({"container"}),
    "PodNotMarked": frozenset({"condition", "marks"}),
    REASON_AGENT_STALE: frozenset({"daemon"}),
    "ClaimedByAnother": frozenset({"condition", "marks"}),
    VALUE_INVALID: frozenset({"marks"}),
    **dict.fromkeys(LEFT_OUT_REASONS, frozenset({"NodePodProbe"})),
}
"""By reason of a condition: the links that report the same problem in more detail."""


_NO_PROBLEM: Final = frozenset({"MarkerDeleting", "PodFinished", "PodTerminating", SELECTOR_CYCLE})
"""Reported once for the marker, or expected."""


def _problem_of(seen: SeenPod, trace: ProbeTrace) -> Problem | None:
    link = trace.end
    if link is None or link.reason in _NO_PROBLEM:
        return None
    if link.reason == INVALID_SPEC and trace.marker.errors:
        return None
    if link.reason == REASON_PAUSED and trace.marker.paused:
        return None
    return _problem(
        link.state,
        link.name,
        link.reason,
        link.text,
        link.remedy,
        seen=seen,
        probe=trace.probe.name,
    )


def _pod_view(
    snapshot: Snapshot, seen: SeenPod, traces: Sequence[ProbeTrace], marker: CompiledMarker
) -> PodView:
    pod = seen.pod
    return PodView(
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        phase="Terminating" if pod.deleting else pod.phase,
        results=[result_view(snapshot, seen, trace) for trace in traces],
        labels=_select(pod.labels, marker.labels),
        annotations=_select(pod.annotations, marker.annotations),
    )


def _select(values: Mapping[str, str], keys: Set[str]) -> dict[str, str]:
    return {key: values[key] for key in sorted(keys & values.keys())}


def result_view(snapshot: Snapshot, seen: SeenPod, trace: ProbeTrace) -> ResultView:
    """The node's result; Unknown if it is stale.

    Without a result in a NodePodProbe (the pod is completed or paused, or the user may not read NodePodProbes), the result
    is that of the pod's condition, if this probe owns it.
    """
    state, since, at, message = PENDING, "", "", ""
    end = trace.end
    paused = end is not None and end.reason == REASON_PAUSED
    condition = seen.pod.condition(trace.claim.condition_type if trace.claim else "")
    if trace.result is not None and not paused:
        state, message = trace.result.state, trace.result.message or ""
        since = trace.result.last_transition_time or ""
        at = trace.result.last_probe_time or ""
    elif condition is not None and (
        paused or snapshot.node_pod_probes is None or not seen.pod.active
    ):
        state = _STATE_OF_CONDITION.get(condition.status, ProbeState.UNKNOWN)
        since, message = condition.last_transition_time or "", condition.message or ""
        at = condition.last_probe_time or ""
    stale = end is not None and end.reason == REASON_AGENT_STALE and trace.result is not None
    if end is not None and (stale or end.reason in LEFT_OUT_REASONS):
        state, message = ProbeState.UNKNOWN, end.text
        since = (condition and condition.last_transition_time) or ""
    wanted = tuple(trace.claim.wanted.values()) if trace.claim else ()
    return ResultView(
        probe=trace.probe.name,
        state=state,
        since=since,
        last_probe_time=at,
        message=message,
        labels=_select(seen.pod.labels, {key for each in wanted for key, _ in each.labels}),
        annotations=_select(
            seen.pod.annotations, {key for each in wanted for key, _ in each.annotations}
        ),
        outdated=trace.is_outdated,
    )


_STATE_OF_CONDITION: Final = {"True": ProbeState.SUCCEEDED, "False": ProbeState.FAILED}


def _counts(pods: Sequence[PodView]) -> CountsView:
    failed = sum(any(each.state == ProbeState.FAILED for each in pod.results) for pod in pods)
    succeeded = sum(
        bool(pod.results) and all(each.state == ProbeState.SUCCEEDED for each in pod.results)
        for pod in pods
    )
    return CountsView(
        pods=len(pods), succeeded=succeeded, failed=failed, unknown=len(pods) - failed - succeeded
    )


def _probe_view(probe: PodContainerProbe) -> ProbeView:
    numbers = probe.probe
    return ProbeView(
        name=probe.name,
        container_name=probe.container_name,
        check=handler_text(numbers),
        initial_delay_seconds=numbers.effective_initial_delay_seconds,
        period_seconds=numbers.effective_period_seconds,
        timeout_seconds=numbers.effective_timeout_seconds,
        success_threshold=numbers.effective_success_threshold,
        failure_threshold=numbers.effective_failure_threshold,
        pod_condition_type=probe.pod_condition_type or "",
    )


def _shell_word(word: str) -> str:
    """A word of a command as bash reads it; control characters are escaped, so that it is on one line."""
    if _CONTROL.search(word) is None:
        return shlex.quote(word)
    return f"$'{word.translate(_ESCAPES)}'"


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(32), 127)},
    ord("\t"): r"\t", ord("\n"): r"\n", ord("\r"): r"\r", ord("'"): r"\'", ord("\\"): r"\\",
}  # fmt: skip


def handler_text(probe: Probe) -> str:
    """The handler of a probe on one line: `exec sh -c 'test -e idle'`, `http-get http://:8080/healthz`."""
    match probe.handler:
        case ExecAction() as action:
            return " ".join(["exec", *map(_shell_word, action.command or ())])
        case HTTPGetAction() as action:
            action = action.with_defaults()
            return f"http-get {str(action.scheme).lower()}://:{action.port}{action.path}"
        case TCPSocketAction() as action:
            return f"tcp-socket :{action.port}"
        case GRPCAction() as action:
            service = f" {action.service}" if action.service else ""
            return f"grpc :{action.port}{service}{' TLS' if action.mode == 'TLS' else ''}"
        case _:
            return "none"
