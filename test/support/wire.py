"""Objects as JSON."""

from typing import Any, TypeVar

import msgspec

from kruise_probe.api.meta import KubeObject, Resource

Json = dict[str, Any]
T = TypeVar("T", bound=KubeObject)

_API_VERSIONS = {
    "Lease": "coordination.k8s.io/v1",
    "NodePodProbe": "apps.kruise.io/v1alpha1",
    "PodProbeMarker": "apps.kruise.io/v1alpha1",
}


def typed(kind: str, **fields: Any) -> Json:
    """An object of this kind; those that are not ours and no Leases are of `v1`."""
    return {"apiVersion": _API_VERSIONS.get(kind, "v1"), "kind": kind, **fields}


def decoded(resource: Resource[T], wire: Json) -> T:
    """The object as the product decodes it."""
    return resource.decode(msgspec.json.encode(wire))
