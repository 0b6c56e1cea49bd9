"""Ownership of condition types, labels and annotations on one pod that several markers match.

Each condition type, label key and annotation key belongs to the first probe that names it in any policy. The order
is: older markers first, then by namespace/name, then by position in the list. So ownership depends on the set of
markers only, never on the order of events.

Source: Kruise pkg/controller/nodepodprobe (updatePodProbeStatus).
Differs: Kruise lets the last result win and only logs a conflict of condition types.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kruise_probe.api.caches import (
    ITEM_BYTES,
    OBJECT_BYTES,
    STRING_BYTES,
    WIDEST_CHARACTER,
    Cache,
    sizes_of,
)
from kruise_probe.api.extraction import MAX_INSTRUCTIONS, FromMessage, MarkValue
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import REASON_PROBE_REMOVED, ProbeName
from kruise_probe.api.pods import NOTHING_OWNED, Mark, Owned, Pod
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.compiled import CompiledMarker, Exclusivity, Wanted
from kruise_probe.controllers.limits import select

CLAIM_BYTES: Final = 1024
MARK_BYTES: Final = 2 * OBJECT_BYTES + STRING_BYTES
VALUE_BYTES: Final = OBJECT_BYTES + STRING_BYTES
"""Upper estimates of the memory of a claim, of each mark in it, and of its value in a state, without their characters."""


class Claim(NamedTuple):
    """What one probe writes on a pod.

    Attributes:
        name: `<marker>#<probe>`.
        wanted: see `CompiledProbe`; without the keys of other claims. Each state has all keys.
        paused: the annotation of its marker pauses it.
        keeps_when_stale, runs_while_terminating, exclusive: see `CompiledProbe`.
    """

    name: str
    container: str
    condition_type: str
    wanted: Mapping[str, Wanted]
    paused: bool
    keeps_when_stale: bool
    runs_while_terminating: bool
    exclusive: Exclusivity | None

    @property
    def keys(self) -> Iterable[Mark]:
        return self.wanted[ProbeState.SUCCEEDED]

    @property
    def group_label(self) -> str:
        """The label whose value decides to which group of an exclusive probe a pod belongs; empty for one group."""
        if self.exclusive is None:
            return ""
        return self.exclusive.group_label

    @property
    def has_epochs(self) -> bool:
        if self.exclusive is None:
            return False
        return self.exclusive.has_epochs

    def may_write(self, mark: Mark, value: str | None) -> bool:
        """Whether the claim may set the key to `value` in any state. A value from a message may be any."""
        if value in self._values_of(mark):
            return True
        return self.is_from_message(mark)

    def is_from_message(self, mark: Mark) -> bool:
        """Whether the key has a value from the message in any state."""
        return any(isinstance(value, FromMessage) for value in self._values_of(mark))

    def _values_of(self, mark: Mark) -> list[MarkValue]:
        return [wanted.get(mark) for wanted in self.wanted.values()]


class ClaimConflict(NamedTuple):
    """`probe` of `marker` claims `mark` of `owner_probe` of `owner`."""

    marker: NamespacedName
    probe: str
    mark: Mark
    owner: NamespacedName
    owner_probe: str

    def __str__(self) -> str:
        what = f"{self.mark.kind} {self.mark.name!r} of probe {self.probe!r}"
        owner = f"probe {self.owner_probe!r} of PodProbeMarker {self.owner}"
        return f"{what} belongs to {owner}"


_Serials = tuple[int, ...]
"""Those of markers, in place of the markers themselves, which a cache must not keep alive."""


class Claims(NamedTuple):
    """All claims on a pod, their containers, and by mark the one claim that may write it.

    Attributes:
        exclusive: those of them that give a role.
        groups: the labels whose values decide to which groups of exclusive probes a pod belongs.
        markers: whose claims these are.
    """

    claims: tuple[Claim, ...]
    containers: frozenset[str]
    owners: Mapping[Mark, Claim]
    exclusive: tuple[Claim, ...]
    groups: frozenset[Mark]
    markers: _Serials

    def on(self, pod: Pod) -> "Claims":
        """The claims whose container exists in `pod`; the others are never probed.

        Ownership of the other claims does not change. Names of dropped claims have no owner, so their marks are removed.
        """
        present = {container.name for container in pod.containers}
        absent = self.containers - present
        if not absent:
            return self
        key = (self.markers, absent)
        return _partial_claims.find(key, self._without)

    def _without(self, key: "_PartialKey") -> "Claims":
        _, absent = key
        here = [claim for claim in self.claims if claim.container not in absent]
        return _resolved(here)

    def is_from_message(self, mark: Mark) -> bool:
        """Whether the owner of the key takes its value from the message in any state."""
        owner = self.owners.get(mark)
        if owner is None:
            return False
        return owner.is_from_message(mark)


def _size(serials: _Serials, claims: Claims) -> int:
    size = CLAIM_BYTES + ITEM_BYTES * len(serials)
    for mark in claims.owners:
        size += MARK_BYTES + len(mark.name)
    for claim in claims.claims:
        size += CLAIM_BYTES
        for wanted in claim.wanted.values():
            for value in wanted.values():
                size += VALUE_BYTES + _value_bytes(value)
    return size


def _value_bytes(value: MarkValue) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return WIDEST_CHARACTER * len(value)
    static = value.static or ""
    characters = len(value.pattern) + len(static)
    return VALUE_BYTES + WIDEST_CHARACTER * characters


def _partial_size(key: "_PartialKey", claims: Claims) -> int:
    serials, absent = key
    return _size(serials, claims) + sizes_of(absent)


_claims = Cache[_Serials, Claims](_size)
"""One entry for each set of markers that select a pod together."""

_PartialKey = tuple[_Serials, frozenset[str]]
"""The markers, and the containers that the pod lacks."""

_partial_claims = Cache[_PartialKey, Claims](_partial_size)
"""The same for pods without some containers."""


def claims_of(markers: tuple[CompiledMarker, ...]) -> Claims:
    """The claims of the markers that match one pod, given in any order. Markers being deleted claim nothing.

    A marker that a limit leaves out claims at most its condition types, which report it; see `limits.select`.
    """
    live = [marker.serial for marker in markers if not marker.deleting]
    serials = tuple(live)

    def together(_: _Serials) -> Claims:
        selection = select(markers)
        contenders: list[Claim] = []
        for marker in selection.considered:
            contenders += _claims_by(marker)
        for marker in selection.reported:
            for claim in _claims_by(marker):
                contenders.append(_without_keys(claim))
        return _resolved(contenders, serials)

    return _claims.find(serials, together)


def _own_claims(marker: CompiledMarker) -> Claims:
    """The claims of a marker alone, also while it is being deleted."""
    serials = (marker.serial,)

    def alone(_: _Serials) -> Claims:
        return _resolved(_claims_by(marker), serials)

    return _claims.find(serials, alone)


def _claims_by(marker: CompiledMarker) -> list[Claim]:
    """What the probes of a marker claim, whatever others own."""
    claims = []
    for probe in marker.probes:
        claim = Claim(
            probe.name,
            probe.container,
            probe.condition_type,
            probe.wanted(),
            marker.paused,
            probe.keeps_when_stale,
            probe.runs_while_terminating,
            probe.exclusive,
        )
        claims.append(claim)
    return claims


def _resolved(contenders: Iterable[Claim], markers: _Serials = ()) -> Claims:
    """Resolve conflicts: of several claims on a name, the first one owns it.

    Patterns are matched in this order, up to `MAX_INSTRUCTIONS`, so that the time for one pod is bounded.
    """
    claims = []
    owners: dict[Mark, Claim] = {}
    exclusive = []
    groups = set()
    instructions_left = MAX_INSTRUCTIONS
    for contender in contenders:
        claim = _without_names_of(owners, contender)
        instructions = _instructions(claim)
        if instructions <= instructions_left:
            instructions_left -= instructions
        else:
            claim = _without_patterns(claim)
        claims.append(claim)
        owners |= dict.fromkeys(claim.keys, claim)
        if claim.condition_type:
            condition = Mark("conditions", claim.condition_type)
            owners[condition] = claim
        if claim.exclusive is not None:
            exclusive.append(claim)
            groups.add(Mark("labels", claim.group_label))
    containers = [claim.container for claim in claims]
    return Claims(
        tuple(claims),
        frozenset(containers),
        owners,
        tuple(exclusive),
        frozenset(groups),
        markers,
    )


def _without_names_of(owners: Mapping[Mark, Claim], claim: Claim) -> Claim:
    """The claim without the condition type and the keys that others own."""
    condition = Mark("conditions", claim.condition_type)
    if condition in owners:
        claim = claim._replace(condition_type="")
    if owners.keys().isdisjoint(claim.keys):
        return claim
    wanted = {}
    for state, values in claim.wanted.items():
        free = {**values}
        for mark in owners.keys() & values.keys():
            del free[mark]
        wanted[state] = free
    return claim._replace(wanted=wanted)


def _without_keys(claim: Claim) -> Claim:
    nothing: Wanted = {}
    return claim._replace(wanted=dict.fromkeys(claim.wanted, nothing))


def _without_patterns(claim: Claim) -> Claim:
    """The claim of a pod whose patterns exceed the limit: it keeps its keys, with their static values."""
    wanted = {}
    for state, values in claim.wanted.items():
        static = {**values}
        for mark, value in values.items():
            if isinstance(value, FromMessage) and value.pattern:
                static[mark] = value._replace(over_limit=True)
        wanted[state] = static
    return claim._replace(wanted=wanted)


def _instructions(claim: Claim) -> int:
    """The size of all patterns that are matched in one state, the largest of all states."""
    largest = 0
    for wanted in claim.wanted.values():
        instructions = 0
        for value in wanted.values():
            if isinstance(value, FromMessage):
                instructions += value.instructions
        largest = max(largest, instructions)
    return largest


def conflicts_of(marker: CompiledMarker, claims: Claims) -> list[ClaimConflict]:
    """The marks that probes of `marker` claim and other probes own."""
    key = marker.key
    conflicts = []
    for probe in marker.probes:
        for mark in probe.marks:
            claim = claims.owners.get(mark)
            if claim is None:
                continue
            if claim.name == probe.name:
                continue
            owner = ProbeName.parse(claim.name)
            owner_key = NamespacedName(key.namespace, owner.marker)
            conflict = ClaimConflict(key, probe.probe, mark, owner_key, owner.probe)
            conflicts.append(conflict)
    return conflicts


def marks_of(pod: Pod, marker: CompiledMarker) -> Owned:
    """The marks on `pod` that we wrote for `marker`: those that we own, and its values that no field manager owns.

    Somebody may have emptied `managedFields`.
    """
    owned = filter(pod.has, pod.owned & marker.marks)
    return unowned_marks(pod, marker).union(owned)


def unowned_marks(pod: Pod, marker: CompiledMarker) -> Owned:
    """The marks on `pod` that no field manager owns, and that `marker` may have written."""
    without_owner = marker.marks - pod.owned - pod.owned_by_others
    found = [*filter(pod.has, without_owner)]
    if not found:  # the common case
        return NOTHING_OWNED
    owners = _own_claims(marker).owners
    unowned = set()
    for mark in found:
        is_condition = mark.field == "conditions"
        value = pod.value_of(mark)
        if is_condition or owners[mark].may_write(mark, value):
            unowned.add(mark)
    return frozenset(unowned)


class StaleMarks:
    """The marks on one pod that we wrote and that have no owner in `claims`, which are those on the pod.

    A static pod has none: the marks that no field manager owns there are from its manifest.
    A condition kept for a readiness gate does not count once it has reason ProbeRemoved. A mark that the cache does
    not show does not count either: it would never be removed, so the marker's deletion would wait forever.
    """

    def __init__(self, pod: Pod, claims: Claims) -> None:
        accepted = {*claims.owners}
        for condition in pod.conditions:
            is_removed = condition.reason == REASON_PROBE_REMOVED
            if is_removed and condition.type in pod.readiness_gates:
                mark = Mark("conditions", condition.type)
                accepted.add(mark)
        left = pod.marks - accepted
        self._pod = pod
        self._accepted = accepted
        self._owned = left & pod.owned
        self._unowned = left - pod.owned - pod.owned_by_others

    def has_any_of(self, marker: CompiledMarker) -> bool:
        """Whether `marker` names any of them."""
        if self._pod.mirror:
            return False
        if not self._owned.isdisjoint(marker.marks):
            return True
        if self._unowned.isdisjoint(marker.marks):
            return False
        unowned = unowned_marks(self._pod, marker)
        return not self._accepted.issuperset(unowned)
