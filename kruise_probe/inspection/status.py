"""The view of `status`: for each marker its probes, pods, newest results and problems. Pure.

A problem is the link that ends a trace, or one of the marker itself.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from functools import partial
from shlex import quote
from typing import Final

import msgspec

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import (
    REASON_CONTAINER_FINISHED,
    REASON_DAEMON_STALE,
)
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import PodContainerProbe, PodProbeMarker, ProbeState
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
from kruise_probe.controllers.roles import carried, role_text
from kruise_probe.hints.commands import check_text
from kruise_probe.hints.selectors import corrected, distance, selector_text, why_not
from kruise_probe.inspection.link import (
    PLACEHOLDERS,
    Found,
    Link,
    LinkState,
    in_kubectl,
    link_of,
    paused,
)
from kruise_probe.inspection.results import NO_RESULT, result_view, shown_phase, values_of_marks
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot, natural_order
from kruise_probe.inspection.spec_links import deletion
from kruise_probe.inspection.traces import ProbeTrace, readiness_gates_of, traces_of
from kruise_probe.inspection.views import (
    PENDING,
    CountsView,
    MarkerView,
    PodView,
    ProbeView,
    ProblemView,
    ResultView,
    RoleView,
    StatusView,
)


def status_view(
    snapshot: Snapshot, markers: Iterable[PodProbeMarker], notes: Sequence[str]
) -> StatusView:
    """The view of `markers`, sorted by namespace and name."""
    shown = sorted(markers, key=lambda marker: marker.key)
    views = []
    counted: dict[NamespacedName, list[ResultView]] = {}
    for marker in shown:
        view = _marker_view(snapshot, marker)
        views.append(view)
        for pod in view.pods:
            key = NamespacedName(view.namespace, pod.name)
            seen = snapshot.pods_by_key[key]
            if is_probed(seen):
                results = counted.setdefault(key, [])
                results.extend(pod.results)
    return StatusView(
        time=format_time(snapshot.now),
        notes=list(notes),
        counts=_counts(counted.values()),
        markers=views,
    )


def _marker_view(snapshot: Snapshot, marker: PodProbeMarker) -> MarkerView:
    compiled = snapshot.compiled[marker.key]
    problems = list(map(_problem, _marker_links(marker, compiled)))
    own_reasons = {problem.reason for problem in problems}
    not_of_pods = _NOT_OF_PODS | own_reasons
    pods = []
    counted = []
    found_traces: list[ProbeTrace] = []
    for pod in snapshot.pods_of(compiled):
        traces = traces_of(snapshot, pod, compiled)
        found_traces += traces
        view = _pod_view(pod, traces, compiled)
        pods.append(view)
        if is_probed(pod):
            counted.append(view.results)
        problems += _pod_problems(
            snapshot,
            pod,
            traces,
            not_of_pods,
        )
    found = {problem.link for problem in problems}
    reported = _reported_links(snapshot, marker, found)
    problems += map(_problem, reported)
    selects = bool(compiled.selector.requirements)
    if selects and not pods and not marker.deleting:
        link = _no_pods(snapshot, compiled)
        problems.append(_problem(link))
    return MarkerView(
        namespace=marker.key.namespace,
        name=marker.key.name,
        selector=selector_text(compiled.selector),
        counts=_counts(counted),
        conditions=list(marker.conditions),
        probes=list(map(_probe_view, marker.spec.probes)),
        pods=pods,
        problems=sorted(problems, key=lambda problem: problem.severity != LinkState.BROKEN),
        roles=_roles(found_traces),
    )


def _roles(traces: Iterable[ProbeTrace]) -> list[RoleView]:
    """The roles of exclusive probes, by probe and group."""
    roles: dict[tuple[str, str], RoleView] = {}
    for trace in traces:
        context = trace.context
        claim = context.exclusive
        if claim is None or claim.exclusive is None:
            continue
        pod = context.pod
        label = claim.exclusive.group_label
        group = ""
        if label:
            value = pod.labels.get(label, "")
            group = f"{label}={value}"
        probe = context.probe.name
        key = (probe, group)
        role = roles.get(key)
        if role is None:
            role = RoleView(probe, role_text(claim), group, [], "", [], None)
        result = context.result
        is_holder = bool(carried(pod, claim))
        if is_holder:
            role.holders.append(pod.name)
        elif context.state == ProbeState.SUCCEEDED:
            role.held_off.append(pod.name)
        if is_holder and result is not None:
            since = result.last_transition_time or ""
            role = msgspec.structs.replace(role, since=since, epoch=result.epoch)
        roles[key] = role
    return [roles[key] for key in sorted(roles)]


def _problem(
    link: Link,
    pod: SeenPod | None = None,
    probe: str = "",
) -> ProblemView:
    name = ""
    node = ""
    if pod is not None:
        name = pod.name
        node = pod.node
    return ProblemView(
        link.state, link.name, link.reason, link.text, link.remedy, name, probe, node
    )


def _marker_links(marker: PodProbeMarker, compiled: CompiledMarker) -> list[Link]:
    """Problems of the marker itself, independent of its pods."""
    name = in_kubectl(marker.key)
    link = partial(link_of, "marker", marker=name, object=f"podprobemarker {name}")
    if marker.deleting:
        blocked = deletion(marker)
        since = marker.metadata.deletion_timestamp
        text = f"its deletion was requested at {since}; {blocked.text}"
        return [link(blocked._replace(text=text))]
    links: list[Link] = []
    for error in compiled.errors:
        invalid = Found(str(error), INVALID_SPEC)
        links.append(link(invalid))
    if compiled.paused:
        links.append(link(paused("this PodProbeMarker")))
    return links


def _no_pods(snapshot: Snapshot, marker: CompiledMarker) -> Link:
    """That the marker selects no pod, with the closest pod of its namespace."""
    selector = marker.selector
    namespace = marker.key.namespace
    text = f"no pod of namespace {namespace} has {selector_text(selector)}"
    pods = snapshot.pods_in(namespace)
    pods.sort(key=lambda pod: natural_order(pod.name))
    if not pods:
        labels = quote(selector_text(selector))
        remedy = f"create pods there, or the marker in the namespace of its pods: kubectl get pods -A -l {labels}"
        found = Found(f"{text}; the namespace has no pods", "NoPods", remedy)
        return link_of("selector", found)
    closest = min(pods, key=lambda pod: distance(selector, pod.labels))
    why = why_not(selector, closest.labels)
    found = Found(f"{text}; closest is pod {closest.name}: {why}", "NoPods")
    labels = corrected(selector, closest.labels) or PLACEHOLDERS["labels"]
    return link_of("selector", found, marker=in_kubectl(marker.key), labels=labels)


def _reported_links(
    snapshot: Snapshot,
    marker: PodProbeMarker,
    found: set[str],
) -> Iterator[Link]:
    """Problems from the marker's conditions, unless a link that was found reports the same problem.

    A marker's status may be one second old, so nodes that are behind are found in NodePodProbes if these can be read.
    """
    for condition in marker.conditions:
        reason = condition.reason
        bad_status = _BAD_STATUS.get(condition.type)
        if condition.status != bad_status:
            continue
        if reason == "NodesBehind" and snapshot.node_pod_probes is not None:
            continue
        in_detail = _REPORTED_BY_LINKS.get(reason, set())
        if found & in_detail:
            continue
        if not snapshot.is_recent(condition.last_transition_time):
            what = Found(condition.message, reason)
            yield link_of("marker", what)


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
    **{reason: {"NodePodProbe", "provider"} for reason in NO_RESULT},
}
"""By reason of a condition: the links that report the same problem in more detail."""


def _pod_problems(
    snapshot: Snapshot, pod: SeenPod, traces: Sequence[ProbeTrace], ignored: Set[str]
) -> Iterator[ProblemView]:
    """The first broken link of each probe on the pod but for `ignored` reasons, and readiness gates that are closed or that nothing sets."""
    for trace in traces:
        end = trace.end or _closed_gate(pod, trace.context.probe)
        if end is None or end.reason in ignored:
            continue
        has_completed = end.reason == REASON_CONTAINER_FINISHED and end.state is LinkState.WAITING
        if not has_completed:
            probe = trace.context.probe
            yield _problem(end, pod, probe.name)
    for link in readiness_gates_of(snapshot, pod):
        if link.state is LinkState.BROKEN:
            yield _problem(link, pod)


def _closed_gate(pod: SeenPod, probe: PodContainerProbe) -> Link | None:
    """That the condition of a probe that works is a readiness gate, and not True."""
    gate = probe.pod_condition_type or ""
    condition = pod.condition(gate) if gate in pod.readiness_gates else None
    if condition is None or condition.status == "True":
        return None
    text = f"the pod is not Ready while its readiness gate {gate} is {condition.status}"
    found = Found(text, "GateClosed")
    return link_of("readiness gate", found)


_NOT_OF_PODS: Final = frozenset({MARKER_DELETING, "PodFinished", "PodTerminating", "ResultNew"})
"""ResultNew: the manager needs a moment for each result, so a probe that changes often would be reported all the time."""


def _pod_view(
    pod: SeenPod,
    traces: Sequence[ProbeTrace],
    marker: CompiledMarker,
) -> PodView:
    return PodView(
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        phase=shown_phase(pod),
        results=[result_view(trace) for trace in traces],
        labels=values_of_marks(pod, marker.marks, "labels"),
        annotations=values_of_marks(pod, marker.marks, "annotations"),
    )


def _counts(pods: Collection[Sequence[ResultView]]) -> CountsView:
    """Count as the marker's status: the result of a probe before its last edit does not count."""
    succeeded = 0
    failed = 0
    pending = 0
    for results in pods:
        states: set[str] = set()
        for result in results:
            state = result.state
            if result.outdated:
                state = PENDING
            states.add(state)
        if ProbeState.FAILED in states:
            failed += 1
        elif states == {ProbeState.SUCCEEDED}:
            succeeded += 1
        elif ProbeState.UNKNOWN not in states:
            pending += 1
    unknown = len(pods) - failed - succeeded
    return CountsView(
        len(pods),
        succeeded,
        failed,
        unknown,
        pending,
    )


def _probe_view(probe: PodContainerProbe) -> ProbeView:
    numbers = probe.probe
    return ProbeView(
        name=probe.name,
        container_name=probe.container_name,
        check=check_text(probe),
        initial_delay_seconds=numbers.effective_initial_delay_seconds,
        period_seconds=numbers.effective_period_seconds,
        timeout_seconds=numbers.effective_timeout_seconds,
        success_threshold=numbers.effective_success_threshold,
        failure_threshold=numbers.effective_failure_threshold,
        pod_condition_type=probe.pod_condition_type or "",
    )
