"""Rows of the live view: one for each pod, with its probes and marks, and one for each problem. Pure.

The results and the problems are those of `kruise-probe status`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.pods import Pod, PodCondition
from kruise_probe.controllers.marking import CONDITION_STATUS
from kruise_probe.inspection.link import LinkState
from kruise_probe.inspection.views import PENDING, MarkerView, ResultView, StatusView
from kruise_probe_playground.node.pods import NodePod

_STATES = {status: state for state, status in CONDITION_STATUS.items()}
SHORT_KEYS = {"controller.kubernetes.io/pod-deletion-cost": "cost"}


class Mark(NamedTuple):
    """`kind` is `label` or `annotation`."""

    kind: str
    key: str
    value: str

    @property
    def short_key(self) -> str:
        """The key without its domain."""
        return SHORT_KEYS.get(self.key, self.key.rpartition("/")[2])

    @property
    def short(self) -> str:
        return f"{self.short_key}={self.value}"


class ProbeRow(NamedTuple):
    """`state` is empty before the first result, `since` is RFC 3339 or empty; `gate` is set for readiness gates.

    `check` describes the probe; `marks` are the pod's marks that it owns.
    """

    probe: ProbeName
    state: str
    since: str
    message: str
    gate: bool = False
    check: str = ""
    marks: tuple[Mark, ...] = ()


class PodRow(NamedTuple):
    """`ready` is the status of the Ready condition."""

    namespace: str
    name: str
    status: str
    ready: str
    ip: str
    restarts: int
    probes: tuple[ProbeRow, ...]

    @property
    def title(self) -> str:
        """The name, with the namespace unless it is default."""
        return self.name if self.namespace == "default" else f"{self.namespace}/{self.name}"


def pod_rows(
    pods: Iterable[NodePod], view: StatusView, seen: Mapping[NamespacedName, Pod]
) -> list[PodRow]:
    """The rows of all pods, by namespace and name. `seen` has the pods of the view."""
    found: dict[tuple[str, str], list[tuple[str, ProbeRow]]] = defaultdict(list)
    for marker in view.markers:
        for pod, condition_type, row in _probe_rows(marker, seen):
            found[marker.namespace, pod].append((condition_type, row))
    return [
        _pod_row(item, found[item.key.namespace, item.key.name])
        for item in sorted(pods, key=lambda pod: pod.key)
    ]


def _pod_row(pod: NodePod, probes: Iterable[tuple[str, ProbeRow]]) -> PodRow:
    ready = pod.condition("Ready")
    gates = {gate.condition_type for gate in pod.spec.readiness_gates}
    return PodRow(
        namespace=pod.key.namespace,
        name=pod.key.name,
        status=_status(pod),
        ready=ready.status if ready else "",
        ip=pod.status.pod_ip or "",
        restarts=sum(status.restart_count for status in pod.status.container_statuses),
        probes=tuple(
            row._replace(gate=kind in gates, message=one_line(row.message)) for kind, row in probes
        ),
    )


def one_line(message: str) -> str:
    """A command prints several lines if it fails; each probe and each change has one."""
    return " ".join(message.split())


def _status(pod: NodePod) -> str:
    if pod.deleting:
        return "Terminating"
    for status in pod.status.container_statuses:
        if status.state.waiting and status.state.waiting.reason:
            return status.state.waiting.reason
    return pod.status.phase or "Pending"


def _probe_rows(
    marker: MarkerView, seen: Mapping[NamespacedName, Pod]
) -> Iterator[tuple[str, str, ProbeRow]]:
    """Of each result: pod, condition type, row."""
    probes = {probe.name: probe for probe in marker.probes}
    reported = {(problem.pod, problem.probe) for problem in marker.problems}
    for pod in marker.pods:
        for result in pod.results:
            probe = probes[result.probe]
            row = ProbeRow(
                ProbeName(marker.name, result.probe),
                "" if result.state == PENDING else result.state,
                result.since,
                result.message,
                check=f"{probe.period_seconds}s {probe.check}",
                marks=_marks(result),
            )
            kind = probe.pod_condition_type
            if kind and (pod.name, result.probe) not in reported:
                key = NamespacedName(marker.namespace, pod.name)
                row = _as_written(row, seen[key].condition(kind))
            yield pod.name, kind, row


def _as_written(row: ProbeRow, condition: PodCondition | None) -> ProbeRow:
    """The row in the state of the pod's condition: one write changes it and the marks, so both are one change."""
    if condition is None:
        return row._replace(state="", since="", message="")
    state = _STATES.get(condition.status, row.state)
    if state == row.state:
        return row
    since = condition.last_transition_time
    message = condition.message
    return row._replace(
        state=state,
        since=since or "",
        message=message or "",
    )


def _marks(result: ResultView) -> tuple[Mark, ...]:
    annotations = (Mark("annotation", *item) for item in result.annotations.items())
    labels = (Mark("label", *item) for item in result.labels.items())
    return (*annotations, *labels)


class ProblemSummary(NamedTuple):
    """One problem of a marker on all its pods; `remedy` says what to do."""

    text: str
    remedy: str


def summaries(view: StatusView) -> list[ProblemSummary]:
    """The problems that need action, and failures with a known cause: one for each kind of problem of a marker."""
    pods: dict[tuple[str, str, str], list[str]] = {}
    for marker in view.markers:
        for problem in marker.problems:
            if problem.severity == LinkState.BROKEN or problem.reason == "NoPods":
                subject = f"{marker.name}#{problem.probe}" if problem.probe else marker.name
                pods.setdefault((subject, problem.message, problem.remedy), []).append(problem.pod)
        for pod in marker.pods:
            for result in pod.results:
                if result.remedy:
                    key = (f"{marker.name}#{result.probe}", result.state, result.remedy)
                    pods.setdefault(key, []).append(pod.name)
    return [
        ProblemSummary(f"{subject}{_where(names)}: {message}", remedy)
        for (subject, message, remedy), names in pods.items()
    ]


def _where(pods: Sequence[str]) -> str:
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f" on {pods[0]}{more}" if pods[0] else ""
