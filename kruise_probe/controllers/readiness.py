"""The condition Ready of a marker, for kstatus, `kubectl wait`, Helm, Flux and Argo CD. Pure functions.

Ready follows a generation: it is Unknown until each probe has a verdict on a pod, and True from then on, whatever happens to
single pods. It is False for a fault of the marker itself, and for a cause that keeps a verdict from all of its pods.

Source: sigs.k8s.io/cli-utils pkg/kstatus (Ready).
Differs: Ready is Unknown while results are awaited, as kstatus takes False for in progress too.
"""

from typing import Final, NamedTuple

from kruise_probe.api.meta import Condition, NamespacedName
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.causes import CAUSES
from kruise_probe.controllers.counts import StatusCounts

READY: Final = "Ready"
REPORTING: Final = "Reporting"
NO_PODS: Final = "NoPods"
WAITING_FOR_RESULTS: Final = "WaitingForResults"
NO_VERDICT: Final = "NoVerdict"
NODES_BEHIND: Final = "NodesBehind"
INVALID_SPEC: Final = "InvalidSpec"
CLAIMED_BY_ANOTHER: Final = "ClaimedByAnother"

BEHIND_SECONDS: Final = 30.0
"""After this time, a marker that is not Synced is not Ready."""
NO_PODS_SECONDS: Final = 10.0
"""After this time, a marker without pods is Ready: the pods of a workload that was created with it exist by then."""
NO_VERDICT_SECONDS: Final = 60.0
"""After this time, a cause that all pods share makes the marker not Ready. It is seen after the first attempt."""


class Lasting(NamedTuple):
    """What has lasted long enough to decide whether a marker is Ready.

    Attributes:
        behind: NodePodProbes do not hold the current probes.
        without_verdict: all pods share a cause why a probe has no verdict.
        without_pods: the selector matches no pod that can be probed, or will be.
    """

    behind: bool = False
    without_verdict: bool = False
    without_pods: bool = False


class Stopwatch:
    """Since when each marker has been in a state, by the loop's clock, and whether that is for the limit."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._since: dict[NamespacedName, float] = {}

    def observe(self, marker: NamespacedName, is_so: bool) -> bool:
        """Record whether the marker is in the state; return whether it has been for the limit."""
        if not is_so:
            self.forget(marker)
            return False
        now = loop_time()
        return now >= self._since.setdefault(marker, now) + self._limit_seconds

    def seconds_until_limit(self, marker: NamespacedName) -> list[float]:
        """The time until the state has lasted for the limit; none if it has, or does not last."""
        since = self._since.get(marker)
        if since is None:
            return []
        left = since + self._limit_seconds - loop_time()
        return [left] if left > 0 else []

    def forget(self, marker: NamespacedName) -> None:
        self._since.pop(marker, None)


class Stopwatches:
    """A stopwatch for each state of `Lasting`."""

    def __init__(self) -> None:
        self._behind = Stopwatch(BEHIND_SECONDS)
        self._without_verdict = Stopwatch(NO_VERDICT_SECONDS)
        self._without_pods = Stopwatch(NO_PODS_SECONDS)
        self._all = (self._behind, self._without_verdict, self._without_pods)

    def observe(self, marker: NamespacedName, counts: StatusCounts) -> Lasting:
        is_without_verdict = bool(probe_without_verdict(counts))
        return Lasting(
            self._behind.observe(marker, bool(counts.nodes_behind)),
            self._without_verdict.observe(marker, is_without_verdict),
            self._without_pods.observe(marker, not counts.matched and not counts.pending),
        )

    def seconds_until_checks(self, marker: NamespacedName) -> list[float]:
        """When a state of the marker has lasted long enough."""
        checks: list[float] = []
        for stopwatch in self._all:
            checks += stopwatch.seconds_until_limit(marker)
        return checks

    def forget(self, marker: NamespacedName) -> None:
        for stopwatch in self._all:
            stopwatch.forget(marker)


def previous_ready(marker: PodProbeMarker, generation: int) -> str:
    """The reason of the condition Ready in the marker's status, if it is about this generation; or empty."""
    conditions = marker.status.conditions if marker.status is not None else ()
    for condition in conditions:
        if condition.type == READY and condition.observed_generation == generation:
            return condition.reason
    return ""


def probe_without_verdict(counts: StatusCounts) -> str:
    """A probe that has no verdict on any pod, while each pod has a cause why; or empty."""
    if counts.pending or not counts.matched:
        return ""
    for probe in counts.compiled.probes:
        if not counts.verdicts[probe.probe] and _caused(counts, probe.probe) == counts.matched:
            return probe.probe
    return ""


def _caused(counts: StatusCounts, probe: str) -> int:
    """On how many pods a probe has a cause why it has no verdict."""
    return sum(counts.causes[reason, probe] for reason in CAUSES)


def _first_cause(counts: StatusCounts, probe: str) -> str:
    return next(reason for reason in CAUSES if counts.causes[reason, probe])


def ready(counts: StatusCounts, is_claimed: bool, previous: str, lasting: Lasting) -> Condition:
    """The condition Ready.

    `is_claimed`: another probe owns a name of the marker. `previous` is the last reason about the same generation, or empty.
    """
    if counts.compiled.errors:
        return _not_ready(INVALID_SPEC, "The spec has invalid parts: see Degraded.")
    if is_claimed:
        message = "Another probe owns a name of this marker: see Conflict."
        return _not_ready(CLAIMED_BY_ANOTHER, message)
    if counts.nodes_behind and (lasting.behind or previous == NODES_BEHIND):
        return _not_ready(NODES_BEHIND, "Nodes do not have the current probes: see Synced.")
    stuck = _stuck_probe(counts, previous, lasting)
    if stuck:
        cause = _first_cause(counts, stuck)
        message = f"Probe {stuck!r} has no result on any pod ({cause}): {CAUSES[cause]}."
        return _not_ready(NO_VERDICT, message)
    waiting = [probe.probe for probe in counts.compiled.probes if not counts.verdicts[probe.probe]]
    if previous == REPORTING or not waiting:
        message = "Each probe has had a result on a pod since this marker was changed."
        return Condition(READY, "True", REPORTING, message)
    if not counts.matched and not counts.pending and (lasting.without_pods or previous == NO_PODS):
        return Condition(READY, "True", NO_PODS, "The selector matches no pod that can be probed.")
    message = f"No result yet of probe {waiting[0]!r} on any pod."
    return Condition(READY, "Unknown", WAITING_FOR_RESULTS, message)


def _stuck_probe(counts: StatusCounts, previous: str, lasting: Lasting) -> str:
    """The probe of which no pod has a verdict, for long enough; a new pod changes nothing, until a pod has a verdict."""
    if previous != NO_VERDICT:
        return probe_without_verdict(counts) if lasting.without_verdict else ""
    for known in counts.compiled.probes:
        if not counts.verdicts[known.probe] and _caused(counts, known.probe):
            return known.probe
    return ""


def _not_ready(reason: str, message: str) -> Condition:
    return Condition(READY, "False", reason, message)
