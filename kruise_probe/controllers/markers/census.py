"""Computes the status of a marker from the marker, its pods, and the NodePodProbes of their nodes.

A pod counts if it can be probed (see `nodes.plan.is_probed`) and its Node exists. It counts as failed if any of the
marker's probes on it failed, else as unknown if any has no result, else as succeeded. So the three add up to
`matchedPods`.

Source: Kruise pkg/controller/podprobemarker (observedGeneration, matchedPods).
Differs: everything but those two fields.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from kruise_probe.api.keys import NamespacedName, ProbeName
from kruise_probe.api.names import (
    REASON_AGENT_STALE,
    REASON_ENTRY_TOO_LARGE,
    REASON_NO_ROOM,
    REASON_TOO_MANY_MARKERS,
)
from kruise_probe.api.pods import Pod
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import (
    Condition,
    PodProbe,
    PodProbeMarker,
    PodProbeMarkerStatus,
    ProbeState,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import ENTRY_BYTES, MARKERS_PER_POD
from kruise_probe.controllers.nodes.plan import probes_of_marker, unordered_probes
from kruise_probe.controllers.pods.claims import Conflict
from kruise_probe.controllers.pods.marking import States
from kruise_probe.controllers.selector_cycles import Step, cycle_text

SYNCED: Final = "Synced"
CONFLICT: Final = "Conflict"
DEGRADED: Final = "Degraded"

CLAIMED_BY_ANOTHER: Final = "ClaimedByAnother"
SELECTOR_CYCLE: Final = "SelectorCycle"
INVALID_SPEC: Final = "InvalidSpec"
WARNED_OF: Final = frozenset({CLAIMED_BY_ANOTHER, INVALID_SPEC, SELECTOR_CYCLE})
"""Reasons with a Warning event: where Kruise's CRD prunes conditions, only the event reports them."""
WARNED_OF_ONCE: Final = frozenset({REASON_TOO_MANY_MARKERS, REASON_ENTRY_TOO_LARGE, REASON_NO_ROOM})
"""Reasons with a Warning event only when the reason is new: their messages contain numbers of pods."""

LISTED: Final = 3
"""How many nodes, conflicts or errors a message lists; it counts the rest."""


_NONE_REFUSED: Final[Mapping[NamespacedName, str]] = MappingProxyType({})


class Sighting(NamedTuple):
    """One counted pod of a marker, as the caches show it.

    Attributes:
        entry: its entry in the NodePodProbe of its node, or None.
        states: its recorded results; empty if they are stale.
        planned: whether a NodePodProbe should hold it (not on virtual nodes).
        stale: whether the agent of its node is stale.
        left_out: the reason of the limit that leaves out this marker's probes, or empty.
    """

    pod: Pod
    entry: PodProbe | None
    states: States
    planned: bool = True
    stale: bool = False
    left_out: str = ""


class Tally:
    """The counts of one marker's pods; `add` the pods in any order."""

    def __init__(self, compiled: CompiledMarker) -> None:
        self.compiled: Final = compiled
        self.verdicts: Final[Counter[ProbeState]] = Counter()
        self.behind: Final[set[str]] = set()
        self.silent: Final[Counter[str]] = Counter()
        self.left_out: Final[Counter[tuple[str, str]]] = Counter()
        """Pods by reason and node."""
        self.containers_missing: Final[Counter[tuple[str, str]]] = Counter()

    def add(self, sighting: Sighting) -> None:
        pod, compiled = sighting.pod, self.compiled
        if sighting.left_out:
            self.left_out[sighting.left_out, pod.node] += 1
            self.verdicts[ProbeState.UNKNOWN] += 1
            return
        if sighting.stale:
            self.silent[pod.node] += 1
        self.verdicts[_verdict(compiled, sighting.states)] += 1
        if sighting.planned and not _shows(compiled, sighting):
            self.behind.add(pod.node)
        for probe in compiled.probes:
            if pod.container(probe.container) is None:
                self.containers_missing[probe.probe, probe.container] += 1


def census(
    marker: PodProbeMarker,
    tally: Tally,
    conflicts: Iterable[Conflict],
    obstacles: Mapping[str, str],
    now: datetime,
    *,
    refusals: Mapping[NamespacedName, str] = _NONE_REFUSED,
    cycle: Sequence[Step] = (),
) -> PodProbeMarkerStatus:
    """The status that `marker` should have.

    `conflicts` are those that it lost. `obstacles` says by node why a write failed. `refusals` says by pod why the API
    server refuses its marks. `cycle` is the selector cycle that it is part of. observedGeneration is that of the
    tally, as `marker` may be newer.
    """
    verdicts, generation = tally.verdicts, tally.compiled.generation
    previous = {each.type: each for each in (marker.status and marker.status.conditions) or ()}
    conditions = [
        _synced(tally.behind, obstacles),
        _conflict(conflicts, cycle),
        _degraded(tally, refusals),
    ]
    return PodProbeMarkerStatus(
        observed_generation=generation,
        matched_pods=verdicts.total(),
        succeeded=verdicts[ProbeState.SUCCEEDED],
        failed=verdicts[ProbeState.FAILED],
        unknown=verdicts[ProbeState.UNKNOWN],
        nodes_behind=len(tally.behind),
        conditions=tuple(
            stamped(each, previous.get(each.type), generation, now) for each in conditions
        ),
    )


def ended(marker: PodProbeMarker, generation: int, now: datetime) -> PodProbeMarkerStatus:
    """The status of a deleted marker that only finalizers of others keep."""
    previous = {each.type: each for each in (marker.status and marker.status.conditions) or ()}
    message = "Nothing of this marker is left on nodes and pods; finalizers of others hold it."
    over = Condition(SYNCED, "True", "Deleting", message)
    return PodProbeMarkerStatus(
        observed_generation=generation,
        matched_pods=0,
        succeeded=0,
        failed=0,
        unknown=0,
        nodes_behind=0,
        conditions=(stamped(over, previous.get(SYNCED), generation, now),),
    )


def _verdict(compiled: CompiledMarker, states: States) -> ProbeState:
    seen = [states.get(probe.name) for probe in compiled.probes]
    if any(each is not None and each.state == ProbeState.FAILED for each in seen):
        return ProbeState.FAILED
    succeeded = bool(seen) and all(
        each is not None and each.state == ProbeState.SUCCEEDED for each in seen
    )
    return ProbeState.SUCCEEDED if succeeded else ProbeState.UNKNOWN


def _shows(compiled: CompiledMarker, sighting: Sighting) -> bool:
    """Whether the node's NodePodProbe holds exactly this marker's probes of the pod."""
    pod, entry = sighting.pod, sighting.entry
    wanted = probes_of_marker(compiled, pod.containers, pod.started)
    if entry is None:
        return not wanted
    if wanted and entry.ip != pod.ip:
        return False
    there = entry.probes or ()
    if there == wanted:
        return True
    name = compiled.key.name
    mine = [each for each in there if ProbeName.parse(each.name).marker == name]
    return unordered_probes(mine) == unordered_probes(wanted)


def _synced(behind: set[str], obstacles: Mapping[str, str]) -> Condition:
    if not behind:
        return Condition(SYNCED, "True", "NodesCurrent", "Every node shows this marker as it is.")
    reasons = [
        f"{node}: {obstacles[node]}" if node in obstacles else node
        for node in sorted(behind, key=lambda node: (node not in obstacles, node))
    ]
    plural = "nodes do" if len(behind) > 1 else "node does"
    return Condition(
        SYNCED,
        "False",
        "NodesBehind",
        f"{len(behind)} {plural} not show this marker as it is: {listed(reasons)}.",
    )


def _conflict(conflicts: Iterable[Conflict], cycle: Sequence[Step]) -> Condition:
    """The Conflict condition. A cycle takes precedence for the reason, as it changes pods repeatedly."""
    sentences = sorted({str(each) for each in conflicts})
    messages: list[str] = []
    if cycle:
        messages.append(
            f"Markers of this namespace select pods by labels that they write for each other: {cycle_text(cycle)}. "
            "Pods that they select may change again and again, at a limited rate. "
            "Remove one of these labels from a markerPolicy or from a selector."
        )
    if sentences:
        messages.append(
            f"Not written: {listed(sentences)}. Use other names, or remove them from one of the probes."
        )
    if not messages:
        return Condition(CONFLICT, "False", "NoConflict", "Nothing is claimed by another probe.")
    reason = SELECTOR_CYCLE if cycle else CLAIMED_BY_ANOTHER
    return Condition(CONFLICT, "True", reason, " ".join(messages))


def _degraded(tally: Tally, refusals: Mapping[NamespacedName, str]) -> Condition:
    """The Degraded condition for the first problem found: those that need action come before transient ones."""
    compiled = tally.compiled
    if compiled.errors:
        return Condition(
            DEGRADED,
            "True",
            INVALID_SPEC,
            f"Left out as invalid: {listed([str(each) for each in compiled.errors])}.",
        )
    if refusals:
        return not_marked(refusals)
    if tally.left_out:
        return _left_out(tally)
    if tally.silent:
        nodes = [f"{node} ({count} pods)" for node, count in sorted(tally.silent.items())]
        return Condition(
            DEGRADED,
            "True",
            REASON_AGENT_STALE,
            f"Results are unknown, as the probe agents of these nodes are silent: {listed(nodes)}. "
            "Look at the daemon's pod on each, and at the node itself.",
        )
    if tally.containers_missing:
        matched = tally.verdicts.total()
        sentences = [
            f"container {container!r} of probe {probe!r} is no container or sidecar of {count} of {matched} pods"
            for (probe, container), count in sorted(tally.containers_missing.items())
        ]
        advice = "Correct containerName in the marker; kruise-probe status names the pods."
        message = f"Not probed: {listed(sentences)}. {advice}"
        return Condition(DEGRADED, "True", "ContainerNotFound", message)
    in_use = "Every probe of this marker is in use."
    if compiled.idle:
        without = f"{in_use} Without effect, as nothing is restarted: {listed(compiled.idle)}."
        return Condition(DEGRADED, "False", "FieldsWithoutEffect", without)
    return Condition(DEGRADED, "False", "AsExpected", in_use)


def _left_out(tally: Tally) -> Condition:
    """The Degraded condition for the first limit that leaves out pods."""
    by_reason: Counter[str] = Counter()
    for (reason, _), count in tally.left_out.items():
        by_reason[reason] += count
    matched = tally.verdicts.total()
    if count := by_reason[REASON_TOO_MANY_MARKERS]:
        message = (
            f"{count} of {matched} pods are not probed: {MARKERS_PER_POD} older PodProbeMarkers select each of them, "
            "which is the limit. Delete some of them, or merge their probes into fewer markers."
        )
        return Condition(DEGRADED, "True", REASON_TOO_MANY_MARKERS, message)
    if count := by_reason[REASON_ENTRY_TOO_LARGE]:
        message = (
            f"{count} of {matched} pods are not probed: for each of them the probes of this marker exceed "
            f"{ENTRY_BYTES // 1024} KiB. Shorten their commands, or move probes to another marker."
        )
        return Condition(DEGRADED, "True", REASON_ENTRY_TOO_LARGE, message)
    nodes = [f"{node} ({count} pods)" for (_, node), count in sorted(tally.left_out.items())]
    message = (
        f"{by_reason[REASON_NO_ROOM]} of {matched} pods are not probed: the NodePodProbe of their node is full (1 MiB), "
        f"and this namespace or the pod has used its share of it: {listed(nodes)}. "
        "Use fewer probes or shorter commands for the pods of these nodes."
    )
    return Condition(DEGRADED, "True", REASON_NO_ROOM, message)


def not_marked(refusals: Mapping[NamespacedName, str]) -> Condition:
    """The Degraded condition for pods whose marks the API server refuses."""
    sentences = [f"{pod}: {why}" for pod, why in sorted(refusals.items())]
    count = f"{len(refusals)} pods" if len(refusals) > 1 else "1 pod"
    return Condition(
        DEGRADED,
        "True",
        "PodNotMarked",
        f"The API server refuses what should be written on {count}: {listed(sentences)}.",
    )


def listed(items: Sequence[str]) -> str:
    """Joins the first items, and counts the rest."""
    shown = "; ".join(items[:LISTED])
    return f"{shown}; and {len(items) - LISTED} more" if len(items) > LISTED else shown


def stamped(
    condition: Condition, previous: Condition | None, generation: int, now: datetime
) -> Condition:
    """Sets lastTransitionTime, which changes only with the status, and observedGeneration."""
    moved = previous is None or previous.status != condition.status
    return Condition(
        condition.type,
        condition.status,
        condition.reason,
        condition.message,
        format_time(now) if moved or previous is None else previous.last_transition_time,
        generation,
    )
