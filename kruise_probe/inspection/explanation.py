"""The view of `explain` for one pod: the markers that select it, why others do not, the trace of each probe. Pure.

The structs are the format of `-o json`; the same rule of compatibility as in `status` applies.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kruise_probe.api.names import REASON_PAUSED
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.hints.commands import check_text
from kruise_probe.hints.selectors import corrected, distance, selector_text, why_not
from kruise_probe.inspection.link import Link, LinkState, in_kubectl, remedy_of
from kruise_probe.inspection.results import result_view, shown_phase
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import ProbeTrace, readiness_gates_of, traces_of
from kruise_probe.inspection.views import JSON_VERSION, JsonView, ResultView, SnapshotView

MAX_UNMATCHED: Final = 10
"""Maximum listed markers that do not select the pod, closest first."""


class TraceView(JsonView, frozen=True):
    """`first_broken` is the first link that is not ok, or empty; it may be waiting. `result` is the newest one."""

    probe: str
    container_name: str
    check: str
    links: list[Link]
    first_broken: str
    reason: str
    result: ResultView


class MatchView(JsonView, frozen=True):
    marker: str
    selector: str
    probes: list[TraceView]


class UnmatchedView(JsonView, frozen=True):
    """A marker that does not select the pod, and why; `remedy` is empty unless it selects no pod, and this one but for a typo."""

    marker: str
    selector: str
    why: str
    remedy: str


class ExplanationView(SnapshotView, frozen=True, kw_only=True):
    """`summary` is the answer in one line; `other_namespaces` are markers of other namespaces that would select the pod."""

    namespace: str
    pod: str
    node: str
    phase: str
    summary: str
    matching: list[MatchView]
    not_matching: list[UnmatchedView]
    more_not_matching: int = msgspec.field(name="notMatchingOmitted")
    readiness_gates: list[Link]
    other_namespaces: list[str]


class ExplanationsView(JsonView, frozen=True, kw_only=True):
    """The format of -o json for several pods."""

    version: int = JSON_VERSION
    items: list[ExplanationView]


def explanation(
    snapshot: Snapshot, pod: SeenPod, notes: list[str], *, others: Iterable[PodProbeMarker] = ()
) -> ExplanationView:
    """The view of one pod; `others` are markers of any namespace, for a pod that no marker selects."""
    matching = snapshot.matching.markers_of(pod)
    traces: list[ProbeTrace] = []
    matches = []
    for marker in matching:
        found = traces_of(snapshot, pod, marker)
        traces += found
        probes = list(map(_trace_view, found))
        selector = selector_text(marker.selector)
        match = MatchView(marker.key.name, selector, probes)
        matches.append(match)
    others_here = snapshot.markers_in(pod.namespace)
    not_matching = [marker for marker in others_here if marker not in matching]
    not_matching.sort(
        key=lambda marker: (
            distance(marker.selector, pod.labels),
            marker.key,
        )
    )
    return ExplanationView(
        time=format_time(snapshot.now),
        notes=notes,
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        phase=shown_phase(pod),
        summary=_summary(traces),
        matching=matches,
        not_matching=[_unmatched(snapshot, marker, pod) for marker in not_matching[:MAX_UNMATCHED]],
        more_not_matching=max(len(not_matching) - MAX_UNMATCHED, 0),
        readiness_gates=readiness_gates_of(snapshot, pod),
        other_namespaces=[] if matching else _elsewhere(pod, others),
    )


def _unmatched(snapshot: Snapshot, marker: CompiledMarker, pod: SeenPod) -> UnmatchedView:
    selector = marker.selector
    remedy = ""
    labels = corrected(selector, pod.labels)
    if labels and not snapshot.matching.pods_of(marker):
        remedy = remedy_of("NoPods", marker=in_kubectl(marker.key), labels=labels)
    why = why_not(selector, pod.labels)
    return UnmatchedView(
        marker.key.name,
        selector_text(selector),
        why,
        remedy,
    )


def _elsewhere(pod: SeenPod, others: Iterable[PodProbeMarker]) -> list[str]:
    """The markers of other namespaces that would select the pod."""
    found: list[str] = []
    for marker in others:
        if marker.key.namespace == pod.namespace:
            continue
        compiled = compile_marker(marker)
        if compiled.selector.matches(pod.labels):
            found.append(str(marker.key))
    return sorted(found)


def _summary(traces: Sequence[ProbeTrace]) -> str:
    """A probe works if all of its links are OK, whether its result is Succeeded or Failed."""
    if not traces:
        return "no PodProbeMarker selects this pod"
    working = 0
    paused = 0
    states: Counter[str] = Counter()
    for trace in traces:
        end = trace.end
        if end is None:
            working += 1
            states[trace.context.state] += 1
        elif end.reason == REASON_PAUSED:
            paused += 1
    verb = "work"
    if working == 1:
        verb = "works"
    text = f"{working} of {len(traces)} probes {verb}"
    if paused:
        text += f", {paused} paused"
    counts: list[str] = []
    for state, count in sorted(states.items(), reverse=True):
        if state:  # a probe on a virtual node may work without a result
            counts.append(f"{count} {state}")
    if counts:
        listed = ", ".join(counts)
        text += f" ({listed})"
    return text


def _trace_view(trace: ProbeTrace) -> TraceView:
    probe = trace.context.probe
    end = trace.end or Link("", LinkState.OK, "")
    links = [link for link in trace.links if link.text or link.state is not LinkState.OK]
    return TraceView(
        probe=probe.name,
        container_name=probe.container_name,
        check=check_text(probe),
        links=links,
        first_broken=end.name,
        reason=end.reason,
        result=result_view(trace),
    )
