"""Visits the pods of the backlog in slices: enqueues what a change of markers concerns, and counts each pod. Key: a namespace.

Counting enqueues the markers whose counts changed, and those of which all pods have been counted now. A standby counts nothing: it
only records which marks have lost their marker, and the queues of everything else are closed.

Source: Kruise pkg/controller/podprobemarker (matchedPods); controller-runtime pkg/handler (EnqueueRequestsFromMapFunc).
Differs: counts the changed pods, not all pods of a marker. The pods of an event are not enqueued in the event handler.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Owned, Pod
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time
from kruise_probe.controllers.backlog import COUNT, EndOfPods, Visit
from kruise_probe.controllers.claims import ClaimConflict, Claims, claims_of, conflicts_of
from kruise_probe.controllers.counts import (
    PodFacts,
    PodFlag,
    ProbedPod,
    Refusal,
    counted_states,
    facts_of_probed,
    invalid_values,
)
from kruise_probe.controllers.daemon_leases import Liveness
from kruise_probe.controllers.known_node import KnownNode, results_of
from kruise_probe.controllers.limits import is_probed
from kruise_probe.controllers.marking import (
    PodResults,
    States,
    may_change,
    states_of_conditions,
)
from kruise_probe.controllers.matching import Considered
from kruise_probe.controllers.state import State
from kruise_probe.controllers.writes import MARKS_INTERVAL_SECONDS, WriteCause
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.slices import PODS_PER_STEP, SLICE_SECONDS

KEPT_CONFLICTS: Final = 16

_Conflicts = Mapping[NamespacedName, tuple[ClaimConflict, ...]]


class VisitReconciler:
    """Enqueues pods and their nodes, and keeps the tallies current."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues = state.queues
        self._tallies = state.tallies
        self._limited: dict[str, set[NamespacedName]] = {}
        """By namespace, the pods whose writes are limited."""
        self._check_at: dict[str, float] = {}
        """By namespace, when they are counted again."""
        self._conflicts: dict[Considered, _Conflicts] = {}
        """Of the last sets of markers; the pods of a template have the same."""

    async def reconcile(self, namespace: str) -> Result | None:
        backlog = self._state.backlog
        moment = _Moment(self._state)
        for waiting, visit in backlog.take(namespace, PODS_PER_STEP):
            if isinstance(waiting, EndOfPods):
                self._complete(waiting.marker)
                continue
            pod = self._state.pods.get(waiting)
            if pod is not None:
                considered = self._state.matching.considered_of(pod)
                self._visit(pod, considered, visit, moment)
                self._count(pod, considered, moment)
            if loop_time() >= moment.now + SLICE_SECONDS:
                break
        if namespace in backlog:
            return Result(0.0)
        return self._recheck_limited(namespace)

    def _visit(
        self,
        pod: Pod,
        considered: Considered,
        visit: Visit,
        moment: "_Moment",
    ) -> None:
        if visit.before:
            self._state.record_ended(pod, visit.before)
        if visit.entry:
            moment.enqueue_node(pod.node)
        if visit.marks:
            moment.enqueue_ending(pod.namespace, pod.owned)
            if visit.before or self._may_be_marked(pod, considered, moment):
                self._queues.enqueue_pod(pod.key)

    def _may_be_marked(
        self,
        pod: Pod,
        considered: Considered,
        moment: "_Moment",
    ) -> bool:
        """Whether a new marker may change marks of the pod. Before its first result, it changes those of a role only."""
        if claims_of(considered).exclusive or pod.uid in self._state.roles.of_pod:
            return True
        results = results_of(pod, considered, moment.known_node(pod.node))
        return may_change(pod, results)

    def _count(
        self,
        pod: Pod,
        considered: Considered,
        moment: "_Moment",
    ) -> None:
        """Replace what a pod adds to the counts."""
        if not self._queues.is_open:
            return
        facts = self._facts(pod, considered, moment)
        changed = self._tallies.set_pod(pod.uid, facts)
        self._queues.enqueue_status_of(changed)

    def _complete(self, key: NamespacedName) -> None:
        if not self._queues.is_open:
            return
        marker = self._state.matching.markers.get(key)
        if marker is None or marker.deleting:
            return
        self._tallies.complete(marker)
        self._queues.markers.add(key)

    def _recheck_limited(self, namespace: str) -> Result | None:
        """Count the pods again whose writes are limited: when that ends, no event shows it."""
        if namespace not in self._limited:
            return None
        now = loop_time()
        check_at = self._check_at.setdefault(namespace, now + MARKS_INTERVAL_SECONDS)
        left = check_at - now
        if left > CLOCK_SLACK_SECONDS:
            return Result(left)
        del self._check_at[namespace]
        limited = self._limited.pop(namespace)
        for key in limited:
            self._state.backlog.put(key, COUNT)
        return Result(0.0)

    def _facts(
        self,
        pod: Pod,
        considered: Considered,
        moment: "_Moment",
    ) -> dict[NamespacedName, PodFacts]:
        """What a pod adds, by the markers that are considered for it."""
        if not considered:
            return {}
        state = self._state
        claims = claims_of(considered)
        conflicts = self._conflicts_of(considered, claims)
        probed = None
        if is_probed(pod):
            node = moment.known_node(pod.node)
            if node.exists:
                on_pod = claims.on(pod)
                is_limited = self._is_limited(pod, on_pod, moment.now)
                probed = _probed(pod, considered, on_pod, node, is_limited=is_limited)
        facts: dict[NamespacedName, PodFacts] = {}
        for marker in considered:
            found: PodFacts = ()
            if probed is not None:
                found = facts_of_probed(marker, probed)
            elif pod.active and not pod.mirror:
                found = (PodFlag.PENDING,)
            why = state.refused.why(marker.key.name, pod.key)
            if why:
                refusal = Refusal(pod.key, why)
                found = (*found, refusal)
            facts[marker.key] = found + conflicts[marker.key]
        return facts

    def _conflicts_of(self, considered: Considered, claims: Claims) -> _Conflicts:
        known = self._conflicts.get(considered)
        if known is not None:
            return known
        if len(self._conflicts) >= KEPT_CONFLICTS:
            self._conflicts.clear()
        conflicts = {}
        for marker in considered:
            lost = conflicts_of(marker, claims)
            conflicts[marker.key] = tuple(lost)
        self._conflicts[considered] = conflicts
        return conflicts

    def _is_limited(
        self,
        pod: Pod,
        claims: Claims,
        now: float,
    ) -> bool:
        """Whether a write of the pod's marks would have to wait now."""
        wait = self._state.pacer.wait_seconds(
            pod.key,
            WriteCause.MARKS,
            probes=len(claims.claims),
            now=now,
        )
        if not wait:
            return False
        limited = self._limited.setdefault(pod.namespace, set())
        limited.add(pod.key)
        return True


class _Moment:
    """What no event changes within a slice, and what is enqueued once in it."""

    def __init__(self, state: State) -> None:
        self.now: Final = loop_time()
        self.known_node: Final = cache(state.known_node)
        self._state = state
        self._nodes: set[str] = set()
        """Those that are enqueued."""
        self._marks: set[Owned] = set()
        """The marks of pods, for which markers being deleted are enqueued."""

    def enqueue_node(self, name: str) -> None:
        if name not in self._nodes:
            self._nodes.add(name)
            self._state.queues.enqueue_node(name)

    def enqueue_ending(self, namespace: str, owned: Owned) -> None:
        """Enqueue the markers being deleted that name any of these marks of a pod."""
        if owned not in self._marks:
            self._marks.add(owned)
            ending = self._state.ending.naming(namespace, owned)
            self._state.queues.enqueue_ending(ending)


def _probed(
    pod: Pod,
    considered: Considered,
    claims: Claims,
    node: KnownNode,
    *,
    is_limited: bool,
) -> ProbedPod:
    results = results_of(pod, considered, node)
    states = counted_states(pod, claims, results)
    has_daemon = not results.by_provider
    paused = [marker for marker in considered if marker.paused]
    is_paused = pod.paused or bool(paused)
    shown: States = {}
    if has_daemon and is_paused:
        shown = states_of_conditions(pod, claims)
    return ProbedPod(
        pod,
        results,
        states,
        invalid_values(claims, states),
        shown=shown,
        entry=node.view.entries.get(pod.uid),
        checks_entry=has_daemon and not node.is_altered,
        is_serverless=node.has_provider,
        is_absent=_has_no_daemon(node, results),
        has_two_daemons=node.has_two_daemons,
        is_limited=is_limited,
    )


def _has_no_daemon(node: KnownNode, results: PodResults) -> bool:
    """Whether a node never showed a daemon. A virtual node has none; its provider reports with the feature gate."""
    if node.is_virtual:
        return not node.has_provider
    if results.states:
        return False
    return node.liveness is Liveness.ABSENT
