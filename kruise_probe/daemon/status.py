"""The status of a NodePodProbe as a pure function of its spec and the results, within the size limit; and its results.

Invariants: pods and probes are in the order of the spec. Probes without a result and results without a probe are
omitted. No state is dropped to save bytes; messages are shortened instead.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (syncUpdateNodePodProbeStatus).
Differs: compared by value. Kruise compares a struct with a pointer, which always differs, and so writes every time.
States are read back at start, as a kubelet keeps the container states that it finds (KEP-4781). Container id and probe
hash decide whether a state still applies. Kruise's CRD prunes both; then the start time of the container decides.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.messages import MAX_MESSAGE_BYTES
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeKey
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import (
    MAX_OBJECT_BYTES,
    ContainerProbeState,
    NodePodProbeStatus,
    PodProbeStatus,
    ProbeState,
    stored_size,
)
from kruise_probe.daemon.desired import DesiredProbe

METADATA_BYTES: Final = 8 << 10
"""Bytes reserved for the metadata of the object."""

_STATES: Final = frozenset(each.value for each in ProbeState)

_encode = msgspec.json.Encoder().encode


class EncodedStatus(NamedTuple):
    """A status within the size limit, its JSON, and the number of shortened messages."""

    status: NodePodProbeStatus
    body: bytes
    shortened: int


def status_of(
    desired: Mapping[ProbeKey, DesiredProbe], results: Mapping[ProbeKey, ContainerProbeState]
) -> NodePodProbeStatus:
    """The newest results of the desired probes, in their order."""
    pods: dict[tuple[NamespacedName, str], list[ContainerProbeState]] = {}
    newest = ""
    for key, probe in desired.items():
        states = pods.setdefault((probe.pod, key.pod_uid), [])
        if (result := results.get(key)) is not None:
            states.append(result)
            newest = max(newest, result.last_probe_time or "")
    statuses = tuple(
        [
            PodProbeStatus(pod.name, pod.namespace, uid, tuple(states))
            for (pod, uid), states in pods.items()
            if states
        ]
    )
    return NodePodProbeStatus(statuses, len(pods), newest or None)


def encode(status: NodePodProbeStatus, spec_bytes: int) -> EncodedStatus:
    """`status`, with shorter messages if the object would exceed the size limit.

    The length that messages may have is halved until the object fits. So a result that changes by a few bytes rarely changes
    the messages of others. `spec_bytes` is the stored size of the spec.
    """
    room = MAX_OBJECT_BYTES - METADATA_BYTES - spec_bytes
    whole, body, shortened, limit = status, _encode(status), 0, MAX_MESSAGE_BYTES
    while stored_size(body) > room and limit:
        limit //= 2
        status, shortened = _with_messages(whole, limit)
        body = _encode(status)
    return EncodedStatus(status, body, shortened)


def _with_messages(status: NodePodProbeStatus, limit: int) -> tuple[NodePodProbeStatus, int]:
    """The status with at most `limit` bytes of each message, and the number of messages that were longer."""
    replace, shortened = msgspec.structs.replace, 0
    pods: list[PodProbeStatus] = []
    for pod in status.pod_probe_statuses or ():
        states: list[ContainerProbeState] = []
        for state in pod.probe_states or ():
            message = (state.message or "").encode()
            if len(message) > limit:
                shortened += 1
                text = message[:limit].decode(errors="ignore").rstrip()
                state = replace(state, message=text or None)
            states.append(state)
        pods.append(replace(pod, probe_states=tuple(states)))
    return replace(status, pod_probe_statuses=tuple(pods)), shortened


def update_of(status: bytes, name: str, resource_version: str) -> bytes:
    """Update that sets `status` if the resource version is current. An update of the subresource needs no spec."""
    metadata = {"name": name, "resourceVersion": resource_version}
    return NODE_POD_PROBES.encode(metadata=metadata, status=msgspec.Raw(status))


def patch_of(status: bytes) -> bytes:
    """JSON merge patch that sets `status`, without a resource version."""
    return b'{"status":%b}' % status


def differs(
    wanted: NodePodProbeStatus, stored: NodePodProbeStatus | None, *, probe_times: bool = False
) -> bool:
    """Whether `wanted` differs from the stored status; the order is ignored, and `lastProbeTime` without `probe_times`.

    Kruise's daemon writes in no fixed order. Kruise's CRD prunes container id and probe hash, so they are compared only
    if both are set.
    """
    mine, theirs = _by_probe(wanted), _by_probe(stored)
    return mine.keys() != theirs.keys() or any(
        _state_differs(state, theirs[key], probe_times)
        for key, state in mine.items()
        if state is not theirs[key]
    )


def _by_probe(
    status: NodePodProbeStatus | None,
) -> dict[tuple[str, str, str, str], ContainerProbeState]:
    states: dict[tuple[str, str, str, str], ContainerProbeState] = {}
    for pod in (status and status.pod_probe_statuses) or ():
        for state in pod.probe_states or ():
            states[pod.uid, pod.namespace, pod.name, state.name] = state
    return states


def _state_differs(
    mine: ContainerProbeState, theirs: ContainerProbeState, probe_times: bool
) -> bool:
    transition = mine.last_transition_time
    return (
        mine.state != theirs.state
        or (mine.message or "") != (theirs.message or "")
        or (
            bool(mine.container_id and theirs.container_id)
            and mine.container_id != theirs.container_id
        )
        or (bool(mine.probe_hash and theirs.probe_hash) and mine.probe_hash != theirs.probe_hash)
        or (
            transition is not None
            and parse_time(transition) != parse_time(theirs.last_transition_time)
        )
        or (probe_times and mine.last_probe_time != theirs.last_probe_time)
    )


def recorded_in(
    status: NodePodProbeStatus | None,
) -> dict[tuple[str, str], ContainerProbeState]:
    """The known states of `status`, by pod uid and probe name; of two with the same name the first counts."""
    recorded: dict[tuple[str, str], ContainerProbeState] = {}
    for pod in (status and status.pod_probe_statuses) or ():
        for state in pod.probe_states or ():
            if state.state in _STATES:
                recorded.setdefault((pod.uid, state.name), state)
    return recorded


def is_of_container(
    result: ContainerProbeState, container_id: str, started_at: float | None
) -> bool:
    """Whether `result` is of this container, which started at `started_at` (seconds since the epoch).

    Wire times have whole seconds: a probe in the same second as the start counts as after it.
    """
    if result.container_id:
        return result.container_id == container_id
    probed_at = parse_time(result.last_probe_time)
    return bool(started_at and probed_at and int(started_at) <= probed_at.timestamp())
