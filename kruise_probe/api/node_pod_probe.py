"""NodePodProbe, wire-compatible with Kruise's Go type: what a node probes, and the results.

Source: openkruise/kruise apis/apps/v1alpha1/node_pod_probe_types.go; Go encoding/json for the size of stored objects.
Differs: our CRD adds status fields, which Kruise's CRD prunes.
"""

from typing import Annotated, Final

import msgspec

from kruise_probe.api.fields import Field
from kruise_probe.api.meta import ApiObject
from kruise_probe.api.structs import Wire
from kruise_probe.api.v1alpha1 import ContainerProbe

MAX_OBJECT_BYTES: Final = 1 << 20
"""Maximum stored size of a NodePodProbe; etcd rejects 1.5 MiB."""

_encode = msgspec.json.Encoder().encode


class PodProbe(Wire, frozen=True):
    """All probes of one pod. Kruise's CRD requires `IP`, so it is written even if empty.

    Attributes:
        name: Name of the pod.
        namespace: Namespace of the pod.
        uid: UID of the pod; a recreated pod of the same name has another UID.
        ip: IP of the pod; target of network probes.
        probes: Probes to run on the pod.
    """

    name: str
    namespace: str
    uid: str
    ip: str = msgspec.field(name="IP")
    probes: tuple[ContainerProbe, ...] = ()


class NodePodProbeSpec(Wire, frozen=True):
    """What a node probes.

    Attributes:
        pod_probes: Pods of this node to probe.
    """

    pod_probes: tuple[PodProbe, ...] = ()


class ContainerProbeState(Wire, frozen=True):
    """The newest published result of one probe.

    `probe_hash`, `message_shortened` and `epoch` are our additions (Kruise's CRD prunes them). A
    `containerID`, which earlier daemons wrote, is ignored: a result is of the container that ran when it was probed.

    Attributes:
        last_probe_time: Time of the newest attempt that had this result; later attempts that do not change it yet do
            not count.
        probe_hash: `ContainerProbe.hash` of the probe that had this result.
        message_shortened: True if the daemon cut the message because the object had no room for it, else None. No value
            is extracted from such a message.
    """

    name: str
    state: str
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    message: str | None = None
    probe_hash: str | None = None
    message_shortened: bool | None = None
    epoch: int | None = None


class PodProbeStatus(Wire, frozen=True):
    name: str
    namespace: str
    uid: str
    probe_states: tuple[ContainerProbeState, ...] = ()


class NodePodProbeStatus(Wire, frozen=True):
    """`pods` and `last_probe_time` are for `kubectl get`: the number of pods to probe, and the time of the newest result.

    Attributes:
        known_fields: the fields of `CRITERIA` that the daemon knows, if a probe has one.
    """

    # A function is no default that msgspec omits: the empty list is written, because a patch must replace what is stored.
    pod_probe_statuses: tuple[PodProbeStatus, ...] = msgspec.field(default_factory=lambda: ())
    pods: int | None = None
    last_probe_time: str | None = None
    known_fields: tuple[str, ...] = ()


class NodePodProbe(ApiObject, frozen=True):
    """The probes of a node and their results.

    Attributes:
        spec: The probes to run; written by the manager.
        status: Written by the daemon. podProbeStatuses[] contains the newest results by pod: name, namespace, uid
            and probeStates[], of which each has name (<marker>#<probe>), state (Succeeded, Failed or Unknown),
            lastProbeTime, lastTransitionTime, message, probeHash and messageShortened (true if the
            object had no room for the whole message). pods is the number of pods to probe, and lastProbeTime that
            of the newest result. knownFields are the fields beyond Kruise's that the daemon knows, if a probe has one. An unchanged result is written about every ten minutes.
    """

    spec: NodePodProbeSpec = NodePodProbeSpec()
    status: Annotated[NodePodProbeStatus | None, Field(open=True)] = None

    @property
    def results(self) -> tuple[PodProbeStatus, ...]:
        """The results in its status, by pod."""
        return self.status.pod_probe_statuses if self.status is not None else ()


def stored_bytes(value: object) -> int:
    """The size of `value` as the API server stores it: `<`, `>`, `&`, U+2028 and U+2029 take six bytes each."""
    return stored_size(_encode(value))


def stored_size(body: bytes) -> int:
    """As `stored_bytes`, of an encoded value."""
    size = len(body) + 5 * (body.count(b"<") + body.count(b">") + body.count(b"&"))
    if body.isascii():
        return size
    return size + 3 * (body.count(b"\xe2\x80\xa8") + body.count(b"\xe2\x80\xa9"))
