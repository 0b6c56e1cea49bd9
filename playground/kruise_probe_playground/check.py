"""`playground --check`: which states of which probes were observed completely.

A state is observed when the daemon has reported it, the pod has had all its marks at one time (condition, labels and
annotations of its policy, and none that only another policy names), and the pod has an event for it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kruise_probe.api.keys import ProbeName
from kruise_probe.api.names import EVENT_FAILED, EVENT_SUCCEEDED
from kruise_probe.api.v1alpha1 import (
    MarkerPolicy,
    NodePodProbe,
    PodContainerProbe,
    PodProbeMarker,
    ProbeState,
)
from kruise_probe_playground.node.pods import NodePod
from kruise_probe_playground.rows import probes_of, reports_of
from kruise_probe_playground.ticker import PodEvent

KINDS = ("report", "marks", "event")
NAMED = 4
"""The number of probes in a message."""

STATES = (ProbeState.SUCCEEDED, ProbeState.FAILED)

_EVENT_REASON = {ProbeState.SUCCEEDED: EVENT_SUCCEEDED, ProbeState.FAILED: EVENT_FAILED}
_CONDITION_STATUS = {ProbeState.SUCCEEDED: "True", ProbeState.FAILED: "False"}


class ProbeOfPod(NamedTuple):
    """One probe of one pod, written `<pod>/<probe>`."""

    namespace: str
    pod: str
    probe: ProbeName

    def __str__(self) -> str:
        pod = self.pod if self.namespace == "default" else f"{self.namespace}/{self.pod}"
        return f"{pod}/{self.probe.probe}"


class Evidence(NamedTuple):
    """A visible effect of one state of a probe; `kind` is one of `KINDS`."""

    probe: ProbeOfPod
    state: ProbeState
    kind: str


class Progress:
    """Collects the evidence of all observations.

    Args:
        wanted: the number of states that each probe must have: two for the sample, whose states change, else one.
    """

    def __init__(self, *, wanted: int) -> None:
        self._wanted = wanted
        self._probes: set[ProbeOfPod] = set()
        self._evidence: set[Evidence] = set()

    def observe(
        self,
        pods: Iterable[NodePod],
        markers: Iterable[PodProbeMarker],
        nodes: Iterable[NodePodProbe],
        events: Iterable[PodEvent],
    ) -> None:
        """Add the evidence in the current objects."""
        reports = reports_of(nodes)
        recorded = {
            (each.involved_object.uid, each.reason, each.message.partition(": ")[0])
            for each in events
        }
        markers = list(markers)
        for pod in pods:
            probes = list(probes_of(pod, markers))
            probes_of_pod = [
                ProbeOfPod(pod.key.namespace, pod.key.name, name) for name, _ in probes
            ]
            self._probes.update(probes_of_pod)
            for state in STATES:
                for each, (name, probe) in zip(probes_of_pod, probes, strict=True):
                    report = reports.get((pod.uid, name))
                    if report and report.state == state:
                        self._evidence.add(Evidence(each, state, "report"))
                    if shows(pod, probe, state):
                        self._evidence.add(Evidence(each, state, "marks"))
                    if (pod.uid, _EVENT_REASON[state], str(name)) in recorded:
                        self._evidence.add(Evidence(each, state, "event"))

    def seen(self) -> Mapping[ProbeOfPod, list[str]]:
        """The observed states of each probe."""
        return {
            each: [state.value for state in STATES if not self._missing(each, state)]
            for each in sorted(self._probes)
        }

    @property
    def complete(self) -> bool:
        """Whether there is a probe, and each has the wanted number of states."""
        seen = self.seen().values()
        return bool(seen) and all(len(states) >= self._wanted for states in seen)

    def missing(self) -> str:
        """What is missing, in one line."""
        if not self._probes:
            return "no marker selects a pod; compare its selector with the labels of the pods"
        without_result, lacking = 0, []
        for each, states in self.seen().items():
            if len(states) >= self._wanted:
                continue
            others = {state: self._missing(each, state) for state in STATES if state not in states}
            if all("report" in lacks for lacks in others.values()) and not states:
                without_result += 1
            else:
                detail = (
                    f"{state} has no {' and no '.join(lacks)}" for state, lacks in others.items()
                )
                lacking.append(f"{each} ({', '.join(detail)})")
        if without_result:
            lacking.insert(0, f"{without_result} of {len(self._probes)} probes have no result")
        more = [f"and {len(lacking) - NAMED} more"] if len(lacking) > NAMED else []
        return "; ".join([*lacking[:NAMED], *more])

    def as_json(self, *, seconds: float) -> dict[str, Any]:
        """The output of `playground --check`."""
        return {
            "ok": self.complete,
            "seconds": round(seconds, 1),
            "pods": len({(each.namespace, each.pod) for each in self._probes}),
            "probes": len(self._probes),
            "seen": {str(each): states for each, states in self.seen().items()},
        }

    def _missing(self, probe: ProbeOfPod, state: ProbeState) -> list[str]:
        return [kind for kind in KINDS if Evidence(probe, state, kind) not in self._evidence]


def shows(pod: NodePod, probe: PodContainerProbe, state: ProbeState) -> bool:
    """Whether the pod has all marks of this state, and none that only another state has."""
    kind = probe.pod_condition_type
    if kind:
        condition = pod.condition(kind)
        if condition is None or condition.status != _CONDITION_STATUS[state]:
            return False
    policies = probe.marker_policy or ()
    of_state = [each for each in policies if each.state == state]
    of_others = [each for each in policies if each.state != state]
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    wanted_labels, wanted_annotations = _keys(of_state)
    other_labels, other_annotations = _keys(of_others)
    return (
        _has_all(labels, wanted_labels)
        and _has_all(annotations, wanted_annotations)
        and not (other_labels.keys() - wanted_labels.keys()) & labels.keys()
        and not (other_annotations.keys() - wanted_annotations.keys()) & annotations.keys()
    )


def _has_all(actual: Mapping[str, str], wanted: Mapping[str, str | None]) -> bool:
    return all(value is None or actual.get(key) == value for key, value in wanted.items())


def _keys(
    policies: Iterable[MarkerPolicy],
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Labels and annotations; None for a value from the message, which may be any or absent."""
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    for policy in policies:
        labels |= policy.labels or {}
        annotations |= policy.annotations or {}
        labels |= {each.label: None for each in policy.from_message or () if each.label}
        annotations |= {
            each.annotation: None for each in policy.from_message or () if each.annotation
        }
    return labels, annotations
