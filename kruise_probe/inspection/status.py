"""The view of `status`: for each marker its probes, pods, newest results and problems. Pure."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from kruise_probe.api.core import ExecAction, GRPCAction, HTTPGetAction, TCPSocketAction
from kruise_probe.api.names import LEFT_OUT_REASONS, REASON_DAEMON_STALE, REASON_PAUSED
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import ContainerProbe, PodContainerProbe, PodProbeMarker, ProbeState
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.inspection.problems import (
    marker_problems,
    no_pods,
    pod_problems,
    reported_problems,
)
from kruise_probe.inspection.result_links import is_outdated
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.selectors import selector_text
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.spec_links import pause_notes
from kruise_probe.inspection.traces import ProbeTrace, traces_of
from kruise_probe.inspection.views import (
    JSON_VERSION,
    PENDING,
    CountsView,
    MarkerView,
    PodView,
    ProbeView,
    ResultView,
    StatusView,
)


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
    problems = marker_problems(snapshot, marker, compiled)
    for seen in snapshot.pods_of(compiled):
        traces = traces_of(snapshot, seen, compiled)
        pods.append(_pod_view(seen, traces, compiled))
        if is_probed(seen.pod):
            counted.append(pods[-1])
        problems += pod_problems(snapshot, seen, traces)
    problems += reported_problems(snapshot, marker, {each.link for each in problems})
    if not pods and compiled.selector.requirements and not marker.deleting:
        problems.append(no_pods(snapshot, compiled))
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


def _pod_view(seen: SeenPod, traces: Sequence[ProbeTrace], marker: CompiledMarker) -> PodView:
    pod = seen.pod
    return PodView(
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        phase="Terminating" if pod.deleting else pod.phase,
        results=[result_view(trace) for trace in traces],
        labels=_select(pod.labels, marker.labels),
        annotations=_select(pod.annotations, marker.annotations),
    )


def _select(values: Mapping[str, str], keys: Set[str]) -> dict[str, str]:
    return {key: values[key] for key in sorted(keys & values.keys())}


def result_view(trace: ProbeTrace) -> ResultView:
    """The node's result; Unknown if it is stale.

    Without a result in a NodePodProbe (the pod is completed or paused, or the user may not read NodePodProbes), the result
    is that of the pod's condition, if this probe owns it.
    """
    context, end = trace.context, trace.end
    pod, claim, result = context.seen.pod, context.claim, context.result
    state, since, at, message = PENDING, "", "", ""
    paused = end is not None and end.reason == REASON_PAUSED
    condition = pod.condition(claim.condition_type if claim else "")
    if result is not None and not paused:
        state, message = result.state, result.message or ""
        since = result.last_transition_time or ""
        at = result.last_probe_time or ""
    elif condition is not None and (
        paused or context.snapshot.node_pod_probes is None or not pod.active
    ):
        state = _STATE_OF_CONDITION.get(condition.status, ProbeState.UNKNOWN)
        since, message = condition.last_transition_time or "", condition.message or ""
        at = condition.last_probe_time or ""
    stale = end is not None and end.reason == REASON_DAEMON_STALE and result is not None
    if end is not None and (stale or end.reason in LEFT_OUT_REASONS):
        state, message = ProbeState.UNKNOWN, end.text
        since = (condition and condition.last_transition_time) or ""
    wanted = tuple(claim.wanted.values()) if claim else ()
    return ResultView(
        probe=context.probe.name,
        state=state,
        since=since,
        last_probe_time=at,
        message=message,
        labels=_select(pod.labels, {key for each in wanted for key, _ in each.labels}),
        annotations=_select(
            pod.annotations, {key for each in wanted for key, _ in each.annotations}
        ),
        outdated=is_outdated(context),
    )


_STATE_OF_CONDITION: Final = {"True": ProbeState.SUCCEEDED, "False": ProbeState.FAILED}


def _counts(pods: Sequence[PodView]) -> CountsView:
    """Count as the marker's status: the result of a probe before its last edit does not count."""
    states = [{"" if each.outdated else each.state for each in pod.results} for pod in pods]
    failed = sum(ProbeState.FAILED in each for each in states)
    succeeded = sum(each == {ProbeState.SUCCEEDED} for each in states)
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


def handler_text(entry: ContainerProbe) -> str:
    """What an attempt does, on one line: `exec sh -c 'test -e idle'`, `http-get http://:8080/healthz`."""
    match entry.probe.handler:
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
