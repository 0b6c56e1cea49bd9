"""PodProbeMarker and NodePodProbe, wire-compatible with Kruise's Go types.

Source: openkruise/kruise apis/apps/v1alpha1/{pod_probe_marker,node_pod_probe}_types.go; Go encoding/json for the size
of stored objects.
Differs: our CRDs add status fields, which Kruise's CRDs prune.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from hashlib import blake2b
from sys import intern
from typing import Final, TypeVar

import msgspec

from kruise_probe.api.core import Probe
from kruise_probe.api.keys import ProbeName
from kruise_probe.api.meta import DECODE_ERRORS, ApiObject, Condition, LabelSelector, share
from kruise_probe.api.names import PAUSED_ANNOTATION

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode

MAX_OBJECT_BYTES: Final = 1 << 20
"""Maximum stored size of a NodePodProbe; etcd rejects 1.5 MiB."""


class ProbeState(StrEnum):
    """State of a probe; Unknown means that there is no result."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class _Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Common options of the structs below. `gc=False` is safe: they are trees without cycles."""


class MessageValue(_Wire, frozen=True):
    """A label or annotation whose value is extracted from the message of the result. Kruise's CRD prunes it."""

    label: str | None = None
    annotation: str | None = None
    regex: str | None = None


class MarkerPolicy(_Wire, frozen=True):
    """What to write to the pod in `state`; keys that only the policies of other states name are removed."""

    state: str
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    from_message: tuple[MessageValue, ...] | None = None


class ContainerProbe(_Wire, frozen=True):
    """What to run in a container: in a NodePodProbe, where `name` is `<marker>#<probe>` (`keys.ProbeName`), and in a marker.

    A new option of an attempt is a field here, beside `probe`. Whatever decides about attempts takes the whole entry.
    """

    name: str
    container_name: str
    probe: Probe

    @property
    def attempt(self) -> list[tuple[str, object]]:
        """All that decides the result of one attempt, but the timeout, by wire name: every field except names and timing."""
        fields = [*_set_fields(self.probe, _TIMING), *_set_fields(self, _IDENTITY)]
        return [(name, value) for name, value in fields if value is not None]

    @property
    def hash(self) -> str:
        """16 hexadecimal digits over the attempt and its timeout.

        Periods and thresholds are not included: the state stays valid when they change. Manager and daemon of different
        versions compare hashes, so a new field that is absent must not change them.
        """
        text = _encode(self.attempt) + b"\0%d" % self.probe.effective_timeout_seconds
        return blake2b(text, digest_size=8).hexdigest()


_IDENTITY: Final = frozenset({"name", "containerName", "probe", "markerPolicy", "podConditionType"})
_TIMING: Final = frozenset(
    {
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
        "terminationGracePeriodSeconds",
    }
)
"""Fields of a probe that do not change what one attempt does."""


def _set_fields(struct: msgspec.Struct, but: frozenset[str]) -> Iterator[tuple[str, object]]:
    for attribute, name in zip(
        struct.__struct_fields__, struct.__struct_encode_fields__, strict=True
    ):
        if name not in but:
            yield name, getattr(struct, attribute)


class PodContainerProbe(ContainerProbe, frozen=True):
    """A probe of a marker, with what its results change on the pod."""

    marker_policy: tuple[MarkerPolicy, ...] | None = None
    pod_condition_type: str | None = None

    def entry(self, marker: str) -> ContainerProbe:
        """The entry for a NodePodProbe."""
        fields = {name: getattr(self, name) for name in ContainerProbe.__struct_fields__}
        return ContainerProbe(**{**fields, "name": str(ProbeName(marker, self.name))})


class PodProbeMarkerSpec(_Wire, frozen=True):
    selector: LabelSelector | None = None
    probes: tuple[PodContainerProbe, ...] | None = None


class PodProbeMarkerStatus(_Wire, frozen=True):
    """The first two fields are Kruise's; the others are ours and pruned by Kruise's CRD."""

    observed_generation: int = 0
    matched_pods: int = 0
    succeeded: int | None = None
    failed: int | None = None
    unknown: int | None = None
    nodes_behind: int | None = None
    conditions: tuple[Condition, ...] | None = None


class PodProbeMarker(ApiObject, frozen=True):
    spec: PodProbeMarkerSpec = PodProbeMarkerSpec()
    status: PodProbeMarkerStatus | None = None

    @property
    def paused(self) -> bool:
        """Whether the marker's annotation pauses its probes on all pods."""
        return (self.metadata.annotations or {}).get(PAUSED_ANNOTATION) == "true"


class PodProbe(_Wire, frozen=True):
    """All probes of one pod. Kruise's CRD requires `IP`, so it is written even if empty."""

    name: str
    namespace: str
    uid: str
    ip: str = msgspec.field(name="IP")
    probes: tuple[ContainerProbe, ...] | None = None


class NodePodProbeSpec(_Wire, frozen=True):
    pod_probes: tuple[PodProbe, ...] | None = None


class ContainerProbeState(_Wire, frozen=True):
    """The newest published result of one probe.

    `container_id` and `probe_hash` are our additions (Kruise's CRD prunes them). A restarted daemon uses them to check
    whether the result is still of the same container and the same probe.
    """

    name: str
    state: str
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    message: str | None = None
    container_id: str | None = msgspec.field(default=None, name="containerID")
    probe_hash: str | None = None


class PodProbeStatus(_Wire, frozen=True):
    name: str
    namespace: str
    uid: str
    probe_states: tuple[ContainerProbeState, ...] | None = None


class NodePodProbeStatus(_Wire, frozen=True):
    pod_probe_statuses: tuple[PodProbeStatus, ...] | None = None


class NodePodProbe(ApiObject, frozen=True):
    spec: NodePodProbeSpec = NodePodProbeSpec()
    status: NodePodProbeStatus | None = None


Probes = tuple[ContainerProbe, ...] | None

_ABSENT = msgspec.Raw(b"null")


class _PodProbeWire(msgspec.Struct, frozen=True, gc=False):
    """An entry. Current CRDs require the IP, but an older entry without one must not make the object undecodable."""

    name: str
    namespace: str
    uid: str
    ip: str = msgspec.field(default="", name="IP")
    probes: msgspec.Raw = _ABSENT


class _ProbeNames(_Wire, frozen=True):
    """The names of an entry that does not decode."""

    name: str
    container_name: str


class _SpecWire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pod_probes: tuple[_PodProbeWire, ...] | None = None


class NodePodProbeWire(ApiObject, frozen=True):
    """A decoded NodePodProbe before `project_node_pod_probe`."""

    spec: _SpecWire = _SpecWire()
    status: msgspec.Raw = _ABSENT


_status_decoder: msgspec.json.Decoder[NodePodProbeStatus | None] = msgspec.json.Decoder(
    NodePodProbeStatus | None
)
_probes_decoder: msgspec.json.Decoder[Probes] = msgspec.json.Decoder(Probes)
_probe_decoder = msgspec.json.Decoder(ContainerProbe)
_items_decoder = msgspec.json.Decoder(tuple[msgspec.Raw, ...] | None)
_names_decoder = msgspec.json.Decoder(_ProbeNames)
_shared_probes: dict[bytes, Probes] = {}


def project_node_pod_probe(wire: NodePodProbeWire) -> NodePodProbe:
    """Convert to a NodePodProbe in which equal probes of many pods are one value.

    Pods of one template have byte-for-byte equal probes, which are most of a NodePodProbe. So the probes of a pod are
    kept as bytes first, and decoded only if these bytes are not in the cache.

    The schemas of `probe` and `status` are open. A malformed probe has no handler: the daemon reports it, and the
    manager writes it again. A malformed status counts as absent.
    """
    entries = wire.spec.pod_probes
    spec = NodePodProbeSpec(tuple(map(_entry, entries)) if entries is not None else None)
    return NodePodProbe(wire.metadata, spec, _decoded(_status_decoder, wire.status))


def _entry(wire: _PodProbeWire) -> PodProbe:
    data = bytes(wire.probes)
    probes = _shared_probes.get(data)
    if probes is None:
        probes = share(_shared_probes, data, _decoded_probes(data))
    return PodProbe(wire.name, intern(wire.namespace), wire.uid, wire.ip, probes)


def _decoded_probes(data: bytes) -> Probes:
    try:
        return _probes_decoder.decode(data)
    except DECODE_ERRORS:
        items = _decoded(_items_decoder, data)
    return tuple(filter(None, map(_decoded_probe, items or ()))) or None


def _decoded_probe(data: msgspec.Raw) -> ContainerProbe | None:
    try:
        return _probe_decoder.decode(data)
    except DECODE_ERRORS:
        names = _decoded(_names_decoder, data)
    return ContainerProbe(names.name, names.container_name, Probe()) if names else None


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T | None:
    try:
        return decoder.decode(data)
    except DECODE_ERRORS:
        return None


def stored_bytes(value: object) -> int:
    """The size of `value` as the API server stores it: `<`, `>`, `&`, U+2028 and U+2029 take six bytes each."""
    body = _encode(value)
    size = len(body) + 5 * (body.count(b"<") + body.count(b">") + body.count(b"&"))
    if body.isascii():
        return size
    return size + 3 * (body.count(b"\xe2\x80\xa8") + body.count(b"\xe2\x80\xa9"))
