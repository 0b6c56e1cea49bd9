"""The status of a NodePodProbe as a pure function of its spec and the results, within the size limit; and its results.

Invariants: pods and probes are in the order of the spec. Probes without a result and results without a probe are
omitted. No state is dropped to save bytes; messages are shortened instead, and say so: those of the namespace with the
most bytes first, then of its pods, then of their probes.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (syncUpdateNodePodProbeStatus).
Differs: compared by value. Kruise compares a struct with a pointer, which always differs, and so writes every time.
States are read back at start, as a kubelet keeps the container states that it finds (KEP-4781). The start time of the
container and the hash of the probe decide whether a state still applies. Kruise's CRD prunes the hash.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeKey
from kruise_probe.api.node_pod_probe import (
    MAX_OBJECT_BYTES,
    ContainerProbeState,
    NodePodProbeStatus,
    PodProbeStatus,
    stored_bytes,
    stored_size,
)
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.shares import divided, equal_share
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import CRITERIA, ProbeState
from kruise_probe.daemon.desired import DesiredProbe

METADATA_BYTES: Final = 8 << 10
"""Bytes reserved for the metadata of the object."""

SHORTENED_BYTES: Final = len(',"messageShortened":true')

_STATES: Final = frozenset(state.value for state in ProbeState)

_encode = msgspec.json.Encoder().encode

_ProbeOfPod = tuple[str, str, str, str]
"""Uid, namespace and name of the pod, and name of the probe."""


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
        identity = (probe.pod, key.pod_uid)
        states = pods.setdefault(identity, [])
        result = results.get(key)
        if result is None:
            continue
        states.append(result)
        probed_at = result.last_probe_time
        if probed_at is not None:
            newest = max(newest, probed_at)
    statuses: list[PodProbeStatus] = []
    for (pod, uid), states in pods.items():
        if states:
            status = PodProbeStatus(pod.name, pod.namespace, uid, tuple(states))
            statuses.append(status)
    known: tuple[str, ...] = ()
    has_criteria = any(probe.entry.criteria for probe in desired.values())
    if has_criteria:
        known = tuple(CRITERIA)
    probed_at = newest or None
    return NodePodProbeStatus(tuple(statuses), len(pods), probed_at, known)


def encode(status: NodePodProbeStatus, spec_bytes: int) -> EncodedStatus:
    """`status`, with shorter messages if the object would exceed the size limit. `spec_bytes` is the stored size of the spec."""
    room = MAX_OBJECT_BYTES - METADATA_BYTES - spec_bytes
    body = _encode(status)
    size = stored_size(body)
    excess = size - room
    if excess <= 0:
        return EncodedStatus(status, body, 0)
    shorter, shortened = _with_less(status, excess)
    body = _encode(shorter)
    return EncodedStatus(shorter, body, shortened)


def _with_less(status: NodePodProbeStatus, excess: int) -> tuple[NodePodProbeStatus, int]:
    """The status with `excess` bytes less of messages, and how many of them it shortens.

    Messages have equal shares of the bytes: by namespace, then by pod, then by probe.
    """
    pods = status.pod_probe_statuses
    sizes = [list(map(_message_bytes, pod.probe_states)) for pod in pods]
    limits = _limits(pods, sizes, excess)
    shortened = 0
    shorter: list[PodProbeStatus] = []
    for pod, of_pod, limit in zip(pods, sizes, limits, strict=True):
        states = list(pod.probe_states)
        for index, size in enumerate(of_pod):
            if size > limit:
                states[index] = _shortened(states[index], limit)
                shortened += 1
        with_less = msgspec.structs.replace(pod, probe_states=tuple(states))
        shorter.append(with_less)
    status = msgspec.structs.replace(status, pod_probe_statuses=tuple(shorter))
    return status, shortened


def _limits(
    pods: Sequence[PodProbeStatus], sizes: Sequence[Sequence[int]], excess: int
) -> Sequence[int]:
    """By pod, the bytes that each of its messages may have, so that all together have `excess` bytes less.

    `sizes` are those of the messages, by pod.
    """
    of_namespace: Counter[str] = Counter()
    of_pods = defaultdict[str, dict[int, int]](dict)
    for index, pod in enumerate(pods):
        size = sum(sizes[index])
        of_namespace[pod.namespace] += size
        of_pods[pod.namespace][index] = size
    room = max(of_namespace.total() - excess, 0)
    limits = [0] * len(pods)
    for namespace, namespace_room in divided(of_namespace, room).items():
        rooms = divided(of_pods[namespace], namespace_room)
        for index, pod_room in rooms.items():
            limits[index] = equal_share(sizes[index], pod_room)
    return limits


def _message_bytes(state: ContainerProbeState) -> int:
    """What shortening can save: the stored size of the message. A short one needs less than the field that says so."""
    size = _text_bytes(state.message or "")
    if size <= SHORTENED_BYTES:
        return 0
    return size


def _text_bytes(text: str) -> int:
    """The stored size of a text, without its quotes."""
    return stored_bytes(text) - 2


def _shortened(state: ContainerProbeState, limit: int) -> ContainerProbeState:
    """The state with at most `limit` bytes for the message and the field that says so.

    The message gets a power of two. So a result that changes by a few bytes rarely changes the messages of others.
    """
    room = limit - SHORTENED_BYTES
    text = ""
    if room > 0:
        exponent = room.bit_length() - 1
        text = _head(state.message or "", 1 << exponent)
    message = text.rstrip() or None
    return msgspec.structs.replace(state, message=message, message_shortened=True)


def _head(message: str, size: int) -> str:
    """The beginning of `message`, in at most `size` stored bytes."""
    longest = min(len(message), size)
    ends = range(1, longest + 1)
    fitting = bisect_right(ends, size, key=lambda end: _text_bytes(message[:end]))
    return message[:fitting]


def update_of(status: bytes, name: str, resource_version: str) -> bytes:
    """Update that sets `status` if the resource version is current. An update of the subresource needs no spec."""
    metadata = {"name": name, "resourceVersion": resource_version}
    encoded = msgspec.Raw(status)
    return NODE_POD_PROBES.encode(metadata=metadata, status=encoded)


def patch_of(status: bytes) -> bytes:
    """JSON merge patch that sets `status`, without a resource version."""
    return b'{"status":%b}' % status


def differs(
    wanted: NodePodProbeStatus, stored: NodePodProbeStatus | None, *, probe_times: bool = False
) -> bool:
    """Whether `wanted` differs from the stored status; the order is ignored, and `lastProbeTime` without `probe_times`.

    Kruise's daemon writes in no fixed order. Kruise's CRD prunes the probe hash, so hashes are compared only if both are
    set; that a message is shortened only if the stored state has that.
    """
    mine = _by_probe(wanted)
    theirs = _by_probe(stored)
    if mine.keys() != theirs.keys():
        return True
    for key, state in mine.items():
        other = theirs[key]
        if state is not other and _state_differs(state, other, probe_times):
            return True
    return False


def _pods(status: NodePodProbeStatus | None) -> Sequence[PodProbeStatus]:
    if status is None:
        return ()
    return status.pod_probe_statuses


def _by_probe(status: NodePodProbeStatus | None) -> dict[_ProbeOfPod, ContainerProbeState]:
    states: dict[_ProbeOfPod, ContainerProbeState] = {}
    for pod in _pods(status):
        for state in pod.probe_states:
            key = (pod.uid, pod.namespace, pod.name, state.name)
            states[key] = state
    return states


def _state_differs(
    mine: ContainerProbeState, theirs: ContainerProbeState, probe_times: bool
) -> bool:
    if mine.state != theirs.state:
        return True
    if (mine.message or "") != (theirs.message or ""):
        return True
    if theirs.message_shortened and not mine.message_shortened:
        return True
    stored_hash = theirs.probe_hash
    if stored_hash and mine.probe_hash and mine.probe_hash != stored_hash:
        return True
    if stored_hash and mine.epoch != theirs.epoch:  # a CRD that keeps one keeps the other
        return True
    transition = parse_time(mine.last_transition_time)
    if transition is not None:
        stored_transition = parse_time(theirs.last_transition_time)
        if transition != stored_transition:
            return True
    return probe_times and mine.last_probe_time != theirs.last_probe_time


def recorded_in(
    status: NodePodProbeStatus | None,
) -> dict[tuple[str, str], ContainerProbeState]:
    """The known states of `status`, by pod uid and probe name; of two with the same name the first counts."""
    recorded: dict[tuple[str, str], ContainerProbeState] = {}
    for pod in _pods(status):
        for state in pod.probe_states:
            if state.state not in _STATES:
                continue
            key = (pod.uid, state.name)
            recorded.setdefault(key, state)
    return recorded


def is_of_container(
    result: ContainerProbeState,
    started_at: float | None,
    now: float,
    *,
    in_delay: bool,
) -> bool:
    """Whether `result` is of the container that started at `started_at` (as `now`, in seconds since the epoch).

    Wire times have whole seconds: a probe in the same second as the start counts as after it, unless the container has not been
    probed, because it is in its initial delay. A container that started in the future is older than the last step of the clock.
    """
    probed_at = parse_time(result.last_probe_time)
    if not started_at or probed_at is None:
        return False
    if started_at > now:
        return True
    started_second = int(started_at)
    probed_second = probed_at.timestamp()
    if in_delay:
        return started_second < probed_second
    return started_second <= probed_second
