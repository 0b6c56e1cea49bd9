"""Reads as the user of the node, for --own-node-reads: by constrained impersonation (KEP-5284, Kubernetes 1.36).

The API server allows it for the node that the daemon's token is bound to, and only for the verbs of the daemon's
role. So a stolen token reads no other node's NodePodProbe, and nothing else that a kubelet may read.
"""

from dataclasses import replace
from typing import Any, Final

from kruise_probe.api.errors import Forbidden
from kruise_probe.api.names import node_user
from kruise_probe.client.cluster_config import ClusterConfig
from kruise_probe.client.request import Request
from kruise_probe.client.rest import RestClient
from kruise_probe.client.transport import Response

REMEDIES: Final = {
    'cannot impersonate resource "users"': (
        "the API server has no constrained impersonation, which --own-node-reads needs: use Kubernetes 1.36 or newer, or "
        "remove the flag from manager and daemon and apply the manifests without it"
    ),
    "impersonate-on:arbitrary-node": (
        "the daemon's token is not bound to this node, as --own-node-reads needs: use the projected token of the daemon's "
        "pod, and check that --node-name is the name of the pod's node"
    ),
    "impersonate": (
        "the daemon's role does not allow --own-node-reads: apply the manifests of this version with the flag"
    ),
    'User "system:node:': (
        "the ClusterRole kruise-probe-node:NODE of this node or its binding is missing: check that a manager runs with "
        "--own-node-reads, and its log"
    ),
}
"""By a part of the API server's message, in the order to look for it: the cause and what to do."""


def explained(message: str) -> str:
    """The message of a refused read, with its cause and what to do."""
    for part, remedy in REMEDIES.items():
        if part in message:
            return f"{message}; {remedy}"
    return message


class NodeReader(RestClient):
    """Sends requests as a node, with the arguments of `RestClient`, and explains why the API server refuses them."""

    def __init__(self, node: str, *, config: ClusterConfig, **options: Any) -> None:
        as_node = replace(config, as_user=node_user(node))
        super().__init__(config=as_node, **options)

    async def send(self, request: Request) -> Response:
        try:
            return await super().send(request)
        except Forbidden as error:
            raise Forbidden(
                explained(error.message),
                reason=error.reason,
                request=error.request,
            ) from error
