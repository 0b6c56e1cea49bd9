"""Divides the bytes of one NodePodProbe between namespaces, and those of a namespace between its pods. Pure functions.

The API server does not store an object over 1 MiB, so a spec that is too large would stop all probing on its node.
If not everything fits, shares are max-min fair. A tenant that needs less than an equal part gets all it needs, and
the others divide the rest equally. A tenant within its share never displaces probes of another tenant. Within a
share, running probes come before new ones, then older markers before newer ones. Unused bytes are given out in the
same order, as long as whole groups fit.

A group is all probes of one marker for one pod. It is kept or left out as a whole. The work is linear in the pods and in the
groups that are kept, whatever number of groups is left out, except for the list of these.

Groups are indivisible, so a tenant may get less than its share, by less than one group.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.names import ProbeName
from kruise_probe.api.shares import equal_share
from kruise_probe.api.v1alpha1 import MAX_OBJECT_BYTES, ContainerProbe, PodProbe, stored_bytes
from kruise_probe.workqueue.slices import PODS_PER_STEP, Steps

RESERVED_BYTES: Final = 32 * 1024
"""Reserved for metadata, including managedFields."""
STATE_BYTES: Final = 320
"""Size in the status of one probe state without its name: times, container id, hash, and a short message."""
POD_STATUS_BYTES: Final = 160
"""Size in the status of one pod without its names: uid and punctuation."""
SETTLING_ROUNDS: Final = 4
"""How often the division is repeated: dropped groups may make room for smaller ones of the same share."""
GROUPS_PER_STEP: Final = 1024

NoRoom = Mapping[str, frozenset[str]]
"""By pod uid, the names of the markers whose probes are left out."""
Kept = dict[str, set[str]]
"""By pod uid, the names of the markers whose probes are kept. Pods without any are absent."""

_EMPTY_POD_BYTES: Final = len('{"name":"","namespace":"","uid":"","IP":"","probes":[]},')


class Group(NamedTuple):
    """All probes of one marker for one pod: one object for all pods of a template.

    Attributes:
        order: of the marker, older ones first.
        size_bytes: in spec and status, without the bytes of the pod itself.
    """

    marker: str
    order: object
    probes: tuple[ContainerProbe, ...]
    size_bytes: int


class PodProbes(NamedTuple):
    """The probes of a pod: one object for all pods of a template.

    Attributes:
        groups: the oldest marker first.
        probes: of all groups.
        size_bytes: of all groups.
        smallest_bytes: of the smallest group.
    """

    groups: tuple[Group, ...]
    probes: tuple[ContainerProbe, ...]
    size_bytes: int
    smallest_bytes: int


NO_PROBES: Final = PodProbes((), (), 0, 0)


class PodPart(NamedTuple):
    """What one pod adds to the object.

    Attributes:
        entry: with all of its probes.
        fixed: probes of markers being deleted, which always stay.
        own_bytes: in spec and status, without its groups. They count once the pod has a group.
    """

    entry: PodProbe
    of_template: PodProbes
    fixed: tuple[ContainerProbe, ...]
    own_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.own_bytes + self.of_template.size_bytes


class FittedSpec(NamedTuple):
    """The entries of the spec, and what is left out.

    Attributes:
        probes_left_out: the number of probes in `no_room`.
    """

    entries: tuple[PodProbe, ...]
    no_room: NoRoom = MappingProxyType({})
    probes_left_out: int = 0


def group_of(marker: str, order: object, probes: tuple[ContainerProbe, ...]) -> Group:
    return Group(marker, order, probes, _bytes_of(probes))


def pod_probes(groups: Iterable[Group]) -> PodProbes:
    """The probes of a pod with these groups, in order."""
    groups = tuple(groups)
    probes: tuple[ContainerProbe, ...] = ()
    for group in groups:
        probes += group.probes  # the same object if there is one group
    sizes = [group.size_bytes for group in groups]
    return PodProbes(groups, probes, sum(sizes), min(sizes, default=0))


def pod_part(entry: PodProbe, of_template: PodProbes, fixed: tuple[ContainerProbe, ...]) -> PodPart:
    names = len(entry.name) + len(entry.namespace)
    own_bytes = POD_STATUS_BYTES + _EMPTY_POD_BYTES + 2 * names + len(entry.uid) + len(entry.ip)
    return PodPart(entry, of_template, fixed, own_bytes)


def entry_bytes(entry: PodProbe) -> int:
    """The size of an entry in spec and status."""
    return pod_part(entry, NO_PROBES, ()).own_bytes + _bytes_of(entry.probes)


def _bytes_of(probes: Iterable[ContainerProbe]) -> int:
    size = 0
    for probe in probes:
        size += stored_bytes(probe) + 1 + STATE_BYTES + stored_bytes(probe.name)
    return size


def fit_steps(
    parts: Sequence[PodPart],
    others: Sequence[PodProbe],
    current: Sequence[PodProbe],
    limit_bytes: int = MAX_OBJECT_BYTES,
) -> Steps[FittedSpec]:
    """All entries if they fit, else as many as fit, ordered by namespace and name.

    `others` are the entries of other managers. They always stay, and reduce the bytes to divide.
    """
    left_bytes = limit_bytes - RESERVED_BYTES
    wanted_bytes = 0
    for entry in others:
        left_bytes -= entry_bytes(entry)
    for part in parts:
        left_bytes -= _fixed_bytes(part)
        wanted_bytes += part.size_bytes
    entries = [*others]
    if wanted_bytes <= left_bytes:
        entries += [part.entry for part in parts]
        return FittedSpec(in_order(entries))
    kept = yield from divide(parts, _running(current), left_bytes)
    no_room: dict[str, frozenset[str]] = {}
    shared: dict[frozenset[str], frozenset[str]] = {}
    left_out = 0
    for number, part in enumerate(parts, start=1):
        entry, dropped = _kept_entry(part, kept.get(part.entry.uid, ()))
        if entry.probes:
            entries.append(entry)
        if dropped:
            no_room[entry.uid] = shared.setdefault(dropped, dropped)
            left_out += len(part.entry.probes) - len(entry.probes)
        if number % PODS_PER_STEP == 0:
            yield
    return FittedSpec(in_order(entries), no_room, left_out)


def in_order(entries: Iterable[PodProbe]) -> tuple[PodProbe, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.namespace, entry.name, entry.uid)))


def _fixed_bytes(part: PodPart) -> int:
    if not part.fixed:
        return 0
    return part.own_bytes + _bytes_of(part.fixed)


def _running(current: Iterable[PodProbe]) -> Kept:
    running: Kept = {}
    for entry in current:
        running[entry.uid] = {ProbeName.parse(probe.name).marker for probe in entry.probes}
    return running


def _kept_entry(part: PodPart, kept: Collection[str]) -> tuple[PodProbe, frozenset[str]]:
    """The entry of a pod with the groups of these markers only, and the markers of the others."""
    groups = part.of_template.groups
    if len(kept) == len(groups):
        return part.entry, frozenset()
    probes: list[ContainerProbe] = []
    dropped: list[str] = []
    for group in groups:
        if group.marker in kept:
            probes += group.probes
        else:
            dropped.append(group.marker)
    entry = msgspec.structs.replace(part.entry, probes=(*probes, *part.fixed))
    return entry, frozenset(dropped)


def divide(parts: Iterable[PodPart], running: Kept, budget_bytes: int) -> Steps[Kept]:
    """The groups that are kept: at most `budget_bytes` in total. `running` may list groups that do not exist any more."""
    parts = [part for part in parts if part.of_template.groups]
    parts.sort(key=_age)
    for _ in range(SETTLING_ROUNDS):
        kept = yield from _divide(parts, running, max(budget_bytes, 0))
        if kept == running:
            break
        running = kept
    return running


def _age(part: PodPart) -> tuple[object, str]:
    return part.of_template.groups[0].order, part.entry.uid


def _divide(parts: Sequence[PodPart], running: Kept, budget_bytes: int) -> Steps[Kept]:
    namespaces: dict[str, list[PodPart]] = defaultdict(list)
    wanted: Counter[str] = Counter()
    for part in parts:
        namespaces[part.entry.namespace].append(part)
        wanted[part.entry.namespace] += part.size_bytes
    share = equal_share(wanted.values(), budget_bytes)
    allocation = _Allocation(running)
    for name, own in namespaces.items():
        own_share = min(wanted[name], share)
        end = allocation.total_bytes + own_share
        pod_share = equal_share([part.size_bytes for part in own], own_share)
        for number, part in enumerate(own, start=1):
            allocation.take_within(part, allocation.total_bytes + pod_share)
            if number % PODS_PER_STEP == 0:
                yield
        yield from allocation.take_fairly(own, end)
    yield from allocation.take_fairly(parts, budget_bytes)
    return allocation.kept


class _Turn(NamedTuple):
    """What comes first is taken first."""

    is_new: bool
    bytes_before: int
    order: object
    uid: str
    part: PodPart
    group: Group


_by_turn = itemgetter(slice(4))


class _Allocation:
    """The groups that are kept, and their bytes."""

    def __init__(self, running: Kept) -> None:
        self.kept: Kept = {}
        self.total_bytes = 0
        self._running = running
        self._by_pod: dict[str, int] = {}

    def take_within(self, part: PodPart, up_to_bytes: int) -> None:
        """Add each group of a pod that keeps the total within `up_to_bytes`."""
        smallest = part.of_template.smallest_bytes
        for _, group in self._left_out(part):
            if self.total_bytes + smallest > up_to_bytes:
                return
            self._take(part, group, up_to_bytes)

    def take_fairly(self, parts: Iterable[PodPart], up_to_bytes: int) -> Steps[None]:
        """Add groups that are still left out: running ones first, then those of pods with the fewest bytes."""
        room = up_to_bytes - self.total_bytes
        waiting = [part for part in parts if part.of_template.smallest_bytes <= room]
        if not waiting:
            return
        smallest = min(part.of_template.smallest_bytes for part in waiting)
        turns = merge(*map(self._turns, waiting), key=_by_turn)
        for number, turn in enumerate(turns, start=1):
            self._take(turn.part, turn.group, up_to_bytes)
            if self.total_bytes + smallest > up_to_bytes:
                return
            if number % GROUPS_PER_STEP == 0:
                yield

    def _take(self, part: PodPart, group: Group, up_to_bytes: int) -> None:
        uid = part.entry.uid
        size = group.size_bytes
        before = self._by_pod.get(uid, 0)
        if not before:
            size += part.own_bytes
        if self.total_bytes + size <= up_to_bytes:
            self.kept.setdefault(uid, set()).add(group.marker)
            self.total_bytes += size
            self._by_pod[uid] = before + size

    def _left_out(self, part: PodPart) -> Iterator[tuple[bool, Group]]:
        """The groups of a pod that are left out, each with whether it is new: running ones first."""
        kept = self.kept.get(part.entry.uid, ())
        running = self._running.get(part.entry.uid, ())
        new: list[Group] = []
        for group in part.of_template.groups:
            if group.marker in kept:
                continue
            if group.marker in running:
                yield False, group
            else:
                new.append(group)
        for group in new:
            yield True, group

    def _turns(self, part: PodPart) -> Iterator[_Turn]:
        uid = part.entry.uid
        start = self._by_pod.get(uid, 0)
        for is_new, group in [*self._left_out(part)]:
            yield _Turn(is_new, start, group.order, uid, part, group)
            start += group.size_bytes
