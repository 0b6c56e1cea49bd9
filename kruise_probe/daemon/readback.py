"""Restores results from the status that the previous daemon wrote: pure functions.

Source: KEP-4781 (a kubelet that restarts keeps the container states it finds).
Differs: states come from the NodePodProbe. Container id and probe hash decide whether a state still applies.
Kruise's CRD prunes both; then the start time of the container decides.
"""

from enum import Enum
from typing import Final

from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, NodePodProbeStatus, ProbeState

_STATES: Final = frozenset(each.value for each in ProbeState)

Recorded = dict[tuple[str, str], ContainerProbeState]
"""Known states in the status, by pod uid and probe name."""


class ReadbackMatch(Enum):
    """How far a recorded state applies to the running container and its probe."""

    SAME = "same container, same probe"
    EDITED = "same container, another probe"
    OTHER = "another container"


def recorded_in(status: NodePodProbeStatus | None) -> Recorded:
    """All known states of `status`; of two with the same name the first counts."""
    recorded: Recorded = {}
    for pod in (status and status.pod_probe_statuses) or ():
        for state in pod.probe_states or ():
            if state.state in _STATES:
                recorded.setdefault((pod.uid, state.name), state)
    return recorded


def readback_match(
    result: ContainerProbeState, *, container_id: str, started_at: float | None, probe_hash: str
) -> ReadbackMatch:
    """Compare `result` with the running container (`started_at`: seconds since the epoch) and its probe.

    Wire times have whole seconds: a probe in the same second as the start counts as after it.
    """
    if result.container_id:
        same = result.container_id == container_id
    else:
        probed_at = parse_time(result.last_probe_time)
        same = bool(started_at and probed_at and int(started_at) <= probed_at.timestamp())
    if not same:
        return ReadbackMatch.OTHER
    if result.probe_hash and result.probe_hash != probe_hash:
        return ReadbackMatch.EDITED
    return ReadbackMatch.SAME
