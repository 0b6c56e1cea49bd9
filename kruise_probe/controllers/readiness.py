"""The condition Ready of a marker, for kstatus, `kubectl wait`, Helm, Flux and Argo CD. Pure functions.

Ready follows a generation: it is Unknown until each probe has a verdict on a pod, and True from then on, whatever happens to
single pods. It is False for a fault of the marker itself, and for a cause that keeps a verdict from all of its pods.

Source: sigs.k8s.io/cli-utils pkg/kstatus (Ready).
Differs: Ready is Unknown while results are awaited, as kstatus takes False for in progress too.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kruise_probe.api.meta import Condition
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.causes import CAUSES
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.counts import (
    EVERY_PROBE,
    NODES_BEHIND,
    PodFlag,
    ProbeVerdict,
)
from kruise_probe.controllers.tallies import StatusCounts

READY: Final = "Ready"
REPORTING: Final = "Reporting"
NO_PODS: Final = "NoPods"
WAITING_FOR_RESULTS: Final = "WaitingForResults"
NO_VERDICT: Final = "NoVerdict"
INVALID_SPEC: Final = "InvalidSpec"
CLAIMED_BY_ANOTHER: Final = "ClaimedByAnother"

LIMIT_SECONDS: Final = {
    NODES_BEHIND: 30.0,
    NO_VERDICT: 60.0,
    NO_PODS: 10.0,
}
"""By reason, how long it lasts until Ready has it. NO_VERDICT: it is seen after the first attempt. NO_PODS: the pods of a workload
that was created with the marker exist by then."""


class Lasting:
    """Since when a marker has the reasons of LIMIT_SECONDS, by the loop's clock."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def observe(self, reasons: Iterable[str]) -> set[str]:
        """Record the reasons that the marker has now; return those that have lasted for their limit."""
        now = loop_time()
        before = self._since
        self._since = {reason: before.get(reason, now) for reason in reasons}
        return {reason for reason in self._since if self._seconds_left(reason) <= 0}

    def seconds_until_limits(self) -> list[float]:
        """The time until each reason has lasted for its limit; none if it has."""
        left = [self._seconds_left(reason) for reason in self._since]
        return [seconds for seconds in left if seconds > 0]

    def _seconds_left(self, reason: str) -> float:
        ends_at = self._since[reason] + LIMIT_SECONDS[reason]
        return ends_at - loop_time()


def reasons_of(marker: CompiledMarker, counts: StatusCounts) -> list[str]:
    """The reasons of LIMIT_SECONDS that a marker has now."""
    reasons = []
    if counts.on_nodes(NODES_BEHIND):
        reasons.append(NODES_BEHIND)
    if _has_no_pods(counts):
        reasons.append(NO_PODS)
    if _probe_without_verdict(marker, counts):
        reasons.append(NO_VERDICT)
    return reasons


def previous_ready(marker: PodProbeMarker, generation: int) -> str:
    """The reason of the condition Ready in the marker's status, if it is about this generation; or empty."""
    for condition in marker.conditions:
        if condition.type != READY:
            continue
        if condition.observed_generation == generation:
            return condition.reason
    return ""


def ready(
    marker: CompiledMarker,
    counts: StatusCounts,
    *,
    is_claimed: bool,
    previous: str,
    lasting: set[str],
) -> Condition:
    """The condition Ready.

    `is_claimed`: another probe owns a name of the marker. `previous` is the last reason about the same generation, or empty.
    `lasting` are the reasons that have lasted for their limit. A previous one need not do so again.
    """
    if marker.errors:
        return _not_ready(INVALID_SPEC, "The spec has invalid parts: see Degraded.")
    if is_claimed:
        message = "Another probe owns a name of this marker: see Conflict."
        return _not_ready(CLAIMED_BY_ANOTHER, message)
    settled = {previous, *lasting}
    if NODES_BEHIND in settled and counts.on_nodes(NODES_BEHIND):
        return _not_ready(NODES_BEHIND, "Nodes do not have the current probes: see Synced.")
    stuck = _stuck_probe(marker, counts, previous, lasting)
    if stuck:
        causes = [cause for cause in CAUSES if stuck in counts.of_probes(marker, cause)]
        first = causes[0]
        message = f"Probe {stuck!r} has no result on any pod ({first}): {CAUSES[first]}."
        return _not_ready(NO_VERDICT, message)
    waiting = _probes_without_verdict(marker, counts)
    if previous == REPORTING or not waiting:
        message = "Each probe has had a result on a pod since this marker was changed."
        return Condition(READY, "True", REPORTING, message)
    if NO_PODS in settled and _has_no_pods(counts):
        return Condition(READY, "True", NO_PODS, "The selector matches no pod that can be probed.")
    message = f"No result yet of probe {waiting[0]!r} on any pod."
    return Condition(READY, "Unknown", WAITING_FOR_RESULTS, message)


def _not_ready(reason: str, message: str) -> Condition:
    return Condition(READY, "False", reason, message)


def _stuck_probe(
    marker: CompiledMarker,
    counts: StatusCounts,
    previous: str,
    lasting: set[str],
) -> str:
    """The probe of which no pod has a verdict, for long enough; a new pod changes nothing, until a pod has a verdict."""
    if previous != NO_VERDICT:
        if NO_VERDICT in lasting:
            return _probe_without_verdict(marker, counts)
        return ""
    caused = _caused(counts)
    for probe in _probes_without_verdict(marker, counts):
        if caused[probe] or caused[EVERY_PROBE]:
            return probe
    return ""


def _has_no_pods(counts: StatusCounts) -> bool:
    """Whether the selector matches no pod that can be probed, or will be."""
    if counts.matched:
        return False
    return not counts[PodFlag.PENDING]


def _probe_without_verdict(marker: CompiledMarker, counts: StatusCounts) -> str:
    """A probe that has no verdict on any pod, while each pod has a cause why; or empty."""
    matched = counts.matched
    if not matched:
        return ""
    if counts[PodFlag.PENDING]:
        return ""
    caused = _caused(counts)
    for probe in marker.probes:
        if caused[probe.probe] + caused[EVERY_PROBE] == matched:
            return probe.probe
    return ""


def _probes_without_verdict(marker: CompiledMarker, counts: StatusCounts) -> list[str]:
    """The probes that have no verdict on any pod."""
    given = counts.of_probes(marker)
    return [probe.probe for probe in marker.probes if probe.probe not in given]


def _caused(counts: StatusCounts) -> Counter[str]:
    """By probe, on how many pods it has a cause why it has no verdict."""
    caused: Counter[str] = Counter()
    for verdict, pods in counts.of(ProbeVerdict).items():
        if verdict.cause:
            caused[verdict.probe] += pods
    return caused
