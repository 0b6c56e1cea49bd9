"""Whether the product has been seen to work: which states of which probes have left all their traces.

A state counts as seen when the node has reported it, the pod has shown everything that belongs to it at once
(condition, labels and annotations of its policy, none of the opposite's own) and the pod has an event of it.
"""

from collections import Counter
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
from kruise_probe.playground.node.pods import NodePod
from kruise_probe.playground.pod_events import PodEvent
from kruise_probe.playground.rows import probes_of, reports_of

KINDS = ("report", "marks", "event")
NAMED = 4
"""How many probes a message names."""

STATES = (ProbeState.SUCCEEDED, ProbeState.FAILED)

_EVENT_REASON = {ProbeState.SUCCEEDED: EVENT_SUCCEEDED, ProbeState.FAILED: EVENT_FAILED}
_CONDITION_STATUS = {ProbeState.SUCCEEDED: "True", ProbeState.FAILED: "False"}


class Pair(NamedTuple):
    """One probe of one pod, written `<pod>/<probe>`."""

    namespace: str
    pod: str
    probe: ProbeName

    def __str__(self) -> str:
        pod = self.pod if self.namespace == "default" else f"{self.namespace}/{self.pod}"
        return f"{pod}/{self.probe.probe}"


class Trace(NamedTuple):
    """One trace that one state of one probe leaves; `kind` is one of `KINDS`."""

    pair: Pair
    state: ProbeState
    kind: str


class Census:
    """Collects traces from states of the world; what was seen once stays seen.

    Args:
        wanted: of how many states every probe must have been seen: two of a sample that flips, one of others.
    """

    def __init__(self, *, wanted: int) -> None:
        self._wanted = wanted
        self._pairs: set[Pair] = set()
        self._traces: set[Trace] = set()

    def look(
        self,
        pods: Iterable[NodePod],
        markers: Iterable[PodProbeMarker],
        nodes: Iterable[NodePodProbe],
        events: Iterable[PodEvent],
    ) -> None:
        """Takes in one state of the world."""
        reports = reports_of(nodes)
        counts = event_counts(events)
        markers = list(markers)
        for pod in pods:
            probes = list(probes_of(pod, markers))
            pairs = [Pair(pod.key.namespace, pod.key.name, name) for name, _ in probes]
            self._pairs.update(pairs)
            for state in STATES:
                for pair, (name, probe) in zip(pairs, probes, strict=True):
                    report = reports.get((pod.uid, name))
                    if report and report.state == state:
                        self._traces.add(Trace(pair, state, "report"))
                    if shows(pod, probe, state):
                        self._traces.add(Trace(pair, state, "marks"))
                self._look_for_events(pairs, state, counts[pod.uid, _EVENT_REASON[state]])

    def _look_for_events(self, pairs: list[Pair], state: ProbeState, count: int) -> None:
        """An event does not say of which probe it is, so the pod must have one for each that has flipped."""
        flipped = [pair for pair in pairs if Trace(pair, state, "report") in self._traces]
        if count >= len(flipped):
            self._traces.update(Trace(pair, state, "event") for pair in flipped)

    def seen(self) -> Mapping[Pair, list[str]]:
        """The states of every probe that have left all their traces."""
        return {
            pair: [state.value for state in STATES if not self._lacks(pair, state)]
            for pair in sorted(self._pairs)
        }

    @property
    def complete(self) -> bool:
        """Every probe has been seen in as many states as are wanted, and there is one at all."""
        seen = self.seen().values()
        return bool(seen) and all(len(states) >= self._wanted for states in seen)

    def missing(self) -> str:
        """Why it is not complete, in one line."""
        if not self._pairs:
            return "no probe is about any pod: does the marker's selector match the pods' labels?"
        silent, lacking = 0, []
        for pair, states in self.seen().items():
            if len(states) >= self._wanted:
                continue
            others = {state: self._lacks(pair, state) for state in STATES if state not in states}
            if all("report" in lacks for lacks in others.values()) and not states:
                silent += 1
            else:
                detail = (f"{state} lacks {' and '.join(lacks)}" for state, lacks in others.items())
                lacking.append(f"{pair} ({', '.join(detail)})")
        if silent:
            lacking.insert(0, f"{silent} of {len(self._pairs)} probes have no result at all")
        more = [f"and {len(lacking) - NAMED} more"] if len(lacking) > NAMED else []
        return "; ".join([*lacking[:NAMED], *more])

    def as_json(self, *, seconds: float) -> dict[str, Any]:
        """The result of `playground --check`."""
        return {
            "ok": self.complete,
            "seconds": round(seconds, 1),
            "pods": len({(pair.namespace, pair.pod) for pair in self._pairs}),
            "probes": len(self._pairs),
            "seen": {str(pair): states for pair, states in self.seen().items()},
        }

    def _lacks(self, pair: Pair, state: ProbeState) -> list[str]:
        return [kind for kind in KINDS if Trace(pair, state, kind) not in self._traces]


def event_counts(events: Iterable[PodEvent]) -> Counter[tuple[str, str]]:
    """How often each reason came for each pod uid."""
    counts: Counter[tuple[str, str]] = Counter()
    for event in events:
        counts[event.involved_object.uid, event.reason] += event.count or 1
    return counts


def shows(pod: NodePod, probe: PodContainerProbe, state: ProbeState) -> bool:
    """Whether the pod shows all that this state of the probe leaves on it, and nothing of the other's own."""
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
        wanted_labels.items() <= labels.items()
        and wanted_annotations.items() <= annotations.items()
        and not (other_labels.keys() - wanted_labels.keys()) & labels.keys()
        and not (other_annotations.keys() - wanted_annotations.keys()) & annotations.keys()
    )


def _keys(policies: Iterable[MarkerPolicy]) -> tuple[dict[str, str], dict[str, str]]:
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for policy in policies:
        labels |= policy.labels or {}
        annotations |= policy.annotations or {}
    return labels, annotations
