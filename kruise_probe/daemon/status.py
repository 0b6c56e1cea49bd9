"""The status of a NodePodProbe as a pure function of its spec and the results, within the size limit.

Invariants: pods and probes are in the order of the spec. Probes without a result and results without a probe are
omitted. No state is dropped to save bytes; messages are shortened instead.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (syncUpdateNodePodProbeStatus).
Differs: compared by value. Kruise compares a struct with a pointer, which always differs, and so writes every time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

import msgspec

from kruise_probe.api.keys import ProbeKey, ProbeName
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.times import format_time, parse_time
from kruise_probe.api.v1alpha1 import (
    MAX_OBJECT_BYTES,
    ContainerProbeState,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbe,
    PodProbeStatus,
    stored_bytes,
)
from kruise_probe.daemon.results import PublishedResult

METADATA_BYTES: Final = 8 << 10
"""Bytes reserved for the metadata of the object."""

STEPS: Final = 64
"""Messages are cut to a multiple of 1/64 of their length.

So a result that changes by a few bytes does not change all other messages."""

_PADDING: Final = (
    *((each, b"\0" * 5) for each in (b"<", b">", b"&")),
    *((each.encode(), b"\0" * 3) for each in "\u2028\u2029"),
    *((each, b"\0") for each in (b'"', b"\\", b"\n")),
)
"""Characters of a message that take more bytes where they are stored, and how many. A NUL of a message that is cut is dropped."""

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class Fitted(NamedTuple):
    """A status within the size limit, and the number of shortened messages."""

    status: NodePodProbeStatus
    shortened: int


def status_of(
    spec: NodePodProbeSpec, results: Mapping[ProbeKey, PublishedResult]
) -> NodePodProbeStatus:
    """The newest results of the probes in `spec`, in its order."""
    seen: set[ProbeKey] = set()
    pods = [
        PodProbeStatus(pod.name, pod.namespace, pod.uid, states)
        for pod in spec.pod_probes or ()
        if (states := tuple(_states(pod, results, seen)))
    ]
    return NodePodProbeStatus(tuple(pods))


def _states(
    pod: PodProbe, results: Mapping[ProbeKey, PublishedResult], seen: set[ProbeKey]
) -> Iterator[ContainerProbeState]:
    for probe in pod.probes or ():
        key = ProbeKey(pod.uid, probe.container_name, ProbeName.parse(probe.name))
        result = results.get(key)
        if result is None or key in seen:
            continue
        seen.add(key)
        yield ContainerProbeState(
            probe.name,
            result.state,
            _stamp(result.last_probe_at),
            _stamp(result.last_transition_at),
            result.message or None,
            result.container_id or None,
            result.probe_hash or None,
        )


def _stamp(at: datetime | None) -> str | None:
    return None if at is None else format_time(at)


def fit(status: NodePodProbeStatus, spec_bytes: int) -> Fitted:
    """`status`, with messages shortened in proportion if the object would exceed the size limit.

    `spec_bytes` is the stored size of the spec.
    """
    room = MAX_OBJECT_BYTES - METADATA_BYTES - spec_bytes
    size = stored_bytes(status)
    if size <= room:
        return Fitted(status, 0)
    messages = sum(_message_bytes(state) for state in _all_states(status))
    step = max(STEPS * (room - (size - messages)) // max(messages, 1), 0)
    shorter = _shortened(status, step)
    count = sum(
        before.message != after.message
        for before, after in zip(_all_states(status), _all_states(shorter), strict=True)
    )
    return Fitted(shorter, count)


def _all_states(status: NodePodProbeStatus) -> Iterator[ContainerProbeState]:
    for pod in status.pod_probe_statuses or ():
        yield from pod.probe_states or ()


def _message_bytes(state: ContainerProbeState) -> int:
    return stored_bytes(state.message) - 2 if state.message else 0


def _shortened(status: NodePodProbeStatus, step: int) -> NodePodProbeStatus:
    return NodePodProbeStatus(
        tuple(
            msgspec.structs.replace(
                pod,
                probe_states=tuple(_cut(state, step) for state in pod.probe_states or ()),
            )
            for pod in status.pod_probe_statuses or ()
        )
    )


def _cut(state: ContainerProbeState, step: int) -> ContainerProbeState:
    """Cut the message to `step` of `STEPS` of its stored size."""
    room = _message_bytes(state) * step // STEPS
    text = (state.message or "").encode()[:room]
    for character, padding in _PADDING:
        text = text.replace(character, padding + character)
    message = text[:room].replace(b"\0", b"").decode(errors="ignore")
    return msgspec.structs.replace(state, message=message.rstrip() or None)


def update_of(status: NodePodProbeStatus, name: str, resource_version: str) -> bytes:
    """Update that sets `status` if the resource version is current. An update of the subresource needs no spec."""
    return _encoder.encode(
        {
            "apiVersion": NODE_POD_PROBES.api_version,
            "kind": NODE_POD_PROBES.kind,
            "metadata": {"name": name, "resourceVersion": resource_version},
            "status": status,
        }
    )


def patch_of(status: NodePodProbeStatus) -> bytes:
    """JSON merge patch that sets `status`, without a resource version."""
    return b'{"status":%b}' % _encoder.encode(status)


def differs(wanted: NodePodProbeStatus, stored: NodePodProbeStatus | None) -> bool:
    """Whether `wanted` differs from the stored status; the order and `lastProbeTime` are ignored.

    Kruise's daemon writes in no fixed order. Kruise's CRD prunes container id and probe hash, so they are compared only
    if both are set.
    """
    mine = wanted.pod_probe_statuses or ()
    theirs = (stored and stored.pod_probe_statuses) or ()
    if len(mine) != len(theirs):
        return True
    return any(map(_pod_differs, mine, _in_order_of(mine, theirs, lambda pod: pod.uid)))


def _in_order_of(mine: Sequence[T], theirs: Sequence[T], key: Callable[[T], str]) -> Iterable[T]:
    """`theirs` in the order of `mine`, matched by key."""
    if all(key(one) == key(other) for one, other in zip(mine, theirs, strict=True)):
        return theirs
    by_key = {key(each): each for each in theirs}
    return [by_key.get(key(one), other) for one, other in zip(mine, theirs, strict=True)]


def _pod_differs(mine: PodProbeStatus, theirs: PodProbeStatus) -> bool:
    my_states, their_states = mine.probe_states or (), theirs.probe_states or ()
    return (
        mine.uid != theirs.uid
        or mine.name != theirs.name
        or mine.namespace != theirs.namespace
        or len(my_states) != len(their_states)
        or any(
            map(
                _state_differs,
                my_states,
                _in_order_of(my_states, their_states, lambda state: state.name),
            )
        )
    )


def _state_differs(mine: ContainerProbeState, theirs: ContainerProbeState) -> bool:
    return (
        mine.name != theirs.name
        or mine.state != theirs.state
        or (mine.message or "") != (theirs.message or "")
        or _both_set_and_differ(mine.container_id, theirs.container_id)
        or _both_set_and_differ(mine.probe_hash, theirs.probe_hash)
        or _transition_differs(mine.last_transition_time, theirs.last_transition_time)
    )


def _both_set_and_differ(mine: str | None, theirs: str | None) -> bool:
    return bool(mine and theirs) and mine != theirs


def _transition_differs(mine: str | None, theirs: str | None) -> bool:
    return mine is not None and mine != theirs and parse_time(mine) != parse_time(theirs)


def probe_times_differ(wanted: NodePodProbeStatus, stored: NodePodProbeStatus | None) -> bool:
    """Whether a probe time differs from the stored one. Only for statuses that do not differ otherwise."""
    return _probe_times(wanted) != _probe_times(stored or NodePodProbeStatus())


def _probe_times(status: NodePodProbeStatus) -> dict[tuple[str, str], str | None]:
    return {
        (pod.uid, state.name): state.last_probe_time
        for pod in status.pod_probe_statuses or ()
        for state in pod.probe_states or ()
    }


def oldest_probe_at(status: NodePodProbeStatus | None) -> datetime | None:
    """The oldest `lastProbeTime` in `status`."""
    times = map(
        parse_time, (s.last_probe_time for s in _all_states(status or NodePodProbeStatus()))
    )
    return min((at for at in times if at is not None), default=None)
