"""What each pod adds to the status of its markers. Pure functions.

A pod adds a few facts to each of its markers: the state of the probes, and problems that the marker's conditions report.
`tallies` has the numbers of pods by fact.

A pod has a state if it can be probed (see `limits.is_probed`) and its Node exists. It counts as failed if any of the
marker's probes on it failed, else as unknown if any has no result, else as succeeded. So the three add up to
`matchedPods`. A paused pod counts by its conditions, which stay as they are.

Source: Kruise pkg/controller/podprobemarker (matchedPods).
Differs: everything but the number of pods.
"""

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.messages import searched_part
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE, ProbeName
from kruise_probe.api.node_pod_probe import ContainerProbeState, PodProbe
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.controllers.causes import NO_DAEMON, cause_on, verdict_of
from kruise_probe.controllers.claims import Claim, Claims
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.limits import (
    ANNOTATIONS_FULL,
    LeftOut,
    has_no_place_in_annotations,
)
from kruise_probe.controllers.marking import PodResults, States, values_of, why_unknown
from kruise_probe.controllers.plan import probes_of_marker

NODES_BEHIND: Final = "NodesBehind"
TWO_DAEMONS: Final = "TwoDaemons"


class PodFlag(Enum):
    """A fact without further values. PENDING: not scheduled or not initialised yet. INVALID: has values of InvalidValue."""

    PENDING = auto()
    PAUSED = auto()
    WRITES_LIMITED = auto()
    INVALID = auto()


class InState(msgspec.Struct, frozen=True, gc=False):
    """The state of all of the marker's probes on the pod together."""

    state: ProbeState


class OnNode(msgspec.Struct, frozen=True, gc=False):
    """A problem of the pod's node.

    Its reason is NODES_BEHIND, if the NodePodProbe does not hold the marker's current probes, that of its daemon's problem, or that
    of the limit that leaves out the marker's probes.
    """

    reason: str
    node: str


class ProbeVerdict(msgspec.Struct, frozen=True, gc=False):
    """A probe has a verdict on the pod or, with a `cause`, has none. EVERY_PROBE: all of the marker's have the same."""

    probe: str
    cause: str


EVERY_PROBE: Final = ""


class InvalidValue(msgspec.Struct, frozen=True, order=True, gc=False):
    """A key for which the message of `probe` has no valid value.

    Attributes:
        kind: "label" or "annotation".
        searched: what part of the output the message is; empty for a whole one.
    """

    probe: str
    kind: str
    key: str
    searched: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """Why the API server refuses marks of the marker on the pod."""

    pod: NamespacedName
    why: str


PodFacts = tuple[Hashable, ...]
"""What one pod adds to one marker: values of the types above, and of `claims.ClaimConflict`."""


InvalidValues = Mapping[str, Sequence[InvalidValue]]
"""By the name of the probe, `<marker>#<probe>`."""


class ProbedPod(NamedTuple):
    """What is known of a pod that can be probed, for all of its markers.

    Attributes:
        states: those of its results that count.
        shown: the states that its conditions show, for paused markers: their conditions stay as they are.
        entry: in the NodePodProbe, if that is as the manager sent it.
        checks_entry: `entry` should hold the current probes.
        is_serverless: a provider reports its results.
        is_absent: its node never showed a daemon.
    """

    pod: Pod
    results: PodResults
    states: States
    invalid_values: InvalidValues
    shown: States
    entry: PodProbe | None
    checks_entry: bool
    is_serverless: bool
    is_absent: bool
    has_two_daemons: bool
    is_limited: bool


def facts_of_probed(marker: CompiledMarker, probed: ProbedPod) -> PodFacts:
    """What a pod that can be probed adds to a marker."""
    pod = probed.pod
    is_paused = marker.paused or pod.paused
    if probed.results.by_provider:
        is_paused = False
    limit = _limit_of(marker, probed)
    if limit is not None and not is_paused:
        return facts_of_left_out(limit.reason, pod.node)
    facts: list[Hashable] = []
    if is_paused:
        state = state_of(marker, probed.shown)
        facts.append(PodFlag.PAUSED)
    else:
        state = state_of(marker, probed.states)
        facts += _invalid_of(marker, probed.invalid_values)
    facts.append(InState(state))
    if probed.is_limited:
        facts.append(PodFlag.WRITES_LIMITED)
    if probed.checks_entry and not _is_current(marker, probed, is_paused):
        facts.append(OnNode(NODES_BEHIND, pod.node))
    daemon = _problem_of_daemon(probed, is_paused)
    if daemon:
        facts.append(OnNode(daemon, pod.node))
    facts += _verdicts(marker, probed)
    return tuple(facts)


def _invalid_of(marker: CompiledMarker, values: InvalidValues) -> list[Hashable]:
    invalid: list[Hashable] = []
    if not values:  # the common case
        return invalid
    for probe in marker.probes:
        invalid += values.get(probe.name, ())
    if invalid:
        invalid.append(PodFlag.INVALID)
    return invalid


def facts_of_left_out(reason: str, node: str = "") -> PodFacts:
    """What a pod adds to a marker whose probes a limit leaves out."""
    verdict = ProbeVerdict(EVERY_PROBE, reason)
    return (InState(ProbeState.UNKNOWN), OnNode(reason, node), verdict)


def _limit_of(marker: CompiledMarker, probed: ProbedPod) -> LeftOut | None:
    if probed.is_serverless and has_no_place_in_annotations(probed.pod, marker):
        return ANNOTATIONS_FULL
    return probed.results.left_out.get(marker.key.name)


def _problem_of_daemon(probed: ProbedPod, is_paused: bool) -> str:
    is_stale = bool(probed.results.why_stale)
    if is_paused:
        reasons = [condition.reason for condition in probed.pod.conditions]
        is_stale = REASON_DAEMON_STALE in reasons
    if is_stale:
        return REASON_DAEMON_STALE
    if probed.is_absent and not is_paused:
        return NO_DAEMON
    if probed.has_two_daemons:
        return TWO_DAEMONS
    return ""


def _verdicts(marker: CompiledMarker, probed: ProbedPod) -> list[ProbeVerdict]:
    """The probes that have a verdict in the recorded states, and why others have none.

    A pod may have a hundred probes, so what all have in common is one fact.
    """
    results = probed.results
    verdicts = []
    for probe in marker.probes:
        state = results.states.get(probe.name)
        is_given, cause = verdict_of(state)
        if not is_given and not cause:
            unsupported = results.left_out.get(probe.name)
            cause = cause_on(
                probe,
                probed.pod,
                unsupported,
                is_absent=probed.is_absent,
            )
        if is_given or cause:
            verdict = ProbeVerdict(probe.probe, cause)
            verdicts.append(verdict)
    causes = {verdict.cause for verdict in verdicts}
    if len(causes) == 1 and len(verdicts) == len(marker.probes):
        return [ProbeVerdict(EVERY_PROBE, causes.pop())]
    return verdicts


def counted_states(
    pod: Pod,
    claims: Claims,
    results: PodResults,
) -> States:
    """The recorded states without those that are stale, and those of containers that ended for good."""
    if not results.why_stale and not pod.exit_codes:
        return results.states
    states = {}
    for claim in claims.claims:
        state = results.states.get(claim.name)
        if state is None:
            continue
        why = why_unknown(pod, claim, results)
        if why is None:
            states[claim.name] = state
    return states


def state_of(marker: CompiledMarker, states: States) -> ProbeState:
    if not marker.probes:
        return ProbeState.UNKNOWN
    result = ProbeState.SUCCEEDED
    for probe in marker.probes:
        state = states.get(probe.name)
        if state is not None and state.state == ProbeState.FAILED:
            return ProbeState.FAILED
        if state is None or state.state != ProbeState.SUCCEEDED:
            result = ProbeState.UNKNOWN
    return result


def invalid_values(claims: Claims, states: States) -> InvalidValues:
    """The keys for which the messages of a pod have no valid value."""
    if not states:
        return {}
    found = {}
    for claim in claims.claims:
        state = states.get(claim.name)
        if state is None:
            continue
        values = _invalid_values_in(claim, state)
        if values:
            found[claim.name] = values
    return found


def _invalid_values_in(claim: Claim, state: ContainerProbeState) -> list[InvalidValue]:
    wanted = claim.wanted.get(state.state, {})
    values = values_of(wanted, state)
    marks = [value.mark for value in values if value.invalid is not None]
    if not marks:  # the common case
        return []
    message = state.message or ""
    failed = state.state == ProbeState.FAILED
    searched = searched_part(message, failed=failed)
    probe = ProbeName.parse(claim.name).probe
    found = []
    for mark in marks:
        invalid = InvalidValue(probe, mark.kind, mark.name, searched)
        found.append(invalid)
    return found


def _is_current(
    marker: CompiledMarker,
    probed: ProbedPod,
    is_paused: bool,
) -> bool:
    """Whether the node's NodePodProbe holds exactly this marker's probes of the pod."""
    pod = probed.pod
    entry = probed.entry
    wanted: tuple[ContainerProbe, ...] = ()
    if not is_paused:
        wanted = probes_of_marker(marker, pod.containers, pod.started).probes
    if entry is None:
        return not wanted
    if wanted and entry.ip != pod.ip:
        return False
    if entry.probes == wanted:
        return True
    no_name = ProbeName(marker.key.name, "")
    prefix = str(no_name)
    ours = [probe for probe in entry.probes if probe.name.startswith(prefix)]
    return tuple(ours) == wanted
