"""A NodePodProbe while it is decoded: the same probes on many pods are decoded, and kept, once.

All pods of one template are asked the same, byte for byte, and that is most of a NodePodProbe. So the probes of an entry
are taken over as bytes first, and only bytes that have not been met are decoded.

Source: no counterpart.
"""

from sys import intern

import msgspec

from kruise_probe.api.meta import ApiObject
from kruise_probe.api.sharing import share
from kruise_probe.api.v1alpha1 import (
    ContainerProbe,
    NodePodProbe,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbe,
)

Probes = tuple[ContainerProbe, ...] | None

_ABSENT = msgspec.Raw(b"null")


class _EntryWire(msgspec.Struct, frozen=True, gc=False):
    """The IP is required by today's CRDs; an entry from before them is no reason to lose sight of the whole object."""

    name: str
    namespace: str
    uid: str
    ip: str = msgspec.field(default="", name="IP")
    probes: msgspec.Raw = _ABSENT


class _SpecWire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pod_probes: tuple[_EntryWire, ...] | None = None


class NodePodProbeWire(ApiObject, frozen=True):
    """A NodePodProbe as its bytes are decoded, before `project`."""

    spec: _SpecWire = _SpecWire()
    status: NodePodProbeStatus | None = None


_probes_decoder: msgspec.json.Decoder[Probes] = msgspec.json.Decoder(Probes)
_shared_probes: dict[bytes, Probes] = {}


def project(wire: NodePodProbeWire) -> NodePodProbe:
    """The object with shared probes.

    Raises:
        msgspec.ValidationError: a probe does not fit; the path begins at its entry's `probes`.
    """
    entries = wire.spec.pod_probes
    spec = NodePodProbeSpec(tuple(map(_entry, entries)) if entries is not None else None)
    return NodePodProbe(wire.metadata, spec, wire.status)


def _entry(wire: _EntryWire) -> PodProbe:
    data = bytes(wire.probes)
    probes = _shared_probes.get(data)
    if probes is None:
        probes = share(_shared_probes, data, _probes_decoder.decode(data))
    return PodProbe(wire.name, intern(wire.namespace), wire.uid, wire.ip, probes)
