"""Rows of the live view: one for each pod, with its probes and marks, and one for each problem. Pure.

The results and the problems are those of `kruise-probe status`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kruise_probe.api.keys import ProbeName
from kruise_probe.inspection.link import LinkState
from kruise_probe.inspection.views import PENDING, MarkerView, ProblemView, ResultView, StatusView
from kruise_probe_playground.node.pods import NodePod

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


def pod_rows(pods: Iterable[NodePod], view: StatusView) -> list[PodRow]:
    """The rows of all pods, by namespace and name."""
    found: dict[tuple[str, str], list[tuple[str, ProbeRow]]] = defaultdict(list)
    for marker in view.markers:
        for pod, condition_type, row in _probe_rows(marker):
            found[marker.namespace, pod].append((condition_type, row))
    return [
        _pod_row(each, found[each.key.namespace, each.key.name])
        for each in sorted(pods, key=lambda pod: pod.key)
    ]


def _pod_row(pod: NodePod, probes: Iterable[tuple[str, ProbeRow]]) -> PodRow:
    ready = pod.condition("Ready")
    gates = {each.condition_type for each in pod.spec.readiness_gates or ()}
    return PodRow(
        namespace=pod.key.namespace,
        name=pod.key.name,
        status=_status(pod),
        ready=ready.status if ready else "",
        ip=pod.status.pod_ip or "",
        restarts=sum(each.restart_count for each in pod.status.container_statuses or ()),
        probes=tuple(row._replace(gate=kind in gates) for kind, row in probes),
    )


def _status(pod: NodePod) -> str:
    if pod.deleting:
        return "Terminating"
    for each in pod.status.container_statuses or ():
        if each.state.waiting and each.state.waiting.reason:
            return each.state.waiting.reason
    return pod.status.phase or "Pending"


def _probe_rows(marker: MarkerView) -> Iterator[tuple[str, str, ProbeRow]]:
    """Of each result: pod, condition type, row."""
    probes = {each.name: each for each in marker.probes}
    for pod in marker.pods:
        for result in pod.results:
            probe = probes[result.probe]
            yield (
                pod.name,
                probe.pod_condition_type,
                ProbeRow(
                    ProbeName(marker.name, result.probe),
                    "" if result.state == PENDING else result.state,
                    result.since,
                    result.message,
                    check=f"{probe.period_seconds}s {probe.check}",
                    marks=_marks(result),
                ),
            )


def _marks(result: ResultView) -> tuple[Mark, ...]:
    annotations = (Mark("annotation", *each) for each in result.annotations.items())
    labels = (Mark("label", *each) for each in result.labels.items())
    return (*annotations, *labels)


class ProblemSummary(NamedTuple):
    """One problem of a marker on all its pods; `remedy` says what to do."""

    text: str
    remedy: str


def summaries(view: StatusView) -> Iterator[ProblemSummary]:
    """The problems that need action."""
    return summarized([(each.name, each.problems) for each in view.markers])


def summarized(found: Sequence[tuple[str, Sequence[ProblemView]]]) -> Iterator[ProblemSummary]:
    """One summary for each kind of problem of a marker. Problems that need no action are left out."""
    pods: dict[tuple[str, ProblemView], list[str]] = {}
    for marker, problems in found:
        for each in problems:
            if each.severity == LinkState.BROKEN or each.reason == "NoPods":
                common = msgspec.structs.replace(each, pod="", node="")
                pods.setdefault((marker, common), []).append(each.pod)
    for (marker, problem), names in pods.items():
        yield _summary(marker, problem, [each for each in names if each])


def _summary(marker: str, problem: ProblemView, pods: Sequence[str]) -> ProblemSummary:
    subject = f"{marker}#{problem.probe}" if problem.probe else marker
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    where = f" on {pods[0]}{more}" if pods else ""
    return ProblemSummary(f"{subject}{where}: {problem.message}", problem.remedy)
