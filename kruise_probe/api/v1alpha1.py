"""PodProbeMarker and NodePodProbe, wire-compatible with Kruise's Go types.

Source: openkruise/kruise apis/apps/v1alpha1/{pod_probe_marker,node_pod_probe}_types.go.
Differs: our CRDs add status fields. Kruise's CRDs prune them, and everything still works.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from kruise_probe.api.core import Probe
from kruise_probe.api.meta import ApiObject, LabelSelector


class ProbeState(StrEnum):
    """State of a probe; Unknown means that there is no result."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class _Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Common options of the structs below. `gc=False` is safe: they are trees without cycles."""


class MarkerPolicy(_Wire, frozen=True):
    """What to write to the pod in `state`; keys that only the other state's policy names are removed."""

    state: str
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class PodContainerProbe(_Wire, frozen=True):
    name: str
    container_name: str
    probe: Probe
    marker_policy: tuple[MarkerPolicy, ...] | None = None
    pod_condition_type: str | None = None


class PodProbeMarkerSpec(_Wire, frozen=True):
    selector: LabelSelector | None = None
    probes: tuple[PodContainerProbe, ...] | None = None


class Condition(_Wire, frozen=True):
    """metav1.Condition, in a marker's status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


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


class ContainerProbe(_Wire, frozen=True):
    """A probe of a container; `name` is `<marker>#<probe>`, see `keys.ProbeName`."""

    name: str
    container_name: str
    probe: Probe


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

    `container_id` and `probe_hash` are our additions (Kruise's CRD prunes them). With them a restarted daemon checks
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
