"""Divides the bytes of one NodePodProbe between namespaces, and those of a namespace between its pods. Pure functions.

The API server does not store an object over 1 MiB, so a spec that is too large would stop all probing on its node.
If not everything fits, shares are max-min fair. A tenant that needs less than an equal part gets all it needs, and
the others divide the rest equally. A tenant within its share never displaces probes of another tenant. Within a
share, running probes come before new ones, then older markers before newer ones. Unused bytes are given out in the
same order, as long as whole groups fit.

A group is all probes of one marker for one pod. It is kept or left out as a whole.

Groups are indivisible, so a tenant may get less than its share, by less than one group.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.shares import equal_share
from kruise_probe.api.v1alpha1 import MAX_OBJECT_BYTES, ContainerProbe, PodProbe, stored_bytes

RESERVED_BYTES: Final = 32 * 1024
"""Reserved for metadata, including managedFields."""
STATE_BYTES: Final = 320
"""Size in the status of one probe state without its name: times, container id, hash, and a short message."""
POD_STATUS_BYTES: Final = 160
"""Size in the status of one pod without its names: uid and punctuation."""
SETTLING_ROUNDS: Final = 4
"""How often the division is repeated: dropped groups may make room for smaller ones of the same share."""

NoRoom = Mapping[str, frozenset[str]]
"""By pod uid, the names of the markers whose probes are left out."""


class FittedSpec(NamedTuple):
    """The entries of the spec, and what is left out.

    Attributes:
        probes_left_out: the number of probes in `no_room`.
    """

    entries: tuple[PodProbe, ...]
    no_room: NoRoom
    probes_left_out: int


class Group(NamedTuple):
    """All probes of one marker for one pod.

    Attributes:
        order: of the marker, older ones first.
        running: whether any of the probes is in the current spec.
        size_bytes: in spec and status, without the bytes of the pod itself.
    """

    namespace: str
    uid: str
    marker: str
    order: object
    running: bool
    size_bytes: int


def object_bytes(entries: Sequence[PodProbe]) -> int:
    """The minimum size of the NodePodProbe, including its status."""
    # Pods of one template share their probes. Encoded together, those of a node may take 400 MB.
    sizes: dict[int, int] = {}
    probes = sum(_probe_bytes(probe, sizes) for each in entries for probe in each.probes)
    return RESERVED_BYTES + sum(_pod_bytes(entries).values()) + probes


def fit(
    entries: Sequence[PodProbe],
    current: Sequence[PodProbe],
    ranks: Mapping[NamespacedName, object],
    limit_bytes: int = MAX_OBJECT_BYTES,
) -> FittedSpec:
    """Return all entries if they fit, else as many as fit.

    `ranks` orders the markers (`CompiledMarker.order`). Probes of markers that are not in it always stay, and reduce
    the bytes to divide.
    """
    if object_bytes(entries) <= limit_bytes:
        return FittedSpec(tuple(entries), {}, 0)
    written = {(entry.uid, probe.name) for entry in current for probe in entry.probes}
    sizes: dict[int, int] = {}
    pod_bytes = _pod_bytes(entries)
    groups: list[Group] = []
    left_bytes = limit_bytes - RESERVED_BYTES
    for entry in entries:
        by_marker: dict[str, list[ContainerProbe]] = defaultdict(list)
        for probe in entry.probes:
            by_marker[_marker_of(probe)].append(probe)
        for marker, probes in by_marker.items():
            size = sum(_probe_bytes(probe, sizes) for probe in probes)
            order = ranks.get(NamespacedName(entry.namespace, marker))
            if order is None:
                left_bytes -= size + pod_bytes.get(entry.uid, 0)
                continue
            running = any((entry.uid, probe.name) in written for probe in probes)
            groups.append(Group(entry.namespace, entry.uid, marker, order, running, size))
    kept = divide(groups, pod_bytes, left_bytes)
    by_pod: dict[str, list[str]] = defaultdict(list)
    for group in groups:
        if (group.uid, group.marker) not in kept:
            by_pod[group.uid].append(group.marker)
    no_room = {uid: frozenset(markers) for uid, markers in by_pod.items()}
    left = _without(entries, no_room)
    before, after = (sum(len(each.probes) for each in some) for some in (entries, left))
    return FittedSpec(left, no_room, before - after)


def divide(
    groups: Iterable[Group], pod_bytes: Mapping[str, int], budget_bytes: int
) -> set[tuple[str, str]]:
    """The groups that are kept, as (uid, marker): at most `budget_bytes` in total.

    `pod_bytes` is the size of each pod (by uid) without its groups. It counts once the pod has a group.
    """
    groups = sorted(groups, key=lambda each: (each.order, each.uid))
    running = {(each.uid, each.marker) for each in groups if each.running}
    for _ in range(SETTLING_ROUNDS):
        kept = _divide(groups, running, pod_bytes, max(budget_bytes, 0))
        if kept == running:
            break
        running = kept
    return running


def _divide(
    groups: Sequence[Group],
    running: Set[tuple[str, str]],
    pod_bytes: Mapping[str, int],
    budget_bytes: int,
) -> set[tuple[str, str]]:
    namespaces: dict[str, dict[str, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for each in groups:
        namespaces[each.namespace][each.uid].append(each)
    pods = {
        uid: pod_bytes[uid] + sum(each.size_bytes for each in of_pod)
        for by_pod in namespaces.values()
        for uid, of_pod in by_pod.items()
    }
    wanted = {name: sum(pods[uid] for uid in by_pod) for name, by_pod in namespaces.items()}
    share = equal_share(wanted.values(), budget_bytes)
    allocation = _Allocation(pod_bytes, running)
    for name, by_pod in namespaces.items():
        end = allocation.total_bytes + min(wanted[name], share)
        pod_share = equal_share((pods[uid] for uid in by_pod), min(wanted[name], share))
        for of_pod in by_pod.values():
            allocation.take(
                sorted(of_pod, key=allocation.is_new), allocation.total_bytes + pod_share
            )
        allocation.take_fairly(by_pod.values(), end)
    every_pod = [of_pod for by_pod in namespaces.values() for of_pod in by_pod.values()]
    allocation.take_fairly(every_pod, budget_bytes)
    return allocation.kept


class _Allocation:
    """The groups that are kept, and their bytes."""

    def __init__(self, pod_bytes: Mapping[str, int], running: Set[tuple[str, str]]) -> None:
        self.kept: set[tuple[str, str]] = set()
        self.total_bytes = 0
        self._pod_bytes = pod_bytes
        self._running = running
        self._by_pod: dict[str, int] = {}

    def take(self, groups: Iterable[Group], up_to_bytes: int) -> None:
        """Add each group that keeps the total within `up_to_bytes`."""
        for each in groups:
            before = self._by_pod.get(each.uid, 0)
            size = each.size_bytes if before else each.size_bytes + self._pod_bytes[each.uid]
            if (each.uid, each.marker) not in self.kept and self.total_bytes + size <= up_to_bytes:
                self.kept.add((each.uid, each.marker))
                self.total_bytes += size
                self._by_pod[each.uid] = before + size

    def take_fairly(self, by_pod: Iterable[Sequence[Group]], up_to_bytes: int) -> None:
        """Add groups that are still left out: running ones first, then those of pods with the fewest bytes."""
        out = [
            [each for each in of_pod if (each.uid, each.marker) not in self.kept]
            for of_pod in by_pod
        ]
        room = up_to_bytes - self.total_bytes
        if not any(each.size_bytes <= room for of_pod in out for each in of_pod):
            return  # A full node is not sorted again at every plan.
        starts: list[tuple[bool, int, object, str, Group]] = []
        for of_pod in out:
            start = self._by_pod.get(of_pod[0].uid, 0) if of_pod else 0
            for each in sorted(of_pod, key=self.is_new):
                starts.append((self.is_new(each), start, each.order, each.uid, each))
                start += each.size_bytes
        starts.sort(key=lambda each: each[:-1])
        self.take((each[-1] for each in starts), up_to_bytes)

    def is_new(self, group: Group) -> bool:
        """Whether the group is not running yet."""
        return (group.uid, group.marker) not in self._running


def _marker_of(probe: ContainerProbe) -> str:
    return ProbeName.parse(probe.name).marker


def _without(entries: Sequence[PodProbe], no_room: NoRoom) -> tuple[PodProbe, ...]:
    left: list[PodProbe] = []
    for entry in entries:
        dropped = no_room.get(entry.uid)
        if dropped is None:
            left.append(entry)
            continue
        probes = tuple(each for each in entry.probes if _marker_of(each) not in dropped)
        if probes:
            left.append(msgspec.structs.replace(entry, probes=probes))
    return tuple(left)


def _pod_bytes(entries: Sequence[PodProbe]) -> dict[str, int]:
    return {
        each.uid: POD_STATUS_BYTES
        + len(each.name)
        + len(each.namespace)
        + stored_bytes(msgspec.structs.replace(each, probes=()))
        + 1
        for each in entries
    }


def _probe_bytes(probe: ContainerProbe, sizes: dict[int, int]) -> int:
    """Size in spec and status. `sizes` is a cache by identity, as pods of one template share their probes."""
    size = sizes.get(id(probe))
    if size is None:
        size = sizes[id(probe)] = stored_bytes(probe) + 1 + STATE_BYTES + stored_bytes(probe.name)
    return size
