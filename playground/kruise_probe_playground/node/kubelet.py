"""The pods of one node: one worker for each, woken by the watch of pods and by the ends of its containers.

Source: kubelet pkg/kubelet/kubelet.go (syncLoop), pod_workers.go.
Differs: no static pods, no admission, no eviction.
"""

import asyncio

import structlog

from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe_playground.node.pod_worker import NodeContext, PodWorker
from kruise_probe_playground.node.pods import NodePod

_log = structlog.get_logger(__name__)


class Kubelet:
    """Owns one worker for each pod uid. Cancelling `run` ends them; the runtime then kills their processes."""

    def __init__(self, pods: SharedInformer[NodePod], context: NodeContext) -> None:
        self._pods = pods
        self._context = context
        self._workers: dict[str, PodWorker] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as self._group:
            self._pods.add_event_handler(self)
            await self._pods.run()

    def on_add(self, obj: NodePod, is_initial: bool) -> None:
        worker = self._workers[obj.uid] = PodWorker(obj, self._context)
        if self._group:
            self._group.create_task(
                _guarded(worker, obj),
                name=f"pod {obj.key}",
            )

    def on_update(self, old: NodePod, new: NodePod) -> None:
        if old.uid != new.uid:
            self.on_delete(old)
            self.on_add(new, False)
        elif worker := self._workers.get(new.uid):
            worker.update(new)

    def on_delete(self, last_known: NodePod) -> None:
        if worker := self._workers.pop(last_known.uid, None):
            worker.gone()


async def _guarded(worker: PodWorker, pod: NodePod) -> None:
    try:
        await worker.run()
    except Exception:  # noqa: BLE001 - one pod never stops another
        _log.exception("pod worker failed", pod=str(pod.key))
