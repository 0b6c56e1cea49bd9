"""The serverless protocol: a provider runs the probes and writes conditions; the manager applies the policies.

Source: Kruise pkg/controller/podprobemarker (markServerlessPod).
Differs: both paths share one policy engine, so keys of the opposite state are removed here too.
"""

from typing import Final

from kruise_probe.api.core import Node
from kruise_probe.api.labels import MAX_ANNOTATION_BYTES, annotation_bytes
from kruise_probe.api.names import (
    SERVERLESS_MARKERS_ANNOTATION,
    VIRTUAL_NODE_LABEL,
    VIRTUAL_NODE_VALUE,
)
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.pods.claims import Claims
from kruise_probe.controllers.pods.marking import States

_STATE_OF_STATUS: Final = {"True": ProbeState.SUCCEEDED, "False": ProbeState.FAILED}


def is_virtual(node: Node | None) -> bool:
    """Whether a node is virtual: it represents a serverless provider and has no daemon and no NodePodProbe."""
    labels = node.metadata.labels if node is not None else None
    return labels is not None and labels.get(VIRTUAL_NODE_LABEL) == VIRTUAL_NODE_VALUE


def has_no_place_in_annotations(pod: Pod, marker: CompiledMarker) -> bool:
    """Whether the webhook left out the marker, because the pod's annotations would have exceeded their limit."""
    listed = pod.annotations.get(SERVERLESS_MARKERS_ANNOTATION, "").split(",")
    if marker.key.name in listed or not marker.condition_types:
        return False
    return annotation_bytes(pod.annotations) + marker.entry_bytes >= MAX_ANNOTATION_BYTES


def states_of_conditions(pod: Pod, claims: Claims) -> States:
    """Convert the conditions that the provider wrote into probe states."""
    states: dict[str, ContainerProbeState] = {}
    for claim in claims.claims:
        condition = pod.condition(claim.condition_type) if claim.condition_type else None
        if condition is not None:
            states[claim.name] = ContainerProbeState(
                name=claim.name,
                state=_STATE_OF_STATUS.get(condition.status, ProbeState.UNKNOWN),
                last_probe_time=condition.last_probe_time,
                last_transition_time=condition.last_transition_time,
                message=condition.message,
            )
    return states
