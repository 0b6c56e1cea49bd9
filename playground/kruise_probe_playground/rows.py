"""Rows of the live view: one for each pod, with its probes and marks. Pure.

The state of a probe is its condition on the pod, or the node's report if the probe owns no condition.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from kruise_probe.api.keys import ProbeName
from kruise_probe.api.labels import compile_selector
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import (
    ContainerProbeState,
    NodePodProbe,
    PodContainerProbe,
    PodProbeMarker,
    ProbeState,
)
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.pods.claims import Owners, claims_of
from kruise_probe.inspection.status import check_text
from kruise_probe_playground.node.pods import NodePod

_STATE_OF_CONDITION = {
    "True": ProbeState.SUCCEEDED,
    "False": ProbeState.FAILED,
    "Unknown": ProbeState.UNKNOWN,
}

Reports = Mapping[tuple[str, ProbeName], ContainerProbeState]


class Mark(NamedTuple):
    """`kind` is `label` or `annotation`."""

    kind: str
    key: str
    value: str


class ProbeRow(NamedTuple):
    """`state` is empty before the first result; `gate` is set for readiness gates.

    `check` describes the probe; `marks` are the pod's marks that its policies name.
    """

    probe: ProbeName
    state: str
    since: datetime | None
    message: str
    reported: str
    gate: bool
    check: str = ""
    marks: tuple[Mark, ...] = ()


class PodRow(NamedTuple):
    """`ready` is the status of the Ready condition; `marks` are those that any policy names."""

    namespace: str
    name: str
    uid: str
    status: str
    ready: str
    ip: str
    restarts: int
    probes: tuple[ProbeRow, ...]
    marks: tuple[Mark, ...]

    @property
    def title(self) -> str:
        """The name, with the namespace unless it is default."""
        return self.name if self.namespace == "default" else f"{self.namespace}/{self.name}"


def reports_of(nodes: Iterable[NodePodProbe]) -> Reports:
    """The last reports of the daemons, by pod uid and probe."""
    return {
        (pod.uid, ProbeName.parse(state.name)): state
        for node in nodes
        if node.status
        for pod in node.status.pod_probe_statuses or ()
        for state in pod.probe_states or ()
    }


def markers_of(pod: NodePod, markers: Iterable[PodProbeMarker]) -> list[PodProbeMarker]:
    """The markers that select the pod, by name. An invalid selector selects nothing."""
    found = []
    for marker in markers:
        if marker.key.namespace != pod.key.namespace or marker.deleting:
            continue
        try:
            matches = compile_selector(marker.spec.selector).matches(pod.metadata.labels or {})
        except ValueError:
            continue
        if matches:
            found.append(marker)
    return sorted(found, key=lambda marker: marker.key)


def probes_of(
    pod: NodePod, markers: Iterable[PodProbeMarker]
) -> Iterator[tuple[ProbeName, PodContainerProbe]]:
    """The probes of the pod."""
    for marker in markers_of(pod, markers):
        for probe in marker.spec.probes or ():
            yield ProbeName(marker.key.name, probe.name), probe


def pod_row(pod: NodePod, markers: Iterable[PodProbeMarker], reports: Reports) -> PodRow:
    """The row of one pod."""
    selecting = markers_of(pod, markers)
    probes = tuple(probes_of(pod, selecting))
    owners = claims_of(tuple(map(compile_marker, selecting))).condition_types
    ready = pod.condition("Ready")
    return PodRow(
        namespace=pod.key.namespace,
        name=pod.key.name,
        uid=pod.uid,
        status=_status(pod),
        ready=ready.status if ready else "",
        ip=pod.status.pod_ip or "",
        restarts=sum(each.restart_count for each in pod.status.container_statuses or ()),
        probes=tuple(
            _probe_row(pod, name, probe, reports.get((pod.uid, name)), owners)
            for name, probe in probes
        ),
        marks=tuple(sorted(set(_marks(pod, [probe for _, probe in probes])))),
    )


def _status(pod: NodePod) -> str:
    if pod.deleting:
        return "Terminating"
    for each in pod.status.container_statuses or ():
        if each.state.waiting and each.state.waiting.reason:
            return each.state.waiting.reason
    return pod.status.phase or "Pending"


def _probe_row(
    pod: NodePod,
    name: ProbeName,
    probe: PodContainerProbe,
    report: ContainerProbeState | None,
    owners: Owners,
) -> ProbeRow:
    kind = probe.pod_condition_type or ""
    own = kind in owners and owners[kind].name == str(name)
    condition = pod.condition(kind) if own else None
    gates = {each.condition_type for each in pod.spec.readiness_gates or ()}
    reported = report.state if report else ""
    if condition:
        state: str = _STATE_OF_CONDITION.get(condition.status, ProbeState.UNKNOWN)
        since, message = condition.last_transition_time, condition.message
    elif report and not own:
        state, since, message = report.state, report.last_transition_time, report.message
    else:
        state, since, message = "", None, None
    return ProbeRow(
        name,
        state,
        parse_time(since),
        message or "",
        reported,
        kind in gates,
        f"{probe.probe.effective_period_seconds}s {check_text(probe.probe)}",
        tuple(sorted(set(_marks(pod, [probe])))),
    )


def _marks(pod: NodePod, probes: Iterable[PodContainerProbe]) -> Iterator[Mark]:
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    for probe in probes:
        for policy in probe.marker_policy or ():
            for key in policy.labels or ():
                if key in labels:
                    yield Mark("label", key, labels[key])
            for key in policy.annotations or ():
                if key in annotations:
                    yield Mark("annotation", key, annotations[key])
            for each in policy.from_message or ():
                if each.label and each.label in labels:
                    yield Mark("label", each.label, labels[each.label])
                if each.annotation and each.annotation in annotations:
                    yield Mark("annotation", each.annotation, annotations[each.annotation])
