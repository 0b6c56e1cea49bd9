"""Event handlers: which keys an event enqueues.

Each handler first updates `State`, then enqueues every key whose reconcile the event may change. Our own write enqueues
nothing else. Keys of a resync are enqueued at LOW priority, changed results at HIGH, and everything else at NORMAL. The queues
are closed until the manager leads, so a standby enqueues nothing; then the manager resyncs every object once.

Source: Kruise pkg/controller/{podprobemarker,nodepodprobe}/*_event_handler.go.
Differs: Kruise ignores changes of labels, deletions, phases and started containers.
"""

from collections.abc import Iterable

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import node_of_daemon_lease
from kruise_probe.api.pods import NOTHING_OWNED, Pod
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.indexes import PodResultChange, ProbesChange, ResultsChange
from kruise_probe.controllers.limits import is_virtual
from kruise_probe.controllers.marking import stale_message_of
from kruise_probe.controllers.state import State
from kruise_probe.workqueue.turns import Priority


class _Events:
    def __init__(self, state: State) -> None:
        self._state, self._queues = state, state.queues


class PodEvents(_Events):
    """Enqueues a pod, its node and the status of its markers."""

    def on_add(self, obj: Pod, is_initial: bool) -> None:
        self._state.index_pod(None, obj)
        if is_initial:
            self._recall_stale(obj)
        else:
            self._enqueue(obj)

    def on_update(self, old: Pod, new: Pod) -> None:
        if old is new:  # a resync
            return self._enqueue(new, resynced=True)
        self._state.index_pod(old, new)
        if not self._queues.pods.is_open:
            self._recall_stale(new)
        before = self._state.matching.markers_of(old)
        after = before if old.labels == new.labels else self._state.matching.markers_of(new)
        if after and is_virtual(self._state.node(new.node)) and _statuses(old) != _statuses(new):
            self._state.limits.record_change(new.key, ResultsChange(PodResultChange.STATE))
        if before != after:
            self._state.record_ended(new, [marker for marker in before if marker not in after])
        elif new.key in self._state.pods.own_writes:
            self._enqueue_deleting(new)
            return
        self._state.observe_foreign(old, new)
        if before or after or old.owned is not NOTHING_OWNED or new.owned is not NOTHING_OWNED:
            self._queues.enqueue_pod(new.key)
            for node in {old.node, new.node} if before or after else ():
                self._queues.enqueue_node(node)
            # In a fixed order, unlike a set of objects that compare by identity.
            self._queues.enqueue_status_of(dict.fromkeys((*before, *after)))
        self._enqueue_deleting(new)

    def on_delete(self, last_known: Pod) -> None:
        self._state.remove_pod(last_known)
        self._queues.enqueue_node(last_known.node)
        self._queues.enqueue_status_of(self._state.matching.markers_of(last_known))
        self._enqueue_deleting(last_known)

    def _recall_stale(self, pod: Pod) -> None:
        """Record what the leader, or the manager before a restart, wrote about the daemon of the pod."""
        message = stale_message_of(pod)
        if message:
            self._state.leases.recall_stale(pod.node, message, loop_time())

    def _enqueue(self, pod: Pod, *, resynced: bool = False) -> None:
        markers = self._state.matching.markers_of(pod)
        if markers or pod.owned is not NOTHING_OWNED or pod.key in self._state.ended:
            self._queues.enqueue_pod(pod.key, resynced=resynced)
        if markers:
            self._queues.enqueue_node(pod.node, resynced=resynced)
            self._queues.enqueue_status_of(markers)

    def _enqueue_deleting(self, pod: Pod) -> None:
        """Enqueue what the finalizers of markers being deleted wait for: the marks of a pod may be gone now."""
        deleting = self._state.matching.deleting(pod.namespace)
        if deleting:
            self._queues.enqueue_node(pod.node)
            self._queues.enqueue_status_of(deleting.values())


def _statuses(pod: Pod) -> dict[str, str]:
    """The statuses of the conditions. On a virtual node the provider writes them."""
    return {condition.type: condition.status for condition in pod.conditions}


class MarkerEvents(_Events):
    """Enqueues the pods that a marker matches, their nodes, and all markers of these pods: they may have won or lost a key."""

    def on_add(self, obj: PodProbeMarker, is_initial: bool) -> None:
        _, marker = self._state.index_marker(obj)
        if not is_initial:
            self._queues.markers.add(obj.key)
            self._enqueue_pods(marker, self._state.matching.pods_of(marker))

    def on_update(self, old: PodProbeMarker, new: PodProbeMarker) -> None:
        if (
            old.spec == new.spec
            and old.paused == new.paused
            and old.deleting == new.deleting
            and old.metadata.generation == new.metadata.generation
        ):
            if new.key not in self._state.markers.own_writes:
                self._queues.enqueue_status_of([self._state.matching.markers[new.key]])
            return
        before, after = self._state.index_marker(new)
        self._queues.markers.add(new.key)
        if before is not None and before.pod_view == after.pod_view:
            self._enqueue_nodes(after, self._state.matching.pods_of(after))
            return
        pods = self._state.matching.pods_of(after)
        if before is not None:
            if before.selector != after.selector:
                pods += self._state.matching.pods_of(before)
            for pod in pods:
                self._state.record_ended(pod, [before])
        self._enqueue_pods(after, pods)

    def on_delete(self, last_known: PodProbeMarker) -> None:
        marker, pods = self._state.remove_marker(last_known)
        for pod in pods:
            self._state.record_ended(pod, [marker])
        self._queues.markers.add(last_known.key)
        self._enqueue_pods(marker, pods)

    def _enqueue_pods(self, marker: CompiledMarker, pods: Iterable[Pod]) -> None:
        """Enqueue pods node by node, so that each node is planned once after all its pods lost their marks."""
        pods = sorted(pods, key=lambda pod: pod.node)
        for pod in pods:
            self._queues.enqueue_pod(pod.key)
        self._enqueue_nodes(marker, pods)
        of_pods = (other for pod in pods for other in self._state.matching.markers_of(pod))
        # In a fixed order, unlike a set of objects that compare by identity.
        others = dict.fromkeys(other for other in of_pods if other is not marker)
        self._queues.enqueue_status_of(others)

    def _enqueue_nodes(self, marker: CompiledMarker, pods: Iterable[Pod]) -> None:
        nodes = {pod.node for pod in pods} | set(self._state.node_index.nodes_holding(marker.key))
        for node in sorted(nodes):
            self._queues.enqueue_node(node)


class NodeEvents(_Events):
    """Enqueues a Node, its daemon, and its pods when it is created, deleted, or becomes virtual or real."""

    def on_add(self, obj: Node, is_initial: bool) -> None:
        if not is_initial:
            self._enqueue_all(obj)

    def on_update(self, old: Node, new: Node) -> None:
        if old is new:  # a resync
            self._queues.enqueue_node(new.key.name, resynced=True)
            self._queues.daemons.add(new.key.name)
        elif old.uid != new.uid or is_virtual(old) != is_virtual(new):
            self._enqueue_all(new)

    def on_delete(self, last_known: Node) -> None:
        self._enqueue_all(last_known)

    def _enqueue_all(self, node: Node) -> None:
        self._queues.enqueue_node(node.key.name)
        self._queues.daemons.add(node.key.name)
        self._state.enqueue_pods_on(node.key.name)


class NodePodProbeEvents(_Events):
    """Enqueues pods with changed results, nodes whose spec others edited, and the markers of both."""

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        change = self._state.node_index.update(None, obj)
        self._observe_daemon(None, obj)
        if obj.key not in self._state.node_pod_probes.own_writes:
            self._queues.enqueue_node(obj.key.name)
        self._enqueue_changed(change)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        if old is new:  # a resync
            self._queues.enqueue_node(new.key.name, resynced=True)
            return
        change = self._state.node_index.update(old, new)
        self._observe_daemon(old, new)
        owners_changed = old.metadata.owner_references != new.metadata.owner_references
        own_write = new.key in self._state.node_pod_probes.own_writes
        if owners_changed or (change.spec and not own_write):
            self._queues.enqueue_node(new.key.name)
        self._enqueue_changed(change)

    def on_delete(self, last_known: NodePodProbe) -> None:
        change = self._state.node_index.remove(last_known.key.name)
        self._queues.enqueue_node(last_known.key.name)
        self._enqueue_changed(change)

    def _observe_daemon(self, old: NodePodProbe | None, new: NodePodProbe) -> None:
        """Record what the daemon of the node shows, and whether it now has entries."""
        node = new.key.name
        leases = self._state.leases
        changed = False
        if old is not None and old.status != new.status:
            changed = leases.observe_status(node, new.status, loop_time())
        if new.spec.pod_probes and (old is None or not old.spec.pod_probes):
            changed = leases.observe_first_entry(node, loop_time())
        if changed:
            self._queues.daemons.add(node)

    def _enqueue_changed(self, change: ProbesChange) -> None:
        if not self._queues.pods.is_open:
            return  # The leader writes the conditions of changed results.
        ours, now = self._state.namespace, loop_time()
        for key, changed in change.pods.items():
            if not ours or key.namespace == ours:
                seen_at = now if changed.kind > PodResultChange.MESSAGE else None
                self._state.limits.record_change(key, changed._replace(seen_at=seen_at))
                self._queues.pods.add(key, Priority.HIGH)
        markers = self._state.matching.markers
        self._queues.enqueue_status_of(filter(None, map(markers.get, change.markers)))


class LeaseEvents(_Events):
    """Records renewals, and enqueues the daemon if it must be reconciled before its timer."""

    def on_add(self, obj: Lease, is_initial: bool) -> None:
        node = node_of_daemon_lease(obj.key.name)
        leases = self._state.leases
        if node and leases.observe_lease(node, obj, loop_time(), is_initial=is_initial):
            self._queues.daemons.add(node)

    def on_update(self, old: Lease, new: Lease) -> None:
        self.on_add(new, is_initial=False)

    def on_delete(self, last_known: Lease) -> None:
        node = node_of_daemon_lease(last_known.key.name)
        if node:
            stored = self._state.node_pod_probes.get(NamespacedName("", node))
            self._state.leases.forget_lease(node, stored)
            self._queues.daemons.add(node)
