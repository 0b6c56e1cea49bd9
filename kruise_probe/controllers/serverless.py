"""The serverless protocol: a provider probes by itself and reports conditions; we apply the policies.

Source: Kruise pkg/controller/podprobemarker (markServerlessPod).
Differs: one policy engine for both paths, so keys of the opposite state are removed here too.
"""

from typing import Final

from kruise_probe.api.core import Node
from kruise_probe.api.names import VIRTUAL_NODE_LABEL, VIRTUAL_NODE_VALUE
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.pods.claims import Claims
from kruise_probe.controllers.pods.marking import States

_STATE_OF_STATUS: Final = {"True": ProbeState.SUCCEEDED, "False": ProbeState.FAILED}


def is_virtual(node: Node | None) -> bool:
    """Whether a node stands for a serverless provider: it has no daemon, hence no NodePodProbe."""
    labels = node.metadata.labels if node is not None else None
    return labels is not None and labels.get(VIRTUAL_NODE_LABEL) == VIRTUAL_NODE_VALUE


def states_of(pod: Pod, claims: Claims) -> States:
    """What the provider reported, as if a node had: by the conditions that probes name."""
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
