"""Event handler of NodePodProbes: new results, and specs that others edited."""

from collections.abc import Callable

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.v1alpha1 import NodePodProbe
from kruise_probe.controllers.caches import Caches, ProbesChange
from kruise_probe.controllers.mapping.keys import Keys
from kruise_probe.controllers.result_changes import ResultChange
from kruise_probe.workqueue.priority import Priority


class NodePodProbeEvents:
    """Enqueues pods with changed results, nodes whose spec others edited, and the markers of both.

    `result_seen` is called with each pod whose results changed, and with the kind of change.
    """

    def __init__(
        self,
        caches: Caches,
        keys: Keys,
        *,
        result_seen: Callable[[NamespacedName, ResultChange], None],
        is_silent: Callable[[str], bool],
    ) -> None:
        self._caches = caches
        self._keys = keys
        self._result_seen = result_seen
        self._is_silent = is_silent

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        echo = self._caches.node_pod_probes.is_echo(obj)
        change = self._caches.follow_node_pod_probe(None, obj)
        if not echo:
            self._keys.node(obj.key.name, is_initial)
        if is_initial:
            return
        self._enqueue_agent(obj.key.name)
        self._enqueue_pods(change)
        self._enqueue_markers(change)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        name = new.key.name
        echo = self._caches.node_pod_probes.is_echo(new)
        if old is new:
            self._keys.node(name, initial=True)
            return
        change = self._caches.follow_node_pod_probe(old, new)
        if not echo and (
            change.spec
            or old.metadata.owner_references != new.metadata.owner_references
            or old.deleting != new.deleting
        ):
            self._keys.node(name)
        self._enqueue_agent(name)
        self._enqueue_pods(change)
        self._enqueue_markers(change)

    def on_delete(self, last_known: NodePodProbe) -> None:
        change = self._caches.follow_node_pod_probe_deletion(last_known)
        self._keys.node(last_known.key.name)
        self._enqueue_markers(change)

    def _enqueue_agent(self, node: str) -> None:
        """A new result ends staleness. With an expired Lease, the removal of the newest result begins it."""
        if self._is_silent(node) or self._caches.is_overdue(node):
            self._keys.agents.add(node)

    def _enqueue_pods(self, change: ProbesChange) -> None:
        ours = self._caches.namespace
        for key, reported in change.pods.items():
            if not ours or key.namespace == ours:
                self._result_seen(key, reported)
                self._keys.pods.add(key, Priority.HIGH)

    def _enqueue_markers(self, change: ProbesChange) -> None:
        markers = self._caches.matching.markers
        self._keys.enqueue_marker_status(markers[key] for key in change.markers if key in markers)
