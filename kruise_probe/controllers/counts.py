"""Counts the pods of each marker by the state of its probes, and the problems that its conditions report.

A pod counts if it can be probed (see `limits.is_probed`) and its Node exists. It counts as failed if any of the
marker's probes on it failed, else as unknown if any has no result, else as succeeded. So the three add up to
`matchedPods`. A paused pod counts by its conditions, which stay as they are.

What a pod adds is kept, so a change of one pod changes the counts of its markers without a look at their other pods.

Source: Kruise pkg/controller/podprobemarker (matchedPods).
Differs: everything but the number of pods.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from kruise_probe.api.messages import searched_part
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbe, ProbeState
from kruise_probe.controllers.causes import Verdicts, cause_on, verdict_of
from kruise_probe.controllers.claims import ClaimConflict, Claims, claims_with_container
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import NOTHING_LEFT_OUT, LeftOut
from kruise_probe.controllers.marking import States, values_of, why_unknown
from kruise_probe.controllers.plan import probes_of_marker

H = TypeVar("H", bound=Hashable)

SHARED_FACTS: Final = 1024
"""How many different facts are shared between pods. Most pods of a marker have the same."""


class InvalidValue(NamedTuple):
    """A key for which the message of `probe` has no valid value.

    Attributes:
        kind: "label" or "annotation".
        searched: what part of the output the message is; empty for a whole one.
    """

    probe: str
    kind: str
    key: str
    searched: str = ""


NO_VERDICTS: Final = Verdicts()


class PodFacts(NamedTuple):
    """What one pod adds to the status of one marker.

    Attributes:
        state: None for a pod that is not counted, because it cannot be probed.
        is_pending: it is not counted yet: it is not scheduled or not initialised.
        node: of the pod, if the status names it.
        is_behind: the NodePodProbe of its node does not hold the marker's current probes.
        daemon: the problem of its node's daemon (`ProbeDaemonStale`, `NoDaemon`, `TwoDaemons`), or empty.
        left_out: the reason of the limit that leaves the marker's probes out, or empty.
        refusal: the pod, and why the API server refuses marks of this marker.
    """

    state: ProbeState | None = None
    is_pending: bool = False
    node: str = ""
    is_behind: bool = False
    daemon: str = ""
    is_paused: bool = False
    is_limited: bool = False
    left_out: str = ""
    verdicts: Verdicts = NO_VERDICTS
    invalid_values: tuple[InvalidValue, ...] = ()
    conflicts: tuple[ClaimConflict, ...] = ()
    refusal: tuple[NamespacedName, str] | None = None


class StatusCounts:
    """The counts of one marker.

    Attributes:
        pods: number of pods that were added.
        nodes_behind: number of pods, by each node whose NodePodProbe does not hold the current probes.
        pending: number of pods that are not counted yet.
        daemons: number of pods by the problem of their node's daemon, and by node.
        verdicts: number of pods by probe that has a verdict on them.
        causes: number of pods by the reason why a probe has no verdict on them, and by probe.
        left_out: number of pods by reason and node.
        invalid_values: number of pods by probe and key.
        refusals: by pod, why the API server refuses its marks.
    """

    def __init__(self, compiled: CompiledMarker) -> None:
        self.compiled = compiled
        self.pods = 0
        self.by_state: Final[Counter[ProbeState]] = Counter()
        self.nodes_behind: Final[Counter[str]] = Counter()
        self.pending = 0
        self.paused = 0
        self.daemons: Final[Counter[tuple[str, str]]] = Counter()
        self.verdicts: Final[Counter[str]] = Counter()
        self.causes: Final[Counter[tuple[str, str]]] = Counter()
        self.left_out: Final[Counter[tuple[str, str]]] = Counter()
        self.writes_limited = 0
        self.pods_with_invalid_values = 0
        self.invalid_values: Final[Counter[InvalidValue]] = Counter()
        self.conflicts: Final[Counter[ClaimConflict]] = Counter()
        self.refusals: Final[dict[NamespacedName, str]] = {}

    @property
    def matched(self) -> int:
        return self.by_state.total()

    def of_daemon(self, reason: str) -> dict[str, int]:
        """Pods by node whose daemon has this problem."""
        return {node: count for (why, node), count in self.daemons.items() if why == reason}

    def add(self, facts: PodFacts) -> None:
        """Add a pod."""
        self._count(facts, 1)
        if facts.refusal is not None:
            pod, why = facts.refusal
            self.refusals[pod] = why

    def remove(self, facts: PodFacts) -> None:
        """Remove a pod that was added with these facts."""
        self._count(facts, -1)
        if facts.refusal is not None:
            self.refusals.pop(facts.refusal[0], None)

    def add_left_out(self, pods: int, reason: str) -> None:
        """Add so many pods on which this limit leaves out the marker's probes."""
        _change(self.left_out, (reason, ""), pods)
        _change(self.by_state, ProbeState.UNKNOWN, pods)
        for probe in self.compiled.probes:
            _change(self.causes, (reason, probe.probe), pods)

    def _count(self, facts: PodFacts, by: int) -> None:
        self.pods += by
        self.pending += by * facts.is_pending
        for conflict in facts.conflicts:
            _change(self.conflicts, conflict, by)
        if facts.state is not None:
            self._count_probed(facts, facts.state, by)

    def _count_probed(self, facts: PodFacts, state: ProbeState, by: int) -> None:
        _change(self.by_state, state, by)
        self.paused += by * facts.is_paused
        self.writes_limited += by * facts.is_limited
        if facts.is_behind:
            _change(self.nodes_behind, facts.node, by)
        if facts.daemon:
            _change(self.daemons, (facts.daemon, facts.node), by)
        if facts.left_out:
            _change(self.left_out, (facts.left_out, facts.node), by)
        for probe in facts.verdicts.given:
            _change(self.verdicts, probe, by)
        for probe, reason in facts.verdicts.causes:
            _change(self.causes, (reason, probe), by)
        if facts.invalid_values:
            self.pods_with_invalid_values += by
            for invalid in facts.invalid_values:
                _change(self.invalid_values, invalid, by)


def _change(counter: Counter[H], key: H, by: int) -> None:
    count = counter[key] + by
    if count:
        counter[key] = count
    else:
        counter.pop(key, None)


OfMarkers = tuple[tuple[NamespacedName, PodFacts], ...]
"""The facts of one pod, by marker."""


class Tallies:
    """The counts of all markers, and what each pod adds to them."""

    def __init__(self) -> None:
        self._counts: dict[NamespacedName, StatusCounts] = {}
        self._by_pod: dict[str, OfMarkers] = {}
        self._complete: dict[NamespacedName, CompiledMarker] = {}
        self._shared: dict[OfMarkers, OfMarkers] = {}

    def of(self, marker: CompiledMarker) -> StatusCounts | None:
        """The counts of a marker; None if not all of its pods have been counted since it was created or edited."""
        if self._complete.get(marker.key) is not marker:
            return None
        return self._counts[marker.key]

    def complete(self, marker: CompiledMarker) -> None:
        """Record that all pods of a marker have been counted."""
        self._complete[marker.key] = marker
        self._of(marker).compiled = marker

    def forget_marker(self, key: NamespacedName) -> None:
        self._complete.pop(key, None)
        self._drop_if_empty(key)

    def set_pod(self, uid: str, facts: Mapping[CompiledMarker, PodFacts]) -> list[NamespacedName]:
        """Replace what a pod adds. Return the markers whose counts have changed."""
        new: OfMarkers = tuple([(marker.key, of_marker) for marker, of_marker in facts.items()])
        old = self._by_pod.pop(uid, ())
        if new:
            self._by_pod[uid] = self._share(new)
        if old == new:
            return []
        before = dict(old)
        changed: list[NamespacedName] = []
        for marker, added in facts.items():
            removed = before.pop(marker.key, None)
            if removed == added:
                continue
            counts = self._of(marker)
            if removed is not None:
                counts.remove(removed)
            counts.add(added)
            changed.append(marker.key)
        for key, removed in before.items():
            self._counts[key].remove(removed)
            self._drop_if_empty(key)
            changed.append(key)
        return changed

    def remove_pod(self, uid: str) -> list[NamespacedName]:
        """Remove a pod. Return the markers whose counts have changed."""
        return self.set_pod(uid, {})

    def _of(self, marker: CompiledMarker) -> StatusCounts:
        counts = self._counts.get(marker.key)
        if counts is None:
            counts = self._counts[marker.key] = StatusCounts(marker)
        return counts

    def _drop_if_empty(self, key: NamespacedName) -> None:
        """The counts of a removed marker are needed until its pods have been counted again."""
        counts = self._counts.get(key)
        if counts is not None and not counts.pods and key not in self._complete:
            del self._counts[key]

    def _share(self, facts: OfMarkers) -> OfMarkers:
        if len(self._shared) >= SHARED_FACTS:
            self._shared.clear()
        return self._shared.setdefault(facts, facts)


class PodOutcome(NamedTuple):
    """What a pod shows, as the counts of all of its markers read it.

    Attributes:
        invalid_values: by the name of the probe.
    """

    states: States
    invalid_values: Mapping[str, Sequence[InvalidValue]] = MappingProxyType({})


def outcome_of(pod: Pod, claims: Claims, states: States, stale: str) -> PodOutcome:
    """By the recorded states: without those that are stale, and those of containers that ended for good."""
    shown = states
    if stale or pod.finished or pod.exit_codes:
        shown = {}
        for claim in claims.claims:
            state = states.get(claim.name)
            if state is not None and why_unknown(pod, claim, stale, None) is None:
                shown[claim.name] = state
    if not shown:
        return PodOutcome(shown)
    return PodOutcome(shown, invalid_values(pod, claims, shown))


def state_of(marker: CompiledMarker, states: States) -> ProbeState:
    result = ProbeState.SUCCEEDED if marker.probes else ProbeState.UNKNOWN
    for probe in marker.probes:
        state = states.get(probe.name)
        if state is not None and state.state == ProbeState.FAILED:
            return ProbeState.FAILED
        if state is None or state.state != ProbeState.SUCCEEDED:
            result = ProbeState.UNKNOWN
    return result


def invalid_values_of(marker: CompiledMarker, outcome: PodOutcome) -> tuple[InvalidValue, ...]:
    """The keys of a marker for which the pod shows no valid value."""
    if not outcome.invalid_values:
        return ()
    found: list[InvalidValue] = []
    for probe in marker.probes:
        found += outcome.invalid_values.get(probe.name, ())
    return tuple(found)


def verdicts_on(
    marker: CompiledMarker,
    pod: Pod,
    states: States,
    *,
    left_out: Mapping[str, LeftOut] = NOTHING_LEFT_OUT,
    is_absent: bool = False,
) -> Verdicts:
    """Which probes have a verdict in `states`, those recorded for the pod, and why the others have none."""
    given: list[str] = []
    causes: list[tuple[str, str]] = []
    for probe in marker.probes:
        is_given, cause = verdict_of(states.get(probe.name))
        if is_given:
            given.append(probe.probe)
            continue
        cause = cause or cause_on(probe, pod, left_out.get(probe.name), is_absent=is_absent)
        if cause:
            causes.append((probe.probe, cause))
    return Verdicts(tuple(given), tuple(causes))


def invalid_values(
    pod: Pod,
    claims: Claims,
    states: States,
) -> Mapping[str, Sequence[InvalidValue]]:
    """The keys for which the current messages of `pod` have no valid value, by the name of the probe."""
    found: dict[str, list[InvalidValue]] = {}
    for claim in claims_with_container(pod, claims).claims:
        state = states.get(claim.name)
        if state is None:
            continue
        wanted = claim.wanted.get(state.state)
        if not wanted:
            continue
        searched = searched_part(state.message or "", failed=state.state == ProbeState.FAILED)
        probe = ProbeName.parse(claim.name).probe
        for value in values_of(wanted, state):
            if value.invalid:
                invalid = InvalidValue(probe, value.mark.kind, value.mark.name, searched)
                found.setdefault(claim.name, []).append(invalid)
    return found


def is_current(marker: CompiledMarker, pod: Pod, entry: PodProbe | None, *, paused: bool) -> bool:
    """Whether the node's NodePodProbe holds exactly this marker's probes of the pod."""
    wanted: tuple[ContainerProbe, ...] = ()
    if not paused:
        wanted = probes_of_marker(marker, pod.containers, pod.started).probes
    if entry is None:
        return not wanted
    if wanted and entry.ip != pod.ip:
        return False
    if entry.probes == wanted:
        return True
    name = marker.key.name
    ours = [probe for probe in entry.probes if ProbeName.parse(probe.name).marker == name]
    return tuple(ours) == wanted
