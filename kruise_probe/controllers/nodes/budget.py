"""What to leave out when a node is asked for more than one object can hold.

An object beyond 1 MiB cannot be stored, so a spec that leaves no room would stop all probing on its node. Left out is
as little as possible, the younger markers' entries first; what stands there already stays, so that a new pod never
pushes out a running probe of the same marker. The markers concerned say so in their status.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.keys import NamespacedName, ProbeName
from kruise_probe.api.storage import MAX_OBJECT_BYTES, stored_bytes
from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbe

RESERVED_BYTES: Final = 32 * 1024
"""For metadata, managed fields included."""
STATE_BYTES: Final = 320
"""Room in the status for one state beside its name: times, container id, hash, and a short message."""
POD_STATUS_BYTES: Final = 160
"""Room in the status for a pod beside its names: uid and punctuation."""


class Fitted(NamedTuple):
    """`left_out` counts, by marker, the pods of this node that are not probed for lack of room."""

    entries: tuple[PodProbe, ...]
    left_out: Mapping[NamespacedName, int]


def object_bytes(entries: Sequence[PodProbe]) -> int:
    """How large the NodePodProbe gets at the least, status included."""
    states = sum(
        STATE_BYTES + _name_bytes(probe) for each in entries for probe in each.probes or ()
    )
    statuses = sum(POD_STATUS_BYTES + len(each.name) + len(each.namespace) for each in entries)
    return RESERVED_BYTES + stored_bytes(entries) + states + statuses


def fit(
    entries: Sequence[PodProbe],
    current: Sequence[PodProbe],
    ranks: Mapping[NamespacedName, object],
    limit_bytes: int = MAX_OBJECT_BYTES,
) -> Fitted:
    """The entries as they are, or as many as fit.

    `ranks` order the markers (`CompiledMarker.order`), the ones that stay first. Entries of markers that it does not
    know are not ours to drop and always stay.
    """
    room = limit_bytes - object_bytes(entries)
    if room >= 0:
        return Fitted(tuple(entries), {})
    standing = {(each.uid, probe.name) for each in current for probe in each.probes or ()}
    groups: dict[tuple[NamespacedName, str], list[ContainerProbe]] = {}
    for entry in entries:
        for probe in entry.probes or ():
            marker = NamespacedName(entry.namespace, ProbeName.parse(probe.name).marker)
            if marker in ranks:
                groups.setdefault((marker, entry.uid), []).append(probe)
    place = {each.uid: index for index, each in enumerate(entries)}

    def drop_order(group: tuple[NamespacedName, str]) -> tuple[object, bool, int]:
        marker, uid = group
        stands = any((uid, probe.name) in standing for probe in groups[group])
        return (ranks[marker], not stands, place[uid])

    dropped: set[tuple[str, str]] = set()
    left_out: Counter[NamespacedName] = Counter()
    for group in sorted(groups, key=drop_order, reverse=True):
        if room >= 0:
            break
        marker, uid = group
        left_out[marker] += 1
        dropped.update((uid, probe.name) for probe in groups[group])
        room += sum(
            stored_bytes(probe) + 1 + STATE_BYTES + _name_bytes(probe) for probe in groups[group]
        )
    return Fitted(_without(entries, dropped), dict(left_out))


def _without(entries: Sequence[PodProbe], dropped: set[tuple[str, str]]) -> tuple[PodProbe, ...]:
    smaller = [
        msgspec.structs.replace(
            entry,
            probes=tuple(
                each for each in entry.probes or () if (entry.uid, each.name) not in dropped
            ),
        )
        for entry in entries
    ]
    return tuple(each for each in smaller if each.probes)


def _name_bytes(probe: ContainerProbe) -> int:
    return stored_bytes(probe.name)
