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
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.hints.commands import handler_text
from kruise_probe.hints.selectors import distance, selector_text, why_not
from kruise_probe.inspection.link import Link, LinkState
from kruise_probe.inspection.snapshot import SeenPod, Snapshot
from kruise_probe.inspection.spec_links import pause_notes
from kruise_probe.inspection.status import result_view
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
    """A marker that does not select the pod, and why."""

    marker: str
    selector: str
    why: str


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
    traces = [(each, traces_of(snapshot, pod, each)) for each in matching]
    here = [each for each in snapshot.compiled.values() if each.key.namespace == pod.namespace]
    not_matching = sorted(
        (each for each in here if each not in matching),
        key=lambda each: (distance(each.selector, pod.labels), each.key),
    )
    return ExplanationView(
        time=format_time(snapshot.now),
        notes=[*notes, *pause_notes([snapshot.sources[each.key] for each in matching], [pod])],
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        phase="Terminating" if pod.deleting else pod.phase,
        summary=_summary([trace for _, found in traces for trace in found]),
        matching=[
            MatchView(
                marker=each.key.name,
                selector=selector_text(each.selector),
                probes=[_trace_view(trace) for trace in found],
            )
            for each, found in traces
        ],
        not_matching=[
            UnmatchedView(
                marker=each.key.name,
                selector=selector_text(each.selector),
                why=why_not(each.selector, pod.labels),
            )
            for each in not_matching[:MAX_UNMATCHED]
        ],
        more_not_matching=max(len(not_matching) - MAX_UNMATCHED, 0),
        readiness_gates=readiness_gates_of(snapshot, pod),
        other_namespaces=[]
        if matching
        else sorted(
            str(each.key)
            for each in map(compile_marker, others)
            if each.key.namespace != pod.namespace and each.selector.matches(pod.labels)
        ),
    )


def _summary(traces: Sequence[ProbeTrace]) -> str:
    """A probe works if all of its links are OK, whether its result is Succeeded or Failed."""
    if not traces:
        return "no PodProbeMarker selects this pod"
    working = [each for each in traces if each.end is None]
    states = Counter(each.context.result.state for each in working if each.context.result)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items(), reverse=True))
    verb = "works" if len(working) == 1 else "work"
    text = f"{len(working)} of {len(traces)} probes {verb}"
    if paused := sum(each.end is not None and each.end.reason == REASON_PAUSED for each in traces):
        text += f", {paused} paused"
    return f"{text} ({counts})" if counts else text


def _trace_view(trace: ProbeTrace) -> TraceView:
    end, probe = trace.end, trace.context.probe
    return TraceView(
        probe=probe.name,
        container_name=probe.container_name,
        check=handler_text(probe),
        links=[each for each in trace.links if each.text or each.state is not LinkState.OK],
        first_broken=end.name if end else "",
        reason=end.reason if end else "",
        result=result_view(trace),
    )
