"""The kinds that kruise-probe reads and writes, in one place."""

from typing import Final

from kruise_probe.api import pods
from kruise_probe.api.core import EVENTS, LEASES, NODES
from kruise_probe.api.kinds import Resource, as_is
from kruise_probe.api.names import GROUP, VERSION
from kruise_probe.api.v1alpha1 import (
    NodePodProbeWire,
    PodProbeMarker,
    project_node_pod_probe,
)

__all__ = ["EVENTS", "LEASES", "MARKERS", "NODES", "NODE_POD_PROBES", "PODS"]

PODS: Final = Resource("", "v1", "pods", "Pod", wire=pods.PodWire, project=pods.project)
MARKERS: Final = Resource(
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
