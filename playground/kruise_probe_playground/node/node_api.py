"""The API requests of kubelet and scheduler. Each may raise `api.errors.KubeError`, within the client's deadline.

Source: kubelet pkg/kubelet/status/status_manager.go, scheduler's default binder.
Differs: the kubelet sends the difference of two statuses; here the whole status of the kubelet is sent.
"""

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe_playground.node.pods import NODE_PODS, Json


async def write_pod_status(client: RestClient, key: NamespacedName, uid: str, status: Json) -> None:
    """Patch `pods/status`; fails with Invalid if the pod was replaced."""
    body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
    form = PatchType.STRATEGIC_MERGE
    await client.patch(NODE_PODS, key, body, patch_type=form, subresource="status")


async def delete_pod(client: RestClient, key: NamespacedName, uid: str) -> None:
    """Delete the object, after its containers have ended; fails with Conflict if the pod was replaced."""
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
    await client.request_raw("DELETE", NODE_PODS.path(*key), msgspec.json.encode(options))


async def bind_pod(client: RestClient, key: NamespacedName, node: str) -> None:
    """Set the pod's node; fails with Conflict if it has one."""
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "target": {"name": node}})
    await client.request_raw("POST", NODE_PODS.path(*key, "binding"), body)
