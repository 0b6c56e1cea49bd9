"""The kinds that kruise-probe reads and writes, and how a NodePodProbe is decoded."""

from sys import intern
from typing import Final, TypeVar

import msgspec

from kruise_probe.api import pod_wire
from kruise_probe.api.caches import Cache, decoded_bytes
from kruise_probe.api.core import EVENTS, LEASES, NODES
from kruise_probe.api.meta import DECODE_ERRORS, ApiObject, Resource, as_is
from kruise_probe.api.names import GROUP, VERSION
from kruise_probe.api.node_pod_probe import (
    NodePodProbe,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbe,
)
from kruise_probe.api.probe import Probe
from kruise_probe.api.structs import Wire
from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbeMarker

__all__ = ["EVENTS", "LEASES", "MARKERS", "NODES", "NODE_POD_PROBES", "PODS"]

T = TypeVar("T")
Probes = tuple[ContainerProbe, ...]

_ABSENT = msgspec.Raw(b"null")


class _PodProbeWire(Wire, frozen=True):
    """An entry. Current CRDs require the IP, but an older entry without one must not make the object undecodable."""

    name: str
    namespace: str
    uid: str
    ip: str = msgspec.field(default="", name="IP")
    probes: msgspec.Raw = _ABSENT


class _ProbeNames(Wire, frozen=True):
    """The names of an entry that does not decode."""

    name: str
    container_name: str


class _SpecWire(Wire, frozen=True):
    pod_probes: tuple[_PodProbeWire, ...] = ()


class NodePodProbeWire(ApiObject, frozen=True):
    """A decoded NodePodProbe before `project_node_pod_probe`."""

    spec: _SpecWire = _SpecWire()
    status: msgspec.Raw = _ABSENT


_status_decoder: msgspec.json.Decoder[NodePodProbeStatus | None] = msgspec.json.Decoder(
    NodePodProbeStatus | None
)
_probes_decoder: msgspec.json.Decoder[Probes] = msgspec.json.Decoder(Probes)
_probe_decoder = msgspec.json.Decoder(ContainerProbe)
_items_decoder = msgspec.json.Decoder(tuple[msgspec.Raw, ...])
_names_decoder = msgspec.json.Decoder(_ProbeNames)


def project_node_pod_probe(wire: NodePodProbeWire) -> NodePodProbe:
    """Convert to a NodePodProbe in which equal probes of many pods are one value.

    Pods of one template have byte-for-byte equal probes, which are most of a NodePodProbe. So the probes of a pod are
    kept as bytes first, and decoded only if these bytes are not in the cache.

    The schemas of `probe` and `status` are open. A malformed probe has no handler: the daemon reports it, and the
    manager writes it again. A malformed status counts as absent.
    """
    spec = NodePodProbeSpec(tuple(map(_entry, wire.spec.pod_probes)))
    return NodePodProbe(wire.metadata, spec, _decoded(_status_decoder, wire.status))


def _entry(wire: _PodProbeWire) -> PodProbe:
    probes = _shared_probes[bytes(wire.probes)]
    return PodProbe(
        wire.name,
        intern(wire.namespace),
        wire.uid,
        wire.ip,
        probes,
    )


def _decoded_probes(data: bytes) -> Probes:
    if probes := _decoded(_probes_decoder, data):
        return probes
    items = _decoded(_items_decoder, data)
    if items is None:
        return ()
    return tuple(filter(None, map(_decoded_probe, items)))


_shared_probes = Cache[bytes, Probes](lambda data, _: decoded_bytes(data), _decoded_probes)


def _decoded_probe(data: msgspec.Raw) -> ContainerProbe | None:
    if probe := _decoded(_probe_decoder, data):
        return probe
    names = _decoded(_names_decoder, data)
    return (
        ContainerProbe(
            names.name,
            names.container_name,
            Probe(),
        )
        if names
        else None
    )


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T | None:
    try:
        return decoder.decode(data)
    except DECODE_ERRORS:
        return None


PODS: Final = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    wire=pod_wire.PodWire,
    project=pod_wire.project,
)
MARKERS: Final[Resource[PodProbeMarker]] = Resource(
    GROUP, VERSION, "podprobemarkers", "PodProbeMarker", wire=PodProbeMarker, project=as_is
)
NODE_POD_PROBES: Final = Resource(
    GROUP,
    VERSION,
    "nodepodprobes",
    "NodePodProbe",
    wire=NodePodProbeWire,
    project=project_node_pod_probe,
    namespaced=False,
)
