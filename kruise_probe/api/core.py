"""The fields of Nodes, Leases and Events that we read. Pods are in `pods`, probes in `probe`.

Source: k8s.io/api core/v1 and coordination/v1 of Kubernetes 1.37.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kruise_probe.api.meta import ApiObject, NamespacedName, OwnerReference, Resource, as_is
from kruise_probe.api.structs import Wire


class _NodeMeta(Wire, frozen=True):
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = {}


class NodeWire(Wire, frozen=True):
    """A decoded Node before `project_node`. Its annotations, which may have many kilobytes, are skipped."""

    metadata: _NodeMeta


class Node(msgspec.Struct, frozen=True, gc=False):
    """What decisions read of a Node.

    Attributes:
        is_virtual: it represents a serverless provider, and has no daemon and no NodePodProbe.
        is_windows: it runs Windows, where our daemon does not run.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    is_virtual: bool = False
    is_windows: bool = False

    @property
    def key(self) -> NamespacedName:
        return NamespacedName("", self.name)

    @property
    def as_owner(self) -> OwnerReference:
        """The reference of an object that is deleted with this Node."""
        return OwnerReference("v1", "Node", self.name, self.uid)


def project_node(wire: NodeWire) -> Node:
    meta = wire.metadata
    return Node(
        meta.name,
        meta.uid,
        meta.resource_version,
        meta.labels.get("type") == "virtual-kubelet",
        meta.labels.get("kubernetes.io/os") == "windows",
    )


class LeaseSpec(Wire, frozen=True):
    """Times are MicroTime strings; `lease_duration_seconds` counts from `renew_time`."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(ApiObject, frozen=True):
    spec: LeaseSpec = LeaseSpec()

    @property
    def holder(self) -> str:
        """The identity of its holder; empty without one."""
        return self.spec.holder_identity or ""


NODES: Final = Resource(
    "",
    "v1",
    "nodes",
    "Node",
    wire=NodeWire,
    project=project_node,
    namespaced=False,
)
EVENTS: Final[Resource[ApiObject]] = Resource(
    "",
    "v1",
    "events",
    "Event",
    wire=ApiObject,
    project=as_is,
)
LEASES: Final[Resource[Lease]] = Resource(
    "coordination.k8s.io",
    "v1",
    "leases",
    "Lease",
    wire=Lease,
    project=as_is,
)
