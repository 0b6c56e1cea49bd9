"""Counts pods again that may add something else to the counts of their markers, in slices. Key: a namespace.

Enqueues the markers whose counts changed, and those of which all pods have been counted now.

Source: Kruise pkg/controller/podprobemarker (matchedPods).
Differs: counts the changed pods, not all pods of a marker.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE
from kruise_probe.api.pods import Pod
from kruise_probe.api.times import CLOCK_SLACK_SECONDS
from kruise_probe.api.v1alpha1 import PodProbe, ProbeState
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
from kruise_probe.controllers.limits import (
    ANNOTATIONS_FULL,
    has_no_place_in_annotations,
    is_probed,
)
from kruise_probe.controllers.marking import states_of_conditions
from kruise_probe.controllers.matching import Considered
from kruise_probe.controllers.state import PodResults, State
from kruise_probe.controllers.writes import MARKS_INTERVAL_SECONDS, WriteCause
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.slices import PODS_PER_STEP

PROBES_PER_STEP: Final = 1024

KEPT_CONFLICTS: Final = 16

_Conflicts = Mapping[CompiledMarker, tuple[ClaimConflict, ...]]


class CountReconciler:
    """Keeps the tallies current."""

    def __init__(self, state: State) -> None:
        self._state, self._queues = state, state.queues
        self._limited: Final[dict[str, set[NamespacedName]]] = {}
        """By namespace, the pods whose writes are limited."""
        self._check_at: Final[dict[str, float]] = {}
        self._conflicts: Final[dict[Considered, _Conflicts]] = {}
        """Of the last sets of markers; the pods of a template have the same."""

    async def reconcile(self, namespace: str) -> Result | None:
        state = self._state
        left = PROBES_PER_STEP
        for key, waits in state.uncounted.take(namespace, PODS_PER_STEP):
            if waits is None:
                self._complete(key)
                continue
            pod = state.pods.get(key)
            if pod is not None:
                facts = self._facts(pod)
                self._queues.enqueue_status_of(state.tallies.set_pod(pod.uid, facts))
                left -= 1 + sum(len(marker.probes) for marker in facts)
            if left <= 0:
                break
        if namespace in state.uncounted:
            return Result(0.0)
        return self._recheck_limited(namespace)

    def _complete(self, key: NamespacedName) -> None:
        marker = self._state.matching.markers.get(key)
        if marker is not None and not marker.deleting:
            self._state.tallies.complete(marker)
            self._queues.enqueue_status_of([key])

    def _recheck_limited(self, namespace: str) -> Result | None:
        """Count the pods again whose writes are limited: when that ends, no event shows it."""
        limited = self._limited.get(namespace)
        if not limited:
            return None
        now = asyncio.get_running_loop().time()
        check_at = self._check_at.setdefault(namespace, now + MARKS_INTERVAL_SECONDS)
        if check_at - now > CLOCK_SLACK_SECONDS:
            return Result(check_at - now)
        del self._limited[namespace], self._check_at[namespace]
        for key in limited:
            self._state.uncounted.put(key, True)
        return Result(0.0)

    def _facts(self, pod: Pod) -> dict[CompiledMarker, PodFacts]:
        """What a pod adds, by the markers that are considered for it."""
        state = self._state
        considered = state.matching.considered_of(pod)
        claims = claims_of(considered)
        conflicts = self._conflicts_of(considered, claims)
        of_pod: _ProbedPod | None = None
        nothing = PodFacts()
        if not considered:
            return {}
        if is_probed(pod) and state.node(pod.node) is not None:
            of_pod = self._probed(pod, considered, claims)
        elif pod.active and not pod.mirror:
            nothing = PodFacts(is_pending=True)
        facts: dict[CompiledMarker, PodFacts] = {}
        for marker in considered:
            of_marker = self._facts_of_probed(marker, of_pod) if of_pod else nothing
            why = state.refusal_of(marker.key.name, pod.key)
            facts[marker] = of_marker._replace(
                conflicts=conflicts[marker], refusal=(pod.key, why) if why else None
            )
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
        conditions: PodOutcome | None = None
        is_paused = pod.paused or any(marker.paused for marker in considered)
        if is_paused and not results.by_provider:
            conditions = PodOutcome(states_of_conditions(pod, claims))
        return _ProbedPod(
            pod,
            results,
            outcome_of(pod, claims, results.states, results.why_stale),
            conditions,
            entry=state.node_index.view(pod.node).entries.get(pod.uid),
            has_own_entry=not results.by_provider and not state.spec(pod.node).is_altered,
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
        now = asyncio.get_running_loop().time()
        probes = len(claims.claims)
        limits = self._state.limits
        wait = limits.wait_seconds(pod.key, WriteCause.MARKS, probes=probes, now=now)
        if wait > 0:
            self._limited.setdefault(pod.namespace, set()).add(pod.key)
        return wait > 0

    def _facts_of_probed(self, marker: CompiledMarker, of_pod: "_ProbedPod") -> PodFacts:
        pod, results = of_pod.pod, of_pod.results
        limit = results.left_out.get(marker.key.name)
        is_serverless = results.by_provider and self._state.options.serverless
        if is_serverless and has_no_place_in_annotations(pod, marker):
            limit = ANNOTATIONS_FULL
        is_paused = not results.by_provider and (marker.paused or pod.paused)
        if limit is not None and not is_paused:
            causes = tuple([(probe.probe, limit.reason) for probe in marker.probes])
            verdicts = Verdicts(causes=causes)
            return PodFacts(
                ProbeState.UNKNOWN, node=pod.node, left_out=limit.reason, verdicts=verdicts
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
            verdicts=verdicts_on(marker, pod, results.states, is_absent=of_pod.is_absent),
            invalid_values=invalid_values_of(marker, outcome),
        )

    def _problem_of_daemon(self, of_pod: "_ProbedPod", is_paused: bool) -> str:
        pod = of_pod.pod
        is_stale = bool(of_pod.results.why_stale)
        if is_paused:
            is_stale = REASON_DAEMON_STALE in [condition.reason for condition in pod.conditions]
        if is_stale:
            return REASON_DAEMON_STALE
        if of_pod.is_absent and not is_paused:
            return NO_DAEMON
        return TWO_DAEMONS if self._state.leases.two_holders(pod.node) else ""


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
