"""Visits the pods of the backlog in slices: enqueues what a change of markers concerns, and counts each pod. Key: a namespace.

Counting enqueues the markers whose counts changed, and those of which all pods have been counted now. A standby counts nothing: it
only records which marks have lost their marker, and the queues of everything else are closed.

Source: Kruise pkg/controller/podprobemarker (matchedPods); controller-runtime pkg/handler (EnqueueRequestsFromMapFunc).
Differs: counts the changed pods, not all pods of a marker. The pods of an event are not enqueued in the event handler.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE
from kruise_probe.api.pods import Pod
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time
from kruise_probe.api.v1alpha1 import PodProbe, ProbeState
from kruise_probe.controllers.backlog import COUNT, EndOfPods, Visit
from kruise_probe.controllers.causes import NO_DAEMON, Verdicts
from kruise_probe.controllers.claims import ClaimConflict, Claims, claims_of, conflicts_of
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.conditions import TWO_DAEMONS
from kruise_probe.controllers.counts import (
    PodFacts,
    PodOutcome,
    invalid_values_of,
    is_current,
    outcome_of,
    state_of,
    verdicts_on,
)
from kruise_probe.controllers.daemon_leases import Verdict
from kruise_probe.controllers.indexes import PodResults
from kruise_probe.controllers.limits import (
    ANNOTATIONS_FULL,
    LeftOut,
    has_no_place_in_annotations,
    is_probed,
)
from kruise_probe.controllers.marking import states_of_conditions
from kruise_probe.controllers.matching import Considered
from kruise_probe.controllers.state import State
from kruise_probe.controllers.writes import MARKS_INTERVAL_SECONDS, WriteCause
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.slices import PODS_PER_STEP

PROBES_PER_STEP: Final = 1024

KEPT_CONFLICTS: Final = 16

_Conflicts = Mapping[CompiledMarker, tuple[ClaimConflict, ...]]


class VisitReconciler:
    """Enqueues pods and their nodes, and keeps the tallies current."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues = state.queues
        self._limited: Final[dict[str, set[NamespacedName]]] = {}
        """By namespace, the pods whose writes are limited."""
        self._check_at: Final[dict[str, float]] = {}
        self._conflicts: Final[dict[Considered, _Conflicts]] = {}
        """Of the last sets of markers; the pods of a template have the same."""

    async def reconcile(self, namespace: str) -> Result | None:
        backlog = self._state.backlog
        left = PROBES_PER_STEP
        for waiting, visit in backlog.take(namespace, PODS_PER_STEP):
            if isinstance(waiting, EndOfPods):
                self._complete(waiting.marker)
                continue
            pod = self._state.pods.get(waiting)
            if pod is not None:
                self._visit(pod, visit)
                left -= self._count(pod)
            if left <= 0:
                break
        if namespace in backlog:
            return Result(0.0)
        return self._recheck_limited(namespace)

    def _visit(self, pod: Pod, visit: Visit) -> None:
        if visit.before:
            self._state.record_ended(pod, visit.before)
        if visit.marks:
            self._queues.enqueue_pod(pod.key)
            ending = self._state.ending.naming(pod.namespace, pod.owned)
            self._queues.enqueue_ending(ending)
        if visit.entry:
            self._queues.enqueue_node(pod.node)

    def _count(self, pod: Pod) -> int:
        """Replace what a pod adds to the counts. Return the number of probes that this concerned, and one more."""
        if not self._queues.is_open:
            return 1
        facts = self._facts(pod)
        self._queues.enqueue_status_of(self._state.tallies.set_pod(pod.uid, facts))
        return 1 + sum(len(marker.probes) for marker in facts)

    def _complete(self, key: NamespacedName) -> None:
        marker = self._state.matching.markers.get(key)
        if marker is not None and not marker.deleting and self._queues.is_open:
            self._state.tallies.complete(marker)
            self._queues.enqueue_status_of([key])

    def _recheck_limited(self, namespace: str) -> Result | None:
        """Count the pods again whose writes are limited: when that ends, no event shows it."""
        if namespace not in self._limited:
            return None
        now = loop_time()
        check_at = self._check_at.setdefault(namespace, now + MARKS_INTERVAL_SECONDS)
        if check_at - now > CLOCK_SLACK_SECONDS:
            return Result(check_at - now)
        del self._check_at[namespace]
        for key in self._limited.pop(namespace):
            self._state.backlog.put(key, COUNT)
        return Result(0.0)

    def _facts(self, pod: Pod) -> dict[CompiledMarker, PodFacts]:
        """What a pod adds, by the markers that are considered for it."""
        state = self._state
        considered = state.matching.considered_of(pod)
        if not considered:
            return {}
        claims = claims_of(considered)
        of_pod: _ProbedPod | None = None
        if is_probed(pod) and state.node(pod.node) is not None:
            of_pod = self._probed(pod, considered, claims)
        facts: dict[CompiledMarker, PodFacts] = {}
        conflicts = self._conflicts_of(considered, claims)
        for marker in considered:
            of_marker = PodFacts(is_pending=pod.active and not pod.mirror)
            if of_pod is not None:
                of_marker = self._facts_of_probed(marker, of_pod)
            refusal = state.refusal_of(marker.key.name, pod.key)
            if refusal or conflicts[marker]:
                of_marker = of_marker._replace(
                    conflicts=conflicts[marker],
                    refusal=(pod.key, refusal) if refusal else None,
                )
            facts[marker] = of_marker
        return facts

    def _conflicts_of(self, considered: Considered, claims: Claims) -> _Conflicts:
        found = self._conflicts.get(considered)
        if found is None:
            if len(self._conflicts) >= KEPT_CONFLICTS:
                self._conflicts.clear()
            found = {marker: tuple(conflicts_of(marker, claims)) for marker in considered}
            self._conflicts[considered] = found
        return found

    def _probed(self, pod: Pod, considered: Considered, claims: Claims) -> "_ProbedPod":
        state = self._state
        results = state.results_of(pod, considered)
        is_daemons = not results.by_provider
        conditions: PodOutcome | None = None
        if is_daemons and (pod.paused or any(marker.paused for marker in considered)):
            conditions = PodOutcome(states_of_conditions(pod, claims))
        return _ProbedPod(
            pod,
            results,
            outcome_of(pod, claims, results.states, results.why_stale),
            conditions,
            entry=state.node_index.view(pod.node).entries.get(pod.uid),
            has_own_entry=is_daemons and not state.spec(pod.node).is_altered,
            is_absent=self._has_no_daemon(pod, results),
            is_limited=self._is_limited(pod, claims),
        )

    def _has_no_daemon(self, pod: Pod, results: PodResults) -> bool:
        """Whether the pod's node never showed a daemon. A virtual node has none; its provider reports with the feature gate."""
        if results.by_provider:
            return not self._state.options.serverless
        return not results.states and self._state.leases.verdict(pod.node) is Verdict.ABSENT

    def _is_limited(self, pod: Pod, claims: Claims) -> bool:
        """Whether a write of the pod's marks would have to wait now."""
        wait = self._state.limits.wait_seconds(
            pod.key,
            WriteCause.MARKS,
            probes=len(claims.claims),
            now=loop_time(),
        )
        if not wait:
            return False
        self._limited.setdefault(pod.namespace, set()).add(pod.key)
        return True

    def _facts_of_probed(self, marker: CompiledMarker, of_pod: "_ProbedPod") -> PodFacts:
        pod = of_pod.pod
        results = of_pod.results
        is_paused = not results.by_provider and (marker.paused or pod.paused)
        limit = self._limit_of(marker, of_pod)
        if limit is not None and not is_paused:
            causes = tuple([(probe.probe, limit.reason) for probe in marker.probes])
            return PodFacts(
                ProbeState.UNKNOWN,
                node=pod.node,
                left_out=limit.reason,
                verdicts=Verdicts(causes=causes),
            )
        outcome = of_pod.outcome
        if is_paused and of_pod.conditions is not None:
            outcome = of_pod.conditions  # they stay as they are
        is_behind = of_pod.has_own_entry and not is_current(
            marker, pod, of_pod.entry, paused=is_paused
        )
        daemon = self._problem_of_daemon(of_pod, is_paused)
        return PodFacts(
            state_of(marker, outcome.states),
            node=pod.node if is_behind or daemon else "",
            is_behind=is_behind,
            daemon=daemon,
            is_paused=is_paused,
            is_limited=of_pod.is_limited,
            verdicts=verdicts_on(
                marker,
                pod,
                results.states,
                left_out=results.left_out,
                is_absent=of_pod.is_absent,
            ),
            invalid_values=invalid_values_of(marker, outcome),
        )

    def _limit_of(self, marker: CompiledMarker, of_pod: "_ProbedPod") -> LeftOut | None:
        is_serverless = of_pod.results.by_provider and self._state.options.serverless
        if is_serverless and has_no_place_in_annotations(of_pod.pod, marker):
            return ANNOTATIONS_FULL
        return of_pod.results.left_out.get(marker.key.name)

    def _problem_of_daemon(self, of_pod: "_ProbedPod", is_paused: bool) -> str:
        pod = of_pod.pod
        is_stale = bool(of_pod.results.why_stale)
        if is_paused:
            is_stale = REASON_DAEMON_STALE in [condition.reason for condition in pod.conditions]
        if is_stale:
            return REASON_DAEMON_STALE
        if of_pod.is_absent and not is_paused:
            return NO_DAEMON
        if self._state.leases.two_holders(pod.node):
            return TWO_DAEMONS
        return ""


class _ProbedPod(NamedTuple):
    """What is known of a pod for all of its markers.

    Attributes:
        outcome: by its results.
        conditions: by its conditions, for markers whose conditions stay as they are; None without such markers.
        has_own_entry: `entry` is as the manager sent it.
        is_absent: its node never showed a daemon.
    """

    pod: Pod
    results: PodResults
    outcome: PodOutcome
    conditions: PodOutcome | None
    entry: PodProbe | None
    has_own_entry: bool
    is_absent: bool
    is_limited: bool
