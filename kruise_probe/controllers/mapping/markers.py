"""Event handler of markers."""

from collections.abc import Iterable

from kruise_probe.api.pods import NOTHING_OWNED, Pod
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.queues import Queues


class MarkerEvents:
    """Enqueues the pods that a marker matches, their nodes, and the other markers of these pods."""

    def __init__(self, caches: Caches, queues: Queues) -> None:
        self._caches = caches
        self._queues = queues

    def on_add(self, obj: PodProbeMarker, is_initial: bool) -> None:
        self._caches.markers.observe(obj)
        _, marker = self._caches.index_marker(obj)
        pods = self._caches.matching.pods_of(marker)
        if is_initial:
            self._queues.enqueue_marker_status(obj.key, initial=True)
        else:
            self._queues.enqueue_marker(obj.key)
            self._enqueue_markers_of(pods)
        for pod in pods:
            self._queues.enqueue_pod(pod.key, initial=is_initial)
        self._enqueue_nodes(marker, pods, initial=is_initial)

    def on_update(self, old: PodProbeMarker, new: PodProbeMarker) -> None:
        own_write = self._caches.markers.is_own_write(new)
        self._caches.markers.observe(new)
        if old is new:
            self._queues.enqueue_marker_status(new.key, initial=True)
            return
        if (
            old.spec == new.spec
            and old.paused == new.paused
            and old.deleting == new.deleting
            and old.metadata.generation == new.metadata.generation
        ):
            if not own_write:
                self._queues.enqueue_marker_status(new.key)
            return
        before, after = self._caches.index_marker(new)
        self._queues.enqueue_marker(new.key)
        pods = self._caches.matching.pods_of(after)
        if before is not None and before.selector != after.selector:
            pods += self._caches.matching.pods_of(before)
        for pod in sorted(pods, key=_node):
            if before is not None:
                self._caches.record_ended(pod, [before])
            self._queues.enqueue_pod(pod.key)
        self._enqueue_markers_of(pods)
        self._enqueue_nodes(after, pods)

    def on_delete(self, last_known: PodProbeMarker) -> None:
        marker, pods = self._caches.remove_marker(last_known)
        for pod in pods:
            self._caches.record_ended(pod, [marker])
            # Pods that already lost their marks were reconciled when the deletion began.
            if (
                not marker.deleting
                or pod.owned is not NOTHING_OWNED
                or pod.key in self._caches.ended
            ):
                self._queues.enqueue_pod(pod.key)
        self._enqueue_markers_of(pods)
        self._enqueue_nodes(marker, pods)
        self._queues.enqueue_marker(last_known.key)

    def _enqueue_nodes(
        self, marker: CompiledMarker, pods: Iterable[Pod], *, initial: bool = False
    ) -> None:
        nodes = {pod.node for pod in pods} | set(self._caches.node_index.nodes_holding(marker.key))
        for node in sorted(nodes):
            self._queues.enqueue_node(node, initial=initial)

    def _enqueue_markers_of(self, pods: Iterable[Pod]) -> None:
        """Enqueue all markers that match these pods: they may have won or lost a key."""
        markers = {each for pod in pods for each in self._caches.matching.markers_of(pod)}
        for each in markers:
            self._queues.enqueue_marker_status(each.key)


def _node(pod: Pod) -> str:
    """Sort key: pods that lose their marks are enqueued node by node, so that each node is planned once."""
    return pod.node
