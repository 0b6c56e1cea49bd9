"""Divides the bytes of one NodePodProbe between namespaces, and those of a namespace between its pods. Pure functions.

The API server does not store an object over 1 MiB, so a spec that is too large would stop all probing on its node.
If not everything fits, shares are max-min fair. A tenant that needs less than an equal part gets all it needs, and
the others divide the rest equally. A tenant within its share never displaces probes of another tenant. What a tenant
does not need is given to the others, as long as whole groups fit.

A group is all probes of one marker for one pod. It is kept or left out as a whole, so a tenant may get less than its share, by
less than one group. The groups take turns: each has the bytes that its namespace has used up to it, and the fewest bytes come
first. Within a namespace it is the same for pods, and within a pod the groups of older markers come first.

The work is linear in the pods and in the groups that are kept, whatever number of groups is left out, except for the list of these.

Source: A. Demers et al., Analysis and Simulation of a Fair Queueing Algorithm (finish numbers).
Differs: bytes of an object instead of a link.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from kruise_probe.api.node_pod_probe import MAX_OBJECT_BYTES, PodProbe, stored_bytes
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.workqueue.slices import PODS_PER_STEP, Steps

RESERVED_BYTES: Final = 32 * 1024
"""Reserved for metadata, including managedFields."""
STATE_BYTES: Final = 320
"""Size in the status of one probe state without its name: times, hash, a short message, and the container id that earlier daemons wrote."""
POD_STATUS_BYTES: Final = 160
"""Size in the status of one pod without its names: uid and punctuation."""
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


def group_of(
    marker: str,
    order: object,
    probes: tuple[ContainerProbe, ...],
) -> Group:
    return Group(marker, order, probes, _bytes_of(probes))


def pod_probes(groups: Iterable[Group]) -> PodProbes:
    """The probes of a pod with these groups, in order."""
    groups = tuple(groups)
    probes: tuple[ContainerProbe, ...] = ()
    for group in groups:
        probes += group.probes  # the same object if there is one group
    sizes = [group.size_bytes for group in groups]
    smallest = min(sizes, default=0)
    return PodProbes(groups, probes, sum(sizes), smallest)


def pod_part(
    entry: PodProbe,
    of_template: PodProbes,
    fixed: tuple[ContainerProbe, ...],
) -> PodPart:
    names = len(entry.name) + len(entry.namespace)
    identity = len(entry.uid) + len(entry.ip)
    in_spec = _EMPTY_POD_BYTES + names + identity
    in_status = POD_STATUS_BYTES + names
    return PodPart(entry, of_template, fixed, in_spec + in_status)


def entry_bytes(entry: PodProbe) -> int:
    """The size of an entry in spec and status."""
    without_probes = pod_part(entry, NO_PROBES, ())
    return without_probes.own_bytes + _bytes_of(entry.probes)


def room_bytes(entries: Iterable[PodProbe], limit_bytes: int = MAX_OBJECT_BYTES) -> int:
    """What may be added to an object with these entries; negative if it is too large."""
    left = limit_bytes - RESERVED_BYTES
    for entry in entries:
        left -= entry_bytes(entry)
    return left


def _bytes_of(probes: Iterable[ContainerProbe]) -> int:
    size = 0
    for probe in probes:
        in_spec = stored_bytes(probe) + 1
        in_status = STATE_BYTES + stored_bytes(probe.name)
        size += in_spec + in_status
    return size


def fit_steps(
    parts: Sequence[PodPart],
    others: Sequence[PodProbe],
    limit_bytes: int = MAX_OBJECT_BYTES,
) -> Steps[FittedSpec]:
    """All entries if they fit, else as many as fit, ordered by namespace and name.

    `others` are the entries of other managers. They always stay, and reduce the bytes to divide.
    """
    left_bytes = room_bytes(others, limit_bytes)
    wanted_bytes = 0
    for part in parts:
        left_bytes -= _fixed_bytes(part)
        wanted_bytes += part.size_bytes
    entries = [*others]
    if wanted_bytes <= left_bytes:
        entries += [part.entry for part in parts]
        return FittedSpec(in_order(entries))
    kept = yield from divide(parts, left_bytes)
    no_room: dict[str, frozenset[str]] = {}
    shared: dict[frozenset[str], frozenset[str]] = {}
    left_out = 0
    for number, part in enumerate(parts, start=1):
        kept_markers = kept.get(part.entry.uid, ())
        entry, dropped = _kept_entry(part, kept_markers)
        if entry.probes:
            entries.append(entry)
        if dropped:
            no_room[entry.uid] = shared.setdefault(dropped, dropped)
            wanted = len(part.entry.probes)
            left_out += wanted - len(entry.probes)
        if number % PODS_PER_STEP == 0:
            yield
    return FittedSpec(in_order(entries), no_room, left_out)


_identity = attrgetter("namespace", "name", "uid")


def in_order(entries: Iterable[PodProbe]) -> tuple[PodProbe, ...]:
    return tuple(sorted(entries, key=_identity))


def _fixed_bytes(part: PodPart) -> int:
    if not part.fixed:
        return 0
    return part.own_bytes + _bytes_of(part.fixed)


def _kept_entry(part: PodPart, kept: Collection[str]) -> tuple[PodProbe, frozenset[str]]:
    """The entry of a pod with the groups of these markers only, and the markers of the others."""
    groups = part.of_template.groups
    if len(kept) == len(groups):
        return part.entry, frozenset()
    probes: list[ContainerProbe] = []
    dropped = []
    for group in groups:
        if group.marker in kept:
            probes += group.probes
        else:
            dropped.append(group.marker)
    probes += part.fixed
    kept_probes = tuple(probes)
    entry = replace(part.entry, probes=kept_probes)
    return entry, frozenset(dropped)


class _Turn(NamedTuple):
    """A group that may be kept. The lowest comes first.

    Attributes:
        end_bytes: what its pod, or its namespace, uses if all groups up to this one are kept.
    """

    end_bytes: int
    order: object
    uid: str
    size_bytes: int
    part: PodPart
    group: Group


_by_turn = itemgetter(slice(3))


def divide(parts: Iterable[PodPart], budget_bytes: int) -> Steps[Kept]:
    """The groups that are kept: at most `budget_bytes` in total."""
    namespaces: dict[str, list[PodPart]] = defaultdict(list)
    smallest = budget_bytes
    for part in parts:
        template = part.of_template
        if template.groups:
            namespaces[part.entry.namespace].append(part)
            smallest = min(smallest, template.smallest_bytes)
    left = budget_bytes
    kept: Kept = {}
    of_namespaces = map(_turns_of_namespace, namespaces.values())
    turns = merge(*of_namespaces, key=_by_turn)
    for number, turn in enumerate(turns, start=1):
        if left < smallest:
            break
        size = turn.group.size_bytes
        if turn.uid not in kept:
            size += turn.part.own_bytes
        if size <= left:
            markers = kept.setdefault(turn.uid, set())
            markers.add(turn.group.marker)
            left -= size
        if number % GROUPS_PER_STEP == 0:
            yield
    return kept


def _turns_of_namespace(parts: Iterable[PodPart]) -> Iterator[_Turn]:
    end = 0
    of_pods = map(_turns_of_pod, parts)
    for turn in merge(*of_pods, key=_by_turn):
        end += turn.size_bytes
        yield turn._replace(end_bytes=end)


def _turns_of_pod(part: PodPart) -> Iterator[_Turn]:
    uid = part.entry.uid
    end = 0
    for group in part.of_template.groups:
        size = group.size_bytes
        if not end:
            size += part.own_bytes
        end += size
        yield _Turn(end, group.order, uid, size, part, group)
