"""Counts the pods of a marker by the state of its probes, and the problems that its conditions report.

A pod counts if it can be probed (see `nodes.plan.is_probed`) and its Node exists. It counts as failed if any of the
marker's probes on it failed, else as unknown if any has no result, else as succeeded. So the three add up to
`matchedPods`. A paused pod counts by its conditions, which stay as they are.

Source: Kruise pkg/controller/podprobemarker (matchedPods).
Differs: everything but the number of pods.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from kruise_probe.api.messages import searched_part
from kruise_probe.api.names import ProbeName
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ContainerProbeState, PodProbe, ProbeState
from kruise_probe.controllers.causes import Verdicts, cause_on, verdict_of
from kruise_probe.controllers.claims import Claims, claims_with_container
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.marking import States, values_of, why_unknown
from kruise_probe.controllers.plan import probes_of_marker


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


class StatusCounts:
    """The counts of one marker's pods; `add` the pods in any order."""

    def __init__(self, compiled: CompiledMarker) -> None:
        self.compiled: Final = compiled
        self.by_state: Final[Counter[ProbeState]] = Counter()
        self.nodes_behind: Final[set[str]] = set()
        """The nodes whose NodePodProbe does not hold the current probes."""
        self.pending = 0
        """Selected pods that are not counted yet: they are not scheduled or not initialised."""
        self.paused = 0
        self.daemons: Final[Counter[tuple[str, str]]] = Counter()
        """Pods by the problem of their node's daemon (`ProbeDaemonStale`, `NoDaemon`, `TwoDaemons`) and by node."""
        self.verdicts: Final[Counter[str]] = Counter()
        """Pods by probe that has a verdict on them."""
        self.causes: Final[Counter[tuple[str, str]]] = Counter()
        """Pods by the reason why a probe has no verdict on them, and by probe."""
        self.left_out: Final[Counter[tuple[str, str]]] = Counter()
        """Pods by reason and node."""
        self.writes_limited = 0
        self.pods_with_invalid_values = 0
        self.invalid_values: Final[Counter[InvalidValue]] = Counter()
        """Pods by probe and key."""

    @property
    def matched(self) -> int:
        return self.by_state.total()

    def add_left_out(self, pod: Pod, reason: str) -> None:
        """Count a pod on which a limit leaves out this marker's probes."""
        self.left_out[reason, pod.node] += 1
        self.by_state[ProbeState.UNKNOWN] += 1
        for probe in self.compiled.probes:
            self.causes[reason, probe.probe] += 1

    def of_daemon(self, reason: str) -> dict[str, int]:
        """Pods by node whose daemon has this problem."""
        return {node: count for (why, node), count in self.daemons.items() if why == reason}

    def add(self, pod: Pod, states: States, invalid_values: Sequence[InvalidValue]) -> None:
        """Count a pod by the results that it shows; without those that are stale or of a finished container."""
        compiled = self.compiled
        self.by_state[_state_of(compiled, states)] += 1
        self.pods_with_invalid_values += bool(invalid_values)
        self.invalid_values.update(invalid_values)

    def add_verdicts(self, verdicts: Verdicts) -> None:
        self.verdicts.update(verdicts.given)
        for probe, reason in verdicts.causes:
            self.causes[reason, probe] += 1

    def check_entry(self, pod: Pod, entry: PodProbe | None, *, paused: bool) -> None:
        """Compare the entry of a pod in the NodePodProbe of its node with the probes that it should have."""
        if not _is_current(self.compiled, pod, entry, paused):
            self.nodes_behind.add(pod.node)


def verdicts_on(
    compiled: CompiledMarker, pod: Pod, states: States, *, is_absent: bool = False
) -> Verdicts:
    """Which probes have a verdict in `states`, those recorded for the pod, and why the others have none."""
    given: list[str] = []
    causes: list[tuple[str, str]] = []
    for probe in compiled.probes:
        is_given, cause = verdict_of(states.get(probe.name))
        if is_given:
            given.append(probe.probe)
            continue
        cause = cause or cause_on(probe, pod, is_absent=is_absent)
        if cause:
            causes.append((probe.probe, cause))
    return Verdicts(tuple(given), tuple(causes))


def shown_states(compiled: CompiledMarker, pod: Pod, states: States, stale: str) -> States:
    """The recorded states that the pod shows: without those that are stale, and those of containers that ended for good."""
    shown: dict[str, ContainerProbeState] = {}
    for probe in compiled.probes:
        state = states.get(probe.name)
        if state is not None and why_unknown(pod, probe, stale, None) is None:
            shown[probe.name] = state
    return shown


def invalid_values(
    compiled: CompiledMarker, pod: Pod, claims: Claims, states: States
) -> list[InvalidValue]:
    """The keys of a marker for which the current messages of `pod` have no valid value."""
    names = {each.name: each.probe for each in compiled.probes}
    found: list[InvalidValue] = []
    for claim in claims_with_container(pod, claims).claims:
        state = states.get(claim.name)
        wanted = claim.wanted.get(state.state) if state is not None else None
        if claim.name not in names or state is None or wanted is None:
            continue
        searched = searched_part(state.message or "", failed=state.state == ProbeState.FAILED)
        found += [
            InvalidValue(names[claim.name], value.mark.kind, value.mark.name, searched)
            for value in values_of(wanted, state)
            if value.invalid
        ]
    return found


def _state_of(compiled: CompiledMarker, states: States) -> ProbeState:
    found = [states.get(probe.name) for probe in compiled.probes]
    if any(each is not None and each.state == ProbeState.FAILED for each in found):
        return ProbeState.FAILED
    succeeded = bool(found) and all(
        each is not None and each.state == ProbeState.SUCCEEDED for each in found
    )
    return ProbeState.SUCCEEDED if succeeded else ProbeState.UNKNOWN


def _is_current(compiled: CompiledMarker, pod: Pod, entry: PodProbe | None, paused: bool) -> bool:
    """Whether the node's NodePodProbe holds exactly this marker's probes of the pod."""
    wanted = () if paused else probes_of_marker(compiled, pod.containers, pod.started)
    if entry is None:
        return not wanted
    if wanted and entry.ip != pod.ip:
        return False
    current = entry.probes
    if current == wanted:
        return True
    name = compiled.key.name
    ours = [each for each in current if ProbeName.parse(each.name).marker == name]
    return tuple(ours) == wanted
