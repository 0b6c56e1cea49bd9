"""The ReplicaSet controller: creates and deletes pods until there are as many as wanted.

A scale-in deletes the pods with the lowest `controller.kubernetes.io/pod-deletion-cost` first.

Source: kubernetes pkg/controller/replicaset (replica_set.go), pkg/controller/controller_utils.go (ActivePodsWithRanks).
Differs: reads the pods from the API server before it acts, so it needs no expectations; adopts no pods; records no
events; at most `MOST_REPLICAS`; of pods that are alike in all else, the newest goes first.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from kruise_probe.api.errors import KubeError, NotFound
from kruise_probe.api.labels import is_deletion_cost
from kruise_probe.api.meta import ApiObject, Resource, as_is
from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe_playground.node.pods import NODE_PODS, NodePod

MOST_REPLICAS: Final = 100
RETRY_SECONDS: Final = 0.5

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_FINISHED: Final = ("Succeeded", "Failed")

_log = structlog.get_logger(__name__)


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1
    template: dict[str, Any] = {}


class ReplicaSet(ApiObject, frozen=True):
    spec: _Spec = _Spec()
    status: dict[str, Any] | None = None


REPLICA_SETS: Final = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", wire=ReplicaSet, project=as_is
)


def deletion_order(pods: Sequence[NodePod]) -> list[NodePod]:
    """The pods in the order in which a scale-in deletes them."""

    def rank(pod: NodePod) -> tuple[Any, ...]:
        return (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase or "", 0),
            _is_ready(pod),
            _cost(pod),
        )

    newest_first = sorted(
        pods,
        key=lambda pod: pod.metadata.creation_timestamp or "",
        reverse=True,
    )
    return sorted(newest_first, key=rank)


def _is_ready(pod: NodePod) -> bool:
    ready = pod.condition("Ready")
    return ready is not None and ready.status == "True"


def _cost(pod: NodePod) -> int:
    cost = (pod.metadata.annotations or {}).get(DELETION_COST_ANNOTATION, "")
    return int(cost) if is_deletion_cost(cost) else 0


class ReplicaSetController:
    """Reconciles all ReplicaSets after every change of one, or of a pod."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._changed = asyncio.Event()
        self._sets = SharedInformer(ResourceListerWatcher(client, REPLICA_SETS), name="ReplicaSets")
        self._pods = SharedInformer(ResourceListerWatcher(client, NODE_PODS), name="their pods")

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        self._sets.add_event_handler(self)
        self._pods.add_event_handler(self)
        async with asyncio.TaskGroup() as group:
            for work in (self._sets.run, self._pods.run):
                group.create_task(work())
            while True:
                await self._changed.wait()
                self._changed.clear()
                for replica_set in self._sets.lister.list():
                    if not replica_set.deleting:
                        await self._reconcile(replica_set)

    def on_add(self, obj: object, is_initial: bool) -> None:
        self._changed.set()

    def on_update(self, old: object, new: object) -> None:
        self._changed.set()

    def on_delete(self, last_known: object) -> None:
        self._changed.set()

    async def _reconcile(self, known: ReplicaSet) -> None:
        try:
            await self._scale(await self._client.get(REPLICA_SETS, known.key))
        except NotFound:
            return
        except KubeError as error:
            _log.warning(
                "ReplicaSet was not reconciled",
                key=str(known.key),
                error=str(error),
            )
            await asyncio.sleep(RETRY_SECONDS)
            self._changed.set()

    async def _scale(self, replica_set: ReplicaSet) -> None:
        page = await self._client.list_page(
            NODE_PODS,
            namespace=replica_set.key.namespace,
            limit=0,
        )
        active = [
            item
            for item in page.items
            if any(owner.uid == replica_set.uid for owner in item.metadata.owner_references)
            and not item.deleting
            and item.status.phase not in _FINISHED
        ]
        wanted = min(replica_set.spec.replicas, MOST_REPLICAS)
        for _ in range(wanted - len(active)):
            await self._client.create(
                NODE_PODS, _new_pod(replica_set), namespace=replica_set.key.namespace
            )
        for pod in deletion_order(active)[: max(len(active) - wanted, 0)]:
            await self._client.delete(
                NODE_PODS,
                pod.key,
                uid=pod.uid,
            )
        await self._write_status(replica_set, active)

    async def _write_status(self, replica_set: ReplicaSet, pods: Sequence[NodePod]) -> None:
        ready = sum(map(_is_ready, pods))
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": replica_set.metadata.generation,
        }
        if (replica_set.status or {}).items() >= status.items():
            return
        body = msgspec.json.encode(
            {
                "metadata": {"uid": replica_set.uid},
                "status": status,
            }
        )
        await self._client.patch(
            REPLICA_SETS, replica_set.key, body, patch_type=PatchType.MERGE, subresource="status"
        )


def _new_pod(replica_set: ReplicaSet) -> bytes:
    template = replica_set.spec.template
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": replica_set.key.name,
        "uid": replica_set.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "labels": template["metadata"].get("labels"),
        "annotations": template["metadata"].get("annotations"),
        "generateName": f"{replica_set.key.name}-",
        "ownerReferences": [owner],
    }
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": template["spec"],
        }
    )
