"""The result of a probe on a pod as `status` and `explain` show it: its state, and the values that the probe wrote. Pure."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from kruise_probe.api.names import (
    FIELD_REASONS,
    LEFT_OUT_REASONS,
    REASON_CONTAINER_FINISHED,
    REASON_DAEMON_STALE,
    REASON_PAUSED,
)
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.pods import Mark
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.inspection.link import (
    LinkState,
    ProbeContext,
)
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.traces import ProbeTrace, is_of_another
from kruise_probe.inspection.views import (
    PENDING,
    ResultView,
)

NO_RESULT: Final = (*LEFT_OUT_REASONS, *FIELD_REASONS)
"""Reasons because of which a probe has no result."""


def shown_phase(pod: SeenPod) -> str:
    """As kubectl shows it."""
    if pod.deleting:
        return "Terminating"
    return pod.phase


def values_of_marks(
    pod: SeenPod, marks: Iterable[Mark], field: Literal["labels", "annotations"]
) -> dict[str, str]:
    """The values of the marks of one field that the pod has."""
    values: dict[str, str] = {}
    for mark in sorted(marks):
        if mark.field != field:
            continue
        value = pod.value_of(mark)
        if value is not None:
            values[mark.name] = value
    return values


def result_view(trace: ProbeTrace) -> ResultView:
    """The newest result, and the marks that the probe owns."""
    context = trace.context
    pod = context.pod
    result = _shown_result(trace)
    owned = context.wanted_in(ProbeState.SUCCEEDED) or {}
    not_written = {mark for mark in owned if is_of_another(pod, mark)}
    written = owned.keys() - not_written
    foreign = values_of_marks(pod, not_written, "labels")
    foreign |= values_of_marks(pod, not_written, "annotations")
    return ResultView(
        probe=context.probe.name,
        state=result.state,
        since=result.last_transition_time or "",
        last_probe_time=result.last_probe_time or "",
        message=result.message or "",
        labels=values_of_marks(pod, written, "labels"),
        annotations=values_of_marks(pod, written, "annotations"),
        outdated=context.is_outdated,
        not_written=foreign,
        remedy=_remedy(trace),
    )


def _remedy(trace: ProbeTrace) -> str:
    """What to do about a result whose cause is known."""
    for link in trace.links:
        if link.name == "result" and link.state is LinkState.OK:
            return link.remedy
    return ""


def _shown_result(trace: ProbeTrace) -> ContainerProbeState:
    """The node's result; Unknown if it is stale.

    Without a result in a NodePodProbe (the pod is completed or paused, or the user may not read NodePodProbes), the result
    is that of the pod's condition, if this probe owns it.
    """
    context = trace.context
    pod = context.pod
    end = trace.end
    reason = ""
    if end is not None:
        reason = end.reason
    result = context.result
    if (
        reason == REASON_PAUSED
        or pod.finished
        or (result is None and (pod.deleting or context.snapshot.node_pod_probes is None))
    ):
        result = _shown_by_condition(context)
    if result is None:
        result = ContainerProbeState(context.name, PENDING)
        if pod.finished:
            return _unknown(result, f"The pod has finished ({pod.phase}).", None)
    if end is None or not _hides_result(context, reason):
        return result
    message = end.text
    if reason == REASON_CONTAINER_FINISHED:
        exit_code = pod.exit_codes[context.probe.container_name]
        message = f"exit code {exit_code}"
    since: str | None = None
    if context.of_condition is not None:
        since = context.of_condition.last_transition_time
    return _unknown(result, message, since)


def _unknown(
    result: ContainerProbeState,
    message: str,
    since: str | None,
) -> ContainerProbeState:
    return msgspec.structs.replace(
        result, state=ProbeState.UNKNOWN, message=message, last_transition_time=since
    )


def _hides_result(context: ProbeContext, reason: str) -> bool:
    """Whether the end of a trace, with this reason, makes the state Unknown whatever the node's result is."""
    if reason != REASON_DAEMON_STALE or context.result is None:
        return reason == REASON_CONTAINER_FINISHED or reason in NO_RESULT
    claim = context.claim
    if claim is None:
        return True
    return not claim.keeps_when_stale


def _shown_by_condition(context: ProbeContext) -> ContainerProbeState | None:
    """The result that the pod's condition shows; None if another client wrote the condition. A provider may be one."""
    claim = context.claim
    if claim is None or context.virtual:
        return context.of_condition
    condition = Mark("conditions", claim.condition_type)
    if is_of_another(context.pod, condition):
        return None
    return context.of_condition
