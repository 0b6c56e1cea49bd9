"""Visits the pods of changed markers, in slices. Key: a namespace, so that namespaces take turns.

Runs in a standby too, where it only records which marks have lost their marker; the queues of everything else are closed.

Source: controller-runtime pkg/handler (EnqueueRequestsFromMapFunc).
Differs: the pods of an event are not enqueued in the event handler.
"""

from kruise_probe.api.pods import Pod
from kruise_probe.controllers.state import State, Visit
from kruise_probe.workqueue.controller import Result
from kruise_probe.workqueue.slices import PODS_PER_STEP


class VisitReconciler:
    """Enqueues each pod and its node, and counts it."""

    def __init__(self, state: State) -> None:
        self._state, self._queues = state, state.queues

    async def reconcile(self, namespace: str) -> Result | None:
        state = self._state
        for key, visit in state.visits.take(namespace, PODS_PER_STEP):
            if visit is None:
                state.recount_marker(key)
                continue
            pod = state.pods.get(key)
            if pod is not None:
                self._visit(pod, visit)
        return Result(0.0) if namespace in state.visits else None

    def _visit(self, pod: Pod, visit: Visit) -> None:
        self._state.record_ended(pod, visit.before)
        if visit.marks:
            self._queues.enqueue_pod(pod.key)
            ending = self._state.ending.naming(pod.namespace, pod.owned)
            self._queues.enqueue_ending(ending)
        self._queues.enqueue_node(pod.node)
        self._state.recount(pod.key)
