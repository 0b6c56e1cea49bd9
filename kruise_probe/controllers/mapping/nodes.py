"""Event handlers of Nodes and NodePodProbes: nodes that come and go, new results, and specs that others edited."""

from collections.abc import Callable
from datetime import datetime

from kruise_probe.api.core import Node
from kruise_probe.api.v1alpha1 import NodePodProbe
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.node_index import ProbesChange
from kruise_probe.controllers.pods.write_limits import WriteLimits
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.workqueue.priority import Priority


class NodeEvents:
    """Enqueues a Node, the check of its Lease, and its pods when it is created, deleted, or becomes virtual or real."""

    def __init__(self, caches: Caches, queues: Queues) -> None:
        self._caches = caches
        self._queues = queues

    def on_add(self, obj: Node, is_initial: bool) -> None:
        self._queues.enqueue_node(obj.key.name, initial=is_initial)
        if not is_initial:
            self._enqueue_pods(obj)

    def on_update(self, old: Node, new: Node) -> None:
        if old is new:
            self._queues.enqueue_node(new.key.name, initial=True)
        elif old.uid != new.uid or is_virtual(old) != is_virtual(new):
            self._queues.enqueue_node(new.key.name)
            self._enqueue_pods(new)

    def on_delete(self, last_known: Node) -> None:
        self._queues.enqueue_node(last_known.key.name)
        self._enqueue_pods(last_known)

    def _enqueue_pods(self, node: Node) -> None:
        self._queues.enqueue_lease(node.key.name)
        enqueue_pods_on(node.key.name, self._caches, self._queues)


class NodePodProbeEvents:
    """Enqueues pods with changed results, nodes whose spec others edited, and the markers of both."""

    def __init__(
        self, caches: Caches, queues: Queues, limits: WriteLimits, *, now: Callable[[], datetime]
    ) -> None:
        self._caches = caches
        self._queues = queues
        self._limits = limits
        self._now = now

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        own_write = self._caches.node_pod_probes.is_own_write(obj)
        change = self._caches.index_node_pod_probe(None, obj)
        if not own_write:
            self._queues.enqueue_node(obj.key.name, initial=is_initial)
        if is_initial:
            return
        self._enqueue_lease(obj.key.name)
        self._enqueue_pods(change)
        self._enqueue_markers(change)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        name = new.key.name
        own_write = self._caches.node_pod_probes.is_own_write(new)
        if old is new:
            self._queues.enqueue_node(name, initial=True)
            return
        change = self._caches.index_node_pod_probe(old, new)
        if not own_write and (
            change.spec
            or old.metadata.owner_references != new.metadata.owner_references
            or old.deleting != new.deleting
        ):
            self._queues.enqueue_node(name)
        self._enqueue_lease(name)
        self._enqueue_pods(change)
        self._enqueue_markers(change)

    def on_delete(self, last_known: NodePodProbe) -> None:
        change = self._caches.remove_node_pod_probe(last_known)
        self._queues.enqueue_node(last_known.key.name)
        self._enqueue_markers(change)

    def _enqueue_lease(self, node: str) -> None:
        """With an expired Lease, a new result may end staleness, and the removal of the newest one begin it."""
        renewal = self._caches.leases.get(node)
        if renewal is not None and self._now() >= renewal.expires_at:
            self._queues.enqueue_lease(node)

    def _enqueue_pods(self, change: ProbesChange) -> None:
        ours = self._caches.namespace
        for key, result_change in change.pods.items():
            if not ours or key.namespace == ours:
                self._limits.record_result_change(
                    key, result_change, change.edited.get(key, frozenset())
                )
                self._queues.enqueue_pod(key, Priority.HIGH)

    def _enqueue_markers(self, change: ProbesChange) -> None:
        markers = self._caches.matching.markers
        self._queues.enqueue_status_of(markers[key] for key in change.markers if key in markers)


def enqueue_pods_on(node: str, caches: Caches, queues: Queues) -> None:
    """Enqueue all pods of a node and the status of their markers."""
    for pod in caches.pods_on(node):
        markers = caches.matching.markers_of(pod)
        if markers:
            queues.enqueue_pod(pod.key)
            queues.enqueue_status_of(markers)
