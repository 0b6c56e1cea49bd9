"""What a node, and the scheduler beside it, ask of the API server.

Source: kubelet pkg/kubelet/status/status_manager.go, scheduler's default binder.
Differs: nothing in what is sent; kubelet computes its patch from two states, here all that is owned is sent.
"""

from typing import Any

import msgspec

from kruise_probe.api.errors import AlreadyExists
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import NODES
from kruise_probe.client.rest import PatchType, RestClient
from kruise_probe.playground.node.pods import NODE_PODS

Json = dict[str, Any]


class NodeApi:
    """Every call raises `api.errors.KubeError`, within the client's deadline."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def write_pod_status(self, key: NamespacedName, uid: str, status: Json) -> None:
        """Merges into `pods/status` what the node owns; Invalid when the pod is another one by now."""
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
        await self._client.patch(
            NODE_PODS,
            key,
            body,
            patch_type=PatchType.STRATEGIC_MERGE,
            subresource="status",
            decode=False,
        )

    async def delete_pod(self, key: NamespacedName, uid: str) -> None:
        """Takes the object away, now that its containers have ended; Conflict when it is another one."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid},
        }
        path = NODE_PODS.path(key.namespace, key.name)
        await self._client.request_raw("DELETE", path, msgspec.json.encode(options))

    async def bind_pod(self, key: NamespacedName, uid: str, node: str) -> None:
        """Gives the pod its node; Conflict when it has one."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = NODE_PODS.path(key.namespace, key.name, "binding")
        await self._client.request_raw("POST", path, msgspec.json.encode(binding))

    async def write_node(self, node: Json) -> None:
        """Makes the Node object, or its labels and status as they are now."""
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
            decode=False,
        )
