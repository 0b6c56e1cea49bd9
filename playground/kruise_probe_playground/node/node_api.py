"""The API requests of kubelet and scheduler.

Source: kubelet pkg/kubelet/status/status_manager.go, scheduler's default binder.
Differs: the kubelet sends the difference of two statuses; here the whole status of the kubelet is sent.
"""

import msgspec

from kruise_probe.api.errors import AlreadyExists
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import NODES
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe_playground.node.pods import NODE_PODS, Json


class NodeApi:
    """Every method may raise `api.errors.KubeError`, within the client's deadline."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def write_pod_status(self, key: NamespacedName, uid: str, status: Json) -> None:
        """Patch `pods/status`; fails with Invalid if the pod was replaced."""
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
        await self._client.patch(
            NODE_PODS,
            key,
            body,
            patch_type=PatchType.STRATEGIC_MERGE,
            subresource="status",
        )

    async def delete_pod(self, key: NamespacedName, uid: str) -> None:
        """Delete the object, after its containers have ended; fails with Conflict if the pod was replaced."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid},
        }
        path = NODE_PODS.path(key.namespace, key.name)
        await self._client.request_raw("DELETE", path, msgspec.json.encode(options))

    async def bind_pod(self, key: NamespacedName, uid: str, node: str) -> None:
        """Set the pod's node; fails with Conflict if it has one."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = NODE_PODS.path(key.namespace, key.name, "binding")
        await self._client.request_raw("POST", path, msgspec.json.encode(binding))

    async def write_node(self, node: Json) -> None:
        """Create the Node object, or update its labels and status."""
        try:
            await self._client.create(NODES, msgspec.json.encode(node))
        except AlreadyExists:
            labels = {"metadata": {"labels": node["metadata"]["labels"]}}
            await self._patch_node(node, labels, subresource="")
        await self._patch_node(node, {"status": node["status"]}, subresource="status")

    async def _patch_node(self, node: Json, change: Json, *, subresource: str) -> None:
        await self._client.patch(
            NODES,
            NamespacedName("", node["metadata"]["name"]),
            msgspec.json.encode(change),
            patch_type=PatchType.STRATEGIC_MERGE,
            subresource=subresource,
        )
