"""Binds pods without a node to the node with the fewest pods.

Source: kube-scheduler.
Differs: only counts pods; no selectors, resources, affinities, taints or gates.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

import msgspec
import structlog

from kruise_probe.api.errors import Conflict, KubeError, NotFound
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe_playground.node.pods import NODE_PODS, NodePod

RETRY_SECONDS = 0.5
_OURS = (None, "", "default-scheduler")
"""Pods with another scheduler name are ignored."""

_log = structlog.get_logger(__name__)


class Scheduler:
    """Watches all pods, and binds those without a node to one of `nodes`."""

    def __init__(self, client: RestClient, *, nodes: Sequence[str]) -> None:
        self._pods = SharedInformer(
            ResourceListerWatcher(client, NODE_PODS), name="pods to schedule"
        )
        self._client = client
        self._nodes = nodes
        self._bound: dict[str, str] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as self._group:
            self._pods.add_event_handler(self)
            await self._pods.run()

    def on_add(self, obj: NodePod, is_initial: bool) -> None:
        if obj.spec.node_name:
            self._bound[obj.uid] = obj.spec.node_name
        elif self._group and not obj.deleting and obj.spec.scheduler_name in _OURS:
            node = self._bound[obj.uid] = self._choose()
            self._group.create_task(
                self._bind(obj, node),
                name=f"bind {obj.key}",
            )

    def on_update(self, old: NodePod, new: NodePod) -> None:
        if old.uid != new.uid:
            self.on_delete(old)
            self.on_add(new, False)

    def on_delete(self, last_known: NodePod) -> None:
        self._bound.pop(last_known.uid, None)

    def _choose(self) -> str:
        pods = Counter(self._bound.values())
        return min(
            self._nodes,
            key=lambda node: pods[node],
        )

    async def _bind(self, pod: NodePod, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "target": {"name": node},
        }
        path = NODE_PODS.path(*pod.key, "binding")
        body = msgspec.json.encode(binding)
        while pod.uid in self._bound:
            try:
                await self._client.request_raw("POST", path, body)
            except (NotFound, Conflict):
                return
            except KubeError as error:
                _log.warning(
                    "pod was not bound",
                    pod=str(pod.key),
                    error=str(error),
                )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return
