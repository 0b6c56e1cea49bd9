"""The right of each node to read its own NodePodProbe, for --own-node-reads: a ClusterRole and its ClusterRoleBinding.

RBAC has no rule for "the object of your own name", so each node has a role. The manager creates both objects if they are
missing. The garbage collector deletes them with their Node. `manifests/own_node_reads.yaml` has the policy that
refuses everything else that the manager could write with this right.

Source: KEP-5284 (constrained impersonation).
"""

from contextlib import suppress
from typing import Final

from kruise_probe.api.core import Node
from kruise_probe.api.errors import AlreadyExists
from kruise_probe.api.meta import ApiObject, NamespacedName, ObjectMeta, Resource
from kruise_probe.api.names import node_user
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.controllers.queues import Queues
from kruise_probe.manager.manager import Manager

RBAC: Final = "rbac.authorization.k8s.io"
PREFIX: Final = "kruise-probe-node:"
"""Of the names of the objects; the name of the node follows."""
LABELS: Final = {
    "app.kubernetes.io/name": "kruise-probe",
    "app.kubernetes.io/component": "own-reads",
}


def _identity(decoded: ApiObject) -> ApiObject:
    """The object without what no decision reads: a cluster has two of them for each node.

    Other products' roles are cached too, and cost as little: the client has no label selectors.
    """
    meta = decoded.metadata
    return ApiObject(
        ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
    )


def _kind(plural: str, kind: str) -> Resource[ApiObject]:
    return Resource(
        RBAC,
        "v1",
        plural,
        kind,
        wire=ApiObject,
        project=_identity,
        namespaced=False,
    )


CLUSTER_ROLES: Final = _kind("clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS: Final = _kind("clusterrolebindings", "ClusterRoleBinding")


def name_of(node: str) -> str:
    """The name of both objects of a node."""
    return f"{PREFIX}{node}"


def rights_of(node: Node) -> list[tuple[Resource[ApiObject], bytes]]:
    """What to create for a node, the role first: RBAC refuses a binding to a role that does not exist."""
    name = name_of(node.name)
    metadata = {"name": name, "labels": LABELS, "ownerReferences": [node.as_owner]}
    rule = {
        "apiGroups": [NODE_POD_PROBES.group],
        "resources": [NODE_POD_PROBES.plural],
        "resourceNames": [node.name],
        "verbs": ["get", "list", "watch"],
    }
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    user = {"apiGroup": RBAC, "kind": "User", "name": node_user(node.name)}
    return [
        (CLUSTER_ROLES, CLUSTER_ROLES.encode(metadata=metadata, rules=[rule])),
        (
            CLUSTER_ROLE_BINDINGS,
            CLUSTER_ROLE_BINDINGS.encode(metadata=metadata, roleRef=role, subjects=[user]),
        ),
    ]


class OwnReads:
    """Creates the roles and bindings that are missing, and enqueues the node of one that was deleted."""

    def __init__(self, manager: Manager, queues: Queues) -> None:
        self._client = manager.rest
        self._queues = queues
        self._informers = {
            kind.plural: manager.add_informer(kind)
            for kind in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
        }
        for informer in self._informers.values():
            informer.add_event_handler(self)

    async def create_missing(self, node: Node) -> None:
        key = NamespacedName("", name_of(node.name))
        for kind, body in rights_of(node):
            informer = self._informers[kind.plural]
            if informer.lister.get(key) is not None:
                continue
            with suppress(AlreadyExists):  # its event has not arrived yet
                created = await self._client.create(kind, body)
                informer.record_write(created)

    def on_add(self, obj: ApiObject, is_initial: bool) -> None:
        """Nothing depends on it."""

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        """Only its name matters."""

    def on_delete(self, last_known: ApiObject) -> None:
        name = last_known.key.name
        if name.startswith(PREFIX):
            node = name.removeprefix(PREFIX)
            self._queues.enqueue_node(node)
