"""The view of `status`: for each marker its probes, pods, newest results and problems. Pure.

A problem is the link that ends a trace, or one of the marker itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

from kruise_probe.api.names import (
    LEFT_OUT_REASONS,
    REASON_CONTAINER_FINISHED,
    REASON_DAEMON_STALE,
    REASON_PAUSED,
)
from kruise_probe.api.pods import Mark, names_of
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import (
    ContainerProbeState,
    PodContainerProbe,
    PodProbeMarker,
    ProbeState,
)
from kruise_probe.controllers.causes import CAUSES
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.conditions import (
    CHANGED_BY_ADMISSION,
    CHANGED_BY_ANOTHER,
    MARKER_DELETING,
    VALUE_INVALID,
)
from kruise_probe.controllers.limits import is_probed
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER, INVALID_SPEC
from kruise_probe.hints.commands import handler_text
from kruise_probe.hints.selectors import distance, selector_text, why_not
from kruise_probe.inspection.link import (
    Link,
    LinkState,
    ProbeContext,
    broken,
    in_kubectl,
    paused,
    waiting,
)
from kruise_probe.inspection.snapshot import SeenPod, Snapshot, natural_order
from kruise_probe.inspection.spec_links import deletion_reason, pause_notes
from kruise_probe.inspection.traces import ProbeTrace, is_of_another, readiness_gates_of, traces_of
from kruise_probe.inspection.views import (
    PENDING,
    CountsView,
    MarkerView,
    PodView,
    ProbeView,
    ProblemView,
    ResultView,
    StatusView,
)


def status_view(
    snapshot: Snapshot, markers: Iterable[PodProbeMarker], notes: Sequence[str]
) -> StatusView:
    """The view of `markers`, sorted by namespace and name."""
    shown = sorted(markers, key=lambda marker: marker.key)
    selected = [pod for pod in snapshot.pods if snapshot.matching.markers_of(pod)]
    return StatusView(
        time=format_time(snapshot.now),
        notes=[*notes, *pause_notes(shown, selected)],
        markers=[_marker_view(snapshot, marker) for marker in shown],
    )


def _marker_view(snapshot: Snapshot, marker: PodProbeMarker) -> MarkerView:
    compiled = snapshot.compiled[marker.key]
    traces = [(pod, traces_of(snapshot, pod, compiled)) for pod in snapshot.pods_of(compiled)]
    pods = [_pod_view(pod, of_pod, compiled) for pod, of_pod in traces]
    problems = list(map(_problem, _marker_links(marker, compiled)))
    not_of_pods = _NOT_OF_PODS | {each.reason for each in problems}
    for pod, of_pod in traces:
        problems += _pod_problems(snapshot, pod, of_pod, not_of_pods)
    found = {problem.link for problem in problems}
    problems += map(_problem, _reported_links(snapshot, marker, found))
    if not pods and compiled.selector.requirements and not marker.deleting:
        problems.append(_problem(_no_pods(snapshot, compiled)))
    return MarkerView(
        namespace=marker.key.namespace,
        name=marker.key.name,
        selector=selector_text(compiled.selector),
        counts=_counts(
            [view for view, (pod, _) in zip(pods, traces, strict=True) if is_probed(pod)]
        ),
        conditions=list((marker.status and marker.status.conditions) or ()),
        probes=[_probe_view(probe) for probe in marker.spec.probes],
        pods=pods,
        problems=sorted(problems, key=lambda each: each.severity != LinkState.BROKEN),
    )


def _problem(link: Link, pod: SeenPod | None = None, probe: str = "") -> ProblemView:
    name, node = (pod.name, pod.node) if pod else ("", "")
    return ProblemView(
        link.state, link.name, link.reason, link.text, link.remedy, name, probe, node
    )


def _marker_links(marker: PodProbeMarker, compiled: CompiledMarker) -> list[Link]:
    """Problems of the marker itself, independent of its pods."""
    if marker.deleting:
        since = marker.metadata.deletion_timestamp
        finalizers = marker.metadata.finalizers
        text = f"its deletion was requested at {since}; finalizers that block it: {', '.join(finalizers) or 'none'}"
        return [waiting("marker", deletion_reason(marker), text, marker=in_kubectl(marker.key))]
    links = [broken("marker", INVALID_SPEC, str(error)) for error in compiled.errors]
    if compiled.paused:
        links.append(paused("marker", "this PodProbeMarker", "podprobemarker", marker.key))
    return links


def _no_pods(snapshot: Snapshot, marker: CompiledMarker) -> Link:
    """That the marker selects no pod, with the closest pod of its namespace."""
    selector, namespace = marker.selector, marker.key.namespace
    pods = [each for each in snapshot.pods if each.namespace == namespace]
    text = f"no pod of namespace {namespace} has {selector_text(selector)}"
    if pods:
        closest = min(
            pods, key=lambda pod: (distance(selector, pod.labels), natural_order(pod.name))
        )
        text += f"; closest is pod {closest.name}: {why_not(selector, closest.labels)}"
    else:
        text += "; the namespace has no pods"
    return waiting("selector", "NoPods", text, namespace=namespace)


def _reported_links(snapshot: Snapshot, marker: PodProbeMarker, found: set[str]) -> Iterator[Link]:
    """Problems from the marker's conditions, unless a link that was found reports the same problem.

    A marker's status may be one second old, so nodes that are behind are found in NodePodProbes if these can be read.
    """
    for each in (marker.status and marker.status.conditions) or ():
        visible = each.reason == "NodesBehind" and snapshot.node_pod_probes is not None
        if (
            each.status == _BAD_STATUS.get(each.type)
            and not visible
            and not found & _REPORTED_BY_LINKS.get(each.reason, set())
            and not snapshot.is_recent(each.last_transition_time)
        ):
            yield broken("marker", each.reason, each.message)


_BAD_STATUS: Final = {"Synced": "False", "Degraded": "True", "Conflict": "True"}
_REPORTED_BY_LINKS: Final = {
    "NodesBehind": {"NodePodProbe", "marker", "manager"},
    MARKER_DELETING: {"marker"},
    INVALID_SPEC: {"marker"},
    **{cause: {"result", "port", "daemon"} for cause in CAUSES},
    "ContainerNotFound": {"container"},
    "PodNotMarked": {"condition", "marks"},
    REASON_DAEMON_STALE: {"daemon"},
    CLAIMED_BY_ANOTHER: {"condition", "marks"},
    CHANGED_BY_ANOTHER: {"condition", "marks"},
    CHANGED_BY_ADMISSION: {"condition", "marks"},
    VALUE_INVALID: {"marks"},
    **{reason: {"NodePodProbe"} for reason in LEFT_OUT_REASONS},
}
"""By reason of a condition: the links that report the same problem in more detail."""


def _pod_problems(
    snapshot: Snapshot, pod: SeenPod, traces: Sequence[ProbeTrace], ignored: Set[str]
) -> Iterator[ProblemView]:
    """The first broken link of each probe on the pod but for `ignored` reasons, and readiness gates that nothing sets."""
    for trace in traces:
        has_completed = (
            trace.end is not None
            and trace.end.reason == REASON_CONTAINER_FINISHED
            and trace.end.state is LinkState.WAITING
        )
        if trace.end and trace.end.reason not in ignored and not has_completed:
            yield _problem(trace.end, pod, trace.context.probe.name)
    for link in readiness_gates_of(snapshot, pod):
        if link.state is LinkState.BROKEN:
            yield _problem(link, pod)


_NOT_OF_PODS: Final = frozenset({MARKER_DELETING, "PodFinished", "PodTerminating", "ResultNew"})
"""ResultNew: the manager needs a moment for each result, so a probe that changes often would be reported all the time."""


def _pod_view(pod: SeenPod, traces: Sequence[ProbeTrace], marker: CompiledMarker) -> PodView:
    return PodView(
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        phase="Terminating" if pod.deleting else pod.phase,
        results=[result_view(trace) for trace in traces],
        labels=_select(pod.labels, names_of(marker.marks, "labels")),
        annotations=_select(pod.annotations, names_of(marker.marks, "annotations")),
    )


def _select(values: Mapping[str, str], keys: Set[str]) -> dict[str, str]:
    return {key: values[key] for key in sorted(keys & values.keys())}


def result_view(trace: ProbeTrace) -> ResultView:
    """The node's result; Unknown if it is stale.

    Without a result in a NodePodProbe (the pod is completed or paused, or the user may not read NodePodProbes), the result
    is that of the pod's condition, if this probe owns it.
    """
    context, reason = trace.context, trace.end.reason if trace.end else ""
    pod, claim, shown = context.pod, context.claim, context.result
    unreadable = context.snapshot.node_pod_probes is None
    has_ended = pod.finished or (shown is None and not pod.active)
    if reason == REASON_PAUSED or has_ended or (shown is None and unreadable):
        shown = _shown_by_condition(context)
    state, since = (shown.state, shown.last_transition_time) if shown else (PENDING, "")
    message = shown.message if shown else ""
    if shown is None and pod.finished:
        state, message = ProbeState.UNKNOWN, f"The pod has finished ({pod.phase})."
    keeps = claim is not None and claim.keeps_when_stale
    stale = reason == REASON_DAEMON_STALE and context.result is not None and not keeps
    has_completed = reason == REASON_CONTAINER_FINISHED
    if trace.end and (stale or has_completed or reason in LEFT_OUT_REASONS):
        state, message = ProbeState.UNKNOWN, trace.end.text
        since = context.of_condition.last_transition_time if context.of_condition else ""
    if has_completed:
        message = f"exit code {pod.exit_codes[context.probe.container_name]}"
    marks: set[Mark] = set(claim.wanted[ProbeState.SUCCEEDED]) if claim else set()
    not_written = {mark for mark in marks if is_of_another(pod, mark)}
    marks -= not_written
    return ResultView(
        probe=context.probe.name,
        state=state,
        since=since or "",
        last_probe_time=(shown and shown.last_probe_time) or "",
        message=message or "",
        labels=_select(pod.labels, names_of(marks, "labels")),
        annotations=_select(pod.annotations, names_of(marks, "annotations")),
        outdated=context.is_outdated,
        not_written={
            **_select(pod.labels, names_of(not_written, "labels")),
            **_select(pod.annotations, names_of(not_written, "annotations")),
        },
    )


def _shown_by_condition(context: ProbeContext) -> ContainerProbeState | None:
    """The result that the pod's condition shows; None if another client wrote the condition. A provider may be one."""
    claim = context.claim
    condition = Mark("conditions", claim.condition_type if claim else "")
    if not context.virtual and is_of_another(context.pod, condition):
        return None
    return context.of_condition


def _counts(pods: Sequence[PodView]) -> CountsView:
    """Count as the marker's status: the result of a probe before its last edit does not count."""
    states = [{"" if result.outdated else result.state for result in pod.results} for pod in pods]
    failed = sum(ProbeState.FAILED in of_pod for of_pod in states)
    succeeded = sum(of_pod == {ProbeState.SUCCEEDED} for of_pod in states)
    return CountsView(
        pods=len(pods), succeeded=succeeded, failed=failed, unknown=len(pods) - failed - succeeded
    )


def _probe_view(probe: PodContainerProbe) -> ProbeView:
    numbers = probe.probe
    return ProbeView(
        name=probe.name,
        container_name=probe.container_name,
        check=handler_text(probe),
        initial_delay_seconds=numbers.effective_initial_delay_seconds,
        period_seconds=numbers.effective_period_seconds,
        timeout_seconds=numbers.effective_timeout_seconds,
        success_threshold=numbers.effective_success_threshold,
        failure_threshold=numbers.effective_failure_threshold,
        pod_condition_type=probe.pod_condition_type or "",
    )
