"""Decoding of NodePodProbes with shared probes: equal probes of many pods are decoded and stored once.

Pods of one template have byte-for-byte equal probes, which are most of a NodePodProbe. So the probes of an entry are
kept as bytes first, and decoded only if these bytes are not in the cache.

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
    """An entry. Current CRDs require the IP, but an older entry without one must not make the object undecodable."""

    name: str
    namespace: str
    uid: str
    ip: str = msgspec.field(default="", name="IP")
    probes: msgspec.Raw = _ABSENT


class _SpecWire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pod_probes: tuple[_EntryWire, ...] | None = None


class NodePodProbeWire(ApiObject, frozen=True):
    """A decoded NodePodProbe before `project`."""

    spec: _SpecWire = _SpecWire()
    status: NodePodProbeStatus | None = None


_probes_decoder: msgspec.json.Decoder[Probes] = msgspec.json.Decoder(Probes)
_shared_probes: dict[bytes, Probes] = {}


def project(wire: NodePodProbeWire) -> NodePodProbe:
    """Convert to a NodePodProbe with shared probes.

    Raises:
        msgspec.ValidationError: a probe is invalid; the path in the message is relative to the entry's `probes`.
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
