"""Ownership of condition types, labels and annotations on one pod that several markers match.

Each condition type, label key and annotation key belongs to the first probe that names it in any policy. The order
is: older markers first, then by namespace/name, then by position in the list. So ownership depends on the set of
markers only, never on the order of events.

Source: Kruise pkg/controller/nodepodprobe (updatePodProbeStatus).
Differs: Kruise lets the last result win and only logs a conflict of condition types.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cachetools import LRUCache, cached

from kruise_probe.api.extraction import MAX_INSTRUCTIONS, FromMessage
from kruise_probe.api.keys import NamespacedName, ProbeName
from kruise_probe.api.names import REASON_PROBE_REMOVED
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Pod
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.compiled import (
    CompiledMarker,
    CompiledProbe,
    MarkField,
    WantedItems,
    WantedMarks,
)
from kruise_probe.controllers.limits import claiming_markers

SHARED_CLAIMS_BYTES: Final = 16 << 20
"""Bound of the cache of claims, which has one entry for each set of markers that select a pod together."""
CLAIM_BYTES: Final = 512
NAME_BYTES: Final = 128
"""Upper estimates of the cache memory of a claim, and of each name in it, without their strings."""


class Claim(NamedTuple):
    """What one probe writes on a pod.

    Attributes:
        name: `<marker>#<probe>`.
        wanted: see `CompiledProbe`; without the keys of other claims.
        paused: the annotation of its marker pauses it.
    """

    name: str
    container: str
    condition_type: str
    wanted: Mapping[str, WantedMarks]
    paused: bool

    def may_write(self, field: MarkField, key: str, value: str) -> bool:
        """Whether the claim may set the key to `value` in any state. A value from a message may be any."""
        return any((key, value) in getattr(each, field) for each in self.wanted.values()) or (
            self.is_from_message(field, key)
        )

    def is_from_message(self, field: MarkField, key: str) -> bool:
        """Whether the key has a value from the message in any state."""
        return any(
            name == key and isinstance(value, FromMessage)
            for each in self.wanted.values()
            for name, value in getattr(each, field)
        )


class ClaimConflict(NamedTuple):
    """`probe` of `marker` claims `name`, a label, annotation or condition type of `owner_probe` of `owner`."""

    marker: NamespacedName
    probe: str
    kind: str
    name: str
    owner: NamespacedName
    owner_probe: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name!r} of probe {self.probe!r} belongs to probe {self.owner_probe!r} "
            f"of PodProbeMarker {self.owner}"
        )


Owners = Mapping[str, Claim]
"""By condition type or key, the one claim that may write it."""


class Claims(NamedTuple):
    """All claims on a pod, their containers, and the owner of each condition type and key."""

    claims: tuple[Claim, ...]
    containers: frozenset[str]
    condition_types: Owners
    labels: Owners
    annotations: Owners

    def is_from_message(self, field: MarkField, key: str) -> bool:
        """Whether the owner of the key takes its value from the message in any state."""
        owner = getattr(self, field).get(key)
        return owner is not None and owner.is_from_message(field, key)


def _live_serials(markers: tuple[CompiledMarker, ...]) -> tuple[int, ...]:
    return tuple([marker.serial for marker in markers if not marker.deleting])


def _estimated_bytes(claims: Claims) -> int:
    """Count shared claims for each set of markers, as each set may be the last that references them."""
    marks = [mark for claim in claims.claims for wanted in claim.wanted.values() for mark in wanted]
    items = [item for each in marks for item in each]
    return CLAIM_BYTES * (1 + len(claims.claims)) + sum(
        NAME_BYTES + len(key) + len(str(value)) for key, value in items
    )


_cache: LRUCache[tuple[int, ...], Claims] = LRUCache(
    maxsize=SHARED_CLAIMS_BYTES, getsizeof=_estimated_bytes
)


@cached(_cache, key=_live_serials)
def claims_of(markers: tuple[CompiledMarker, ...]) -> Claims:
    """The claims of the markers that match one pod, given in any order. Markers being deleted claim nothing.

    Over the limit of markers per pod, only the oldest ones claim; see `limits`.
    """
    claiming = claiming_markers(markers)
    if len(claiming) == 1:
        return _own_claims(claiming[0])
    return _resolved(tuple(claim for marker in claiming for claim in _own_claims(marker).claims))


@cached(_cache, key=lambda marker: (marker.serial,))
def _own_claims(marker: CompiledMarker) -> Claims:
    """The claims of a marker alone, also while it is being deleted. A live one shares its entry with `claims_of`."""
    return _resolved(
        tuple(
            Claim(probe.name, probe.container, probe.condition_type, probe.wanted, marker.paused)
            for probe in marker.probes
        )
    )


def _resolved(claims_in_order: tuple[Claim, ...]) -> Claims:
    """Resolve conflicts: of several claims on a name, the first one owns it.

    Patterns are matched in this order, up to `MAX_INSTRUCTIONS`, so that the time for one pod is bounded.
    """
    condition_types: dict[str, Claim] = {}
    labels: dict[str, Claim] = {}
    annotations: dict[str, Claim] = {}
    claims: list[Claim] = []
    left = MAX_INSTRUCTIONS
    for contender in claims_in_order:
        claim = contender._replace(
            condition_type=""
            if contender.condition_type in condition_types
            else contender.condition_type,
            wanted={
                state: WantedMarks(
                    tuple(item for item in marks.labels if item[0] not in labels),
                    tuple(item for item in marks.annotations if item[0] not in annotations),
                )
                for state, marks in contender.wanted.items()
            },
        )
        size = _instructions(claim)
        if size > left:
            claim = _without_patterns(claim)
        else:
            left -= size
        claims.append(claim)
        every_key = claim.wanted[ProbeState.SUCCEEDED]
        labels.update({key: claim for key, _ in every_key.labels})
        annotations.update({key: claim for key, _ in every_key.annotations})
        if claim.condition_type:
            condition_types[claim.condition_type] = claim
    containers = frozenset(claim.container for claim in claims)
    return Claims(tuple(claims), containers, condition_types, labels, annotations)


def _instructions(claim: Claim) -> int:
    """The size of all patterns that are matched in one state, the largest of all states."""
    return max(
        sum(
            value.instructions
            for items in each
            for _, value in items
            if isinstance(value, FromMessage)
        )
        for each in claim.wanted.values()
    )


def _without_patterns(claim: Claim) -> Claim:
    """The claim of a pod whose patterns exceed the limit: it keeps its keys, with their static values."""

    def unmatched(items: WantedItems) -> WantedItems:
        return tuple(
            (key, value._replace(over_limit=True))
            if isinstance(value, FromMessage) and value.pattern
            else (key, value)
            for key, value in items
        )

    return claim._replace(
        wanted={
            state: WantedMarks(unmatched(each.labels), unmatched(each.annotations))
            for state, each in claim.wanted.items()
        }
    )


def conflicts_of(marker: CompiledMarker, claims: Claims) -> list[ClaimConflict]:
    """The names that probes of `marker` claim and other probes own."""
    return [
        ClaimConflict(
            marker.key,
            probe.probe,
            kind,
            name,
            NamespacedName(marker.key.namespace, owner.marker),
            owner.probe,
        )
        for probe in marker.probes
        for kind, names, owners in _claimed_names(probe, claims)
        for name in sorted(names)
        if (claim := owners.get(name)) is not None and claim.name != probe.name
        for owner in (ProbeName.parse(claim.name),)
    ]


def _claimed_names(
    probe: CompiledProbe, claims: Claims
) -> tuple[tuple[str, Iterable[str], Owners], ...]:
    """Kind, names that the probe claims, and the owners of names of that kind."""
    every_key = probe.wanted[ProbeState.SUCCEEDED]
    return (
        ("label", {key for key, _ in every_key.labels}, claims.labels),
        ("annotation", {key for key, _ in every_key.annotations}, claims.annotations),
        ("condition type", {probe.condition_type} - {""}, claims.condition_types),
    )


def claims_with_container(pod: Pod, claims: Claims) -> Claims:
    """The claims whose container exists in `pod`; the others are never probed.

    Ownership of the other claims does not change. Names of dropped claims have no owner, so their marks are removed.
    """
    present = {container.name for container in pod.containers}
    if claims.containers <= present:
        return claims
    return _resolved(tuple(claim for claim in claims.claims if claim.container in present))


def marks_of(pod: Pod, marker: CompiledMarker) -> Owned:
    """The marks on `pod` that we wrote for `marker`: those that we own, and its values that no field manager owns.

    Somebody may have emptied `managedFields`.
    """
    owned, unowned = pod.owned, unowned_marks(pod, marker)
    types = frozenset([each.type for each in pod.conditions]) & marker.condition_types
    return Owned(
        owned.condition_types & types | unowned.condition_types,
        owned.labels & marker.labels & pod.labels.keys() | unowned.labels,
        owned.annotations & marker.annotations & pod.annotations.keys() | unowned.annotations,
    )


def unowned_marks(pod: Pod, marker: CompiledMarker) -> Owned:
    """The marks on `pod` that no field manager owns, and that `marker` may have written."""
    types = marker.condition_types - pod.owned.condition_types
    labels = (marker.labels & pod.labels.keys()) - pod.owned.labels
    annotations = (marker.annotations & pod.annotations.keys()) - pod.owned.annotations
    if not types and not labels and not annotations:  # the common case
        return NOTHING_OWNED
    others, own_claims = pod.owned_by_others, _own_claims(marker)

    def written(field: MarkField, keys: frozenset[str]) -> frozenset[str]:
        owners, current = getattr(own_claims, field), getattr(pod, field)
        return frozenset(
            key for key in keys if key in owners and owners[key].may_write(field, key, current[key])
        )

    return Owned(
        types.intersection([each.type for each in pod.conditions]) - others.condition_types,
        written("labels", labels - others.labels),
        written("annotations", annotations - others.annotations),
    )


def has_stale_mark(pod: Pod, marker: CompiledMarker, claims: Claims) -> bool:
    """Whether `pod` carries a stale mark of `marker`: we wrote it, `marker` names it, and it has no owner.

    A condition kept for a readiness gate does not count once it has reason ProbeRemoved. A mark that the cache does
    not show does not count either: it would never be removed, so the marker's deletion would wait forever.
    """
    marks, claims = marks_of(pod, marker), claims_with_container(pod, claims)
    if marks.labels - claims.labels.keys() or marks.annotations - claims.annotations.keys():
        return True
    return any(
        each.type not in pod.readiness_gates or each.reason != REASON_PROBE_REMOVED
        for each in pod.conditions
        if each.type in marks.condition_types - claims.condition_types.keys()
    )
