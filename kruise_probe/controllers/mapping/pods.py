"""Event handler of pods."""

from collections.abc import Iterable

from kruise_probe.api.pods import NOTHING_OWNED, Pod
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.nodes.plan import is_probed
from kruise_probe.controllers.pods.claims import Claims, claims_of
from kruise_probe.controllers.pods.write_limits import WriteLimits
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.writes import NO_REFUSALS, WriteResults


class PodEvents:
    """Enqueues a pod, its node and the status of its markers. Drops what is remembered of a deleted pod."""

    def __init__(
        self, caches: Caches, queues: Queues, limits: WriteLimits, results: WriteResults
    ) -> None:
        self._caches = caches
        self._queues = queues
        self._limits = limits
        self._results = results

    def on_add(self, obj: Pod, is_initial: bool) -> None:
        self._caches.index_pod(None, obj)
        markers = self._caches.matching.markers_of(obj)
        if markers or obj.owned is not NOTHING_OWNED:
            self._queues.enqueue_pod(obj.key, initial=is_initial)
        if markers:
            self._queues.enqueue_node(obj.node, initial=is_initial)
            self._queues.enqueue_status_of(markers)

    def on_update(self, old: Pod, new: Pod) -> None:
        own_write = self._caches.pods.is_own_write(new)
        self._caches.index_pod(old, new)
        if old is new:
            self._resync(new)
            return
        before = self._caches.matching.markers_of(old)
        after = before if old.labels == new.labels else self._caches.matching.markers_of(new)
        if before != after:
            self._caches.record_ended(new, set(before) - set(after))
            self._enqueue_all(old, new, (*before, *after))
            return
        if not after and new.owned is NOTHING_OWNED and old.owned is NOTHING_OWNED:
            return
        if after and _plan_may_differ(old, new):
            self._enqueue_all(old, new, after)
        elif not own_write and _marks_may_differ(old, new):
            self._queues.enqueue_pod(new.key)
            if self._caches.node_is_virtual(new.node):
                self._queues.enqueue_status_of(after)
                if _provider_changed_state(old, new, claims_of(after)):
                    self._limits.record_provider_change(new.key)
        self._enqueue_deleting_markers(old, new)

    def on_delete(self, last_known: Pod) -> None:
        self._caches.remove_pod(last_known)
        self._limits.forget(last_known.key)
        self._results.set_refusals(last_known.key, NO_REFUSALS)
        markers = self._caches.matching.markers_of(last_known)
        self._queues.enqueue_status_of(markers)
        if markers or last_known.uid in self._caches.node_index.view(last_known.node).entries:
            self._queues.enqueue_node(last_known.node)
        self._queues.enqueue_status_of(
            self._caches.matching.deleting(last_known.namespace).values()
        )

    def _resync(self, pod: Pod) -> None:
        """Enqueue the pod at LOW priority, in case events were lost."""
        if self._caches.matching.markers_of(pod) or pod.owned is not NOTHING_OWNED:
            self._queues.enqueue_pod(pod.key, initial=True)

    def _enqueue_all(self, old: Pod, new: Pod, markers: Iterable[CompiledMarker]) -> None:
        self._queues.enqueue_pod(new.key)
        self._queues.enqueue_node(new.node)
        if old.node != new.node:
            self._queues.enqueue_node(old.node)
        self._queues.enqueue_status_of(markers)
        self._enqueue_deleting_markers(old, new)

    def _enqueue_deleting_markers(self, old: Pod, new: Pod) -> None:
        """If the marks of a pod changed, enqueue what the finalizers of markers being deleted wait for."""
        deleting = self._caches.matching.deleting(new.namespace)
        if deleting and _marks_may_differ(old, new):
            self._queues.enqueue_node_after(new.node)
            self._queues.enqueue_status_of(deleting.values())


def _plan_may_differ(old: Pod, new: Pod) -> bool:
    return (
        old.ip != new.ip
        or old.node != new.node
        or old.started != new.started
        or old.containers != new.containers
        or old.paused != new.paused
        or is_probed(old) != is_probed(new)
    )


def _provider_changed_state(old: Pod, new: Pod, claims: Claims) -> bool:
    """Whether the status of a condition changed from which a probe's state is read."""
    for condition_type in claims.condition_types:
        before, after = old.condition(condition_type), new.condition(condition_type)
        if before is not None and after is not None and before.status != after.status:
            return True
    return False


def _marks_may_differ(old: Pod, new: Pod) -> bool:
    return (
        old.conditions != new.conditions
        or old.labels != new.labels
        or old.annotations != new.annotations
        or old.owned != new.owned
        or old.active != new.active
    )
