"""Event handlers: which keys an event enqueues.

Each handler first updates `State`, then enqueues every key whose reconcile the event may change. Our own write enqueues
nothing else. Keys of a resync are enqueued at LOW priority, changed results at HIGH, and everything else at NORMAL. The queues
are closed until the manager leads, so a standby enqueues nothing; then the manager resyncs every object once.

Source: Kruise pkg/controller/{podprobemarker,nodepodprobe}/*_event_handler.go.
Differs: Kruise ignores changes of labels, deletions, phases and started containers.
"""

from operator import attrgetter

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.names import node_of_daemon_lease
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.pods import Pod
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.backlog import Visit
from kruise_probe.controllers.claims import claims_of
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.marking import stale_message_of
from kruise_probe.controllers.matching import Considered
from kruise_probe.controllers.node_index import PodResultChange, ProbesChange, ResultsChange
from kruise_probe.controllers.relevance import (
    PodChange,
    change_of,
    changed_owners,
    changed_values,
    changes_entry,
)
from kruise_probe.controllers.state import State
from kruise_probe.workqueue.turns import Priority


class _Events:
    def __init__(self, state: State) -> None:
        self._state = state
        self._queues = state.queues


class PodEvents(_Events):
    """Enqueues a pod and its node, and counts it, if the event may change its marks, its entry or its counts."""

    def on_add(self, obj: Pod, is_initial: bool) -> None:
        self._state.index_pod(None, obj)
        if is_initial:
            self._recall_stale(obj)
        else:
            self._enqueue(obj)

    def on_update(self, old: Pod, new: Pod) -> None:
        if old is new:  # a resync
            return self._enqueue(new, resynced=True)
        state = self._state
        before = state.matching.considered_of(old)
        state.index_pod(old, new)
        if not self._queues.is_open:
            self._recall_stale(new)
        after = before
        if old.labels != new.labels:
            after = state.matching.considered_of(new)
        self._enqueue_ending(old, new)
        if before != after:
            self._record_dropped(old, new, before, after)
            change = PodChange(entry=True, marks=True)
            self._enqueue_change(old, new, change)
            return
        if not before and not old.owned and not new.owned:
            return  # It concerns no marker.
        if new.key in state.pods.own_writes:
            # Of the marks, what others changed before our write has an event of its own.
            change = PodChange(changes_entry(old, new), marks=False)
        else:
            self._record_provider_result(old, new)
            change = change_of(old, new, claims_of(before))
            if change.marks:
                state.observe_foreign(old, new)
        self._enqueue_change(old, new, change)

    def on_delete(self, last_known: Pod) -> None:
        state = self._state
        node = last_known.node
        considered = state.matching.considered_of(last_known)
        state.remove_pod(last_known)
        view = state.node_index.view(node)
        has_entry = last_known.uid in view.entries
        if considered or has_entry:
            self._queues.enqueue_node(node)
        ending = state.ending.naming(last_known.namespace, last_known.marks)
        if ending:
            self._enqueue_finalizers(node, ending)

    def _record_dropped(
        self,
        old: Pod,
        new: Pod,
        before: Considered,
        after: Considered,
    ) -> None:
        """Record the marks of markers that do not select the pod any more."""
        state = self._state
        dropped = [marker for marker in before if marker not in after]
        ending = state.ending.selecting(old)
        dropped += [marker for marker in ending if not marker.selector.matches(new.labels)]
        state.record_ended(new, dropped)

    def _enqueue_change(
        self,
        old: Pod,
        new: Pod,
        change: PodChange,
    ) -> None:
        queues = self._queues
        if change.entry:
            queues.enqueue_node(new.node)
            if old.node != new.node:
                queues.enqueue_node(old.node)
        if change.marks:
            priority = Priority.NORMAL
            if new.finished:
                priority = Priority.LOW  # Results go before the ends of pods.
            queues.pods.add(new.key, priority)
        if any(change):
            self._state.recount(new.key)

    def _recall_stale(self, pod: Pod) -> None:
        """Record what the leader, or the manager before a restart, wrote about the daemon of the pod."""
        message = stale_message_of(pod)
        if message:
            leases = self._state.leases
            leases.recall_stale(pod.node, message, loop_time())

    def _enqueue(self, pod: Pod, *, resynced: bool = False) -> None:
        state = self._state
        queues = self._queues
        if state.matching.considered_of(pod):
            queues.enqueue_pod(pod.key, resynced=resynced)
            queues.enqueue_node(pod.node, resynced=resynced)
            state.recount(pod.key)
            return
        has_marks = pod.owned or pod.key in state.ended
        if has_marks or state.ending.selecting(pod):
            queues.enqueue_pod(pod.key, resynced=resynced)

    def _record_provider_result(self, old: Pod, new: Pod) -> None:
        """On a virtual node the provider writes the conditions."""
        if old.conditions == new.conditions:
            return
        node = self._state.node(new.node)
        if node is None or not node.is_virtual:
            return
        if _statuses(old) == _statuses(new):
            return
        change = ResultsChange(PodResultChange.STATE)
        self._state.pacer.record_change(new.key, change)

    def _enqueue_ending(self, old: Pod, new: Pod) -> None:
        """Enqueue what the finalizers of markers being deleted wait for: the marks of a pod may be gone now."""
        ending = self._state.ending
        if not ending.has_any(new.namespace):
            return
        owners = changed_owners(old, new)
        changed = changed_values(old, new) | owners
        found = ending.naming(new.namespace, changed)
        if not found:
            return
        if any(map(new.has, owners)):
            self._queues.enqueue_pod(new.key)
        self._enqueue_finalizers(new.node, found)

    def _enqueue_finalizers(self, node: str, ending: list[CompiledMarker]) -> None:
        self._queues.enqueue_node(node)
        self._queues.enqueue_ending(ending)


def _statuses(pod: Pod) -> dict[str, str]:
    """The statuses of the conditions."""
    return {condition.type: condition.status for condition in pod.conditions}


class MarkerEvents(_Events):
    """Lets the pods be visited for which other markers are considered now, and enqueues the nodes with entries of the marker."""

    def on_add(self, obj: PodProbeMarker, is_initial: bool) -> None:
        marker, pods = self._state.index_marker(obj)
        if is_initial:
            return
        self._queues.markers.add(obj.key)
        visit = Visit(entry=True, marks=True)
        self._visit(marker, pods, visit)

    def on_update(self, old: PodProbeMarker, new: PodProbeMarker) -> None:
        if old is new:  # a resync
            self._state.end_visits(new.key)
            return self._queues.markers.add(new.key)
        state = self._state
        key = new.key
        if _decides(old) == _decides(new):
            if key not in state.markers.own_writes:
                self._queues.markers.add(key)
            return
        before = state.matching.markers[key]
        after, pods = state.index_marker(new)
        self._queues.markers.add(key)
        if before.pod_view == after.pod_view:
            visit = Visit(entry=True)
        else:
            visit = Visit((before,), entry=True, marks=True)
        self._visit(after, pods, visit)

    def on_delete(self, last_known: PodProbeMarker) -> None:
        removed, pods = self._state.remove_marker(last_known)
        self._queues.markers.add(last_known.key)
        visit = Visit((removed,), entry=True, marks=True)
        self._visit(removed, pods, visit)

    def _visit(
        self,
        marker: CompiledMarker,
        pods: list[Pod],
        visit: Visit,
    ) -> None:
        """Let the pods be visited node by node, so that each node is planned once after all its pods lost their marks."""
        state = self._state
        pods.sort(key=_node_of)
        for pod in pods:
            state.backlog.put(pod.key, visit)
        state.end_visits(marker.key)
        nodes = state.node_index.nodes_holding(marker.key)
        for node in sorted(nodes):
            self._queues.enqueue_node(node)


_node_of = attrgetter("node")
_decides = attrgetter("spec", "paused", "deleting", "metadata.generation")


class NodeEvents(_Events):
    """Enqueues a Node, its daemon, and its pods when it is created, deleted, or becomes virtual or real."""

    def on_add(self, obj: Node, is_initial: bool) -> None:
        if not is_initial:
            self._enqueue_all(obj)

    def on_update(self, old: Node, new: Node) -> None:
        if old is new:  # a resync
            self._queues.enqueue_node(new.name, resynced=True)
            self._queues.daemons.add(new.name)
            return
        is_replaced = old.uid != new.uid
        if is_replaced or old.is_virtual != new.is_virtual:
            self._enqueue_all(new)

    def on_delete(self, last_known: Node) -> None:
        self._enqueue_all(last_known)

    def _enqueue_all(self, node: Node) -> None:
        self._queues.enqueue_node(node.name)
        self._queues.daemons.add(node.name)
        self._state.enqueue_pods_on(node.name)


class NodePodProbeEvents(_Events):
    """Enqueues pods with changed results, nodes whose spec others edited, and the markers of both."""

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        node = obj.key.name
        change = self._state.node_index.update(None, obj)
        self._observe_daemon(None, obj)
        if not self._is_own_write(obj):
            self._queues.enqueue_node(node)
        self._enqueue_changed(change)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        node = new.key.name
        if old is new:  # a resync
            self._queues.enqueue_node(node, resynced=True)
            return
        change = self._state.node_index.update(old, new)
        self._observe_daemon(old, new)
        if self._state.roles.markers:
            # A standby records this too, so a fail-over keeps the order in which pods became Succeeded.
            self._state.roles.observe(change.statuses)
        must_reconcile = old.metadata.owner_references != new.metadata.owner_references
        if change.spec and not self._is_own_write(new):
            must_reconcile = True
        if must_reconcile:
            self._queues.enqueue_node(node)
        self._enqueue_changed(change)

    def on_delete(self, last_known: NodePodProbe) -> None:
        node = last_known.key.name
        change = self._state.node_index.remove(node)
        self._queues.daemons.add(node)
        self._queues.enqueue_node(node)
        self._enqueue_changed(change)

    def _is_own_write(self, stored: NodePodProbe) -> bool:
        return stored.key in self._state.node_pod_probes.own_writes

    def _observe_daemon(self, old: NodePodProbe | None, new: NodePodProbe) -> None:
        """Record what the daemon of the node shows, and whether it now has entries."""
        node = new.key.name
        now = loop_time()
        leases = self._state.leases
        daemons = self._queues.daemons
        has_entries = bool(new.spec.pod_probes)
        had_entries = False
        if old is not None:
            had_entries = bool(old.spec.pod_probes)
            has_reported = old.status != new.status
            if has_reported and leases.observe_status(node, new, now):
                daemons.add(node)
        if has_entries == had_entries:
            return
        daemons.add(node)
        if has_entries:
            leases.observe_first_entry(node, now)

    def _enqueue_changed(self, change: ProbesChange) -> None:
        if not self._queues.is_open:
            return  # The leader writes the conditions of changed results.
        state = self._state
        now = loop_time()
        for key, changed in change.results.items():
            if state.namespace not in ("", key.namespace):
                continue
            if changed.kind > PodResultChange.MESSAGE:
                changed = changed._replace(seen_at=now)
            state.pacer.record_change(key, changed)
            self._queues.pods.add(key, Priority.HIGH)
        for key in change.counted:
            state.recount(key)
        for marker in change.markers:
            ending = state.ending.get(marker)
            if ending is not None:
                self._queues.enqueue_ending([ending])


class LeaseEvents(_Events):
    """Records renewals, and enqueues the daemon if it must be reconciled before its timer."""

    def on_add(self, obj: Lease, is_initial: bool) -> None:
        node = node_of_daemon_lease(obj.key.name)
        if not node:
            return
        must_reconcile = self._state.leases.observe_lease(
            node,
            obj,
            loop_time(),
            is_initial=is_initial,
        )
        if must_reconcile:
            self._queues.daemons.add(node)

    def on_update(self, old: Lease, new: Lease) -> None:
        self.on_add(new, is_initial=False)

    def on_delete(self, last_known: Lease) -> None:
        node = node_of_daemon_lease(last_known.key.name)
        if not node:
            return
        stored = self._state.node_pod_probe(node)
        self._state.leases.forget_lease(node, stored)
        self._queues.daemons.add(node)
