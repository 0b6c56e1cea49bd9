"""Which probe may write what on one pod, when several markers want the same.

A condition type, a label key and an annotation key each belong to the first probe that names them in any
policy: older markers first, then by namespace/name, then by place in the list. The outcome depends on the
set of markers only, never on the order in which they, or results, arrived.

Source: Kruise pkg/controller/nodepodprobe (updatePodProbeStatus).
Differs: Kruise lets the last result win and only logs a clash of condition types.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cachetools import LRUCache, cached

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import REASON_PROBE_REMOVED
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.compiled import NO_MARKS, CompiledMarker, CompiledProbe, Marks

SHARED_CLAIMS = 4096
"""Bound of the cache of claims: one entry per set of markers that match a pod together."""

_OTHER: Final = {
    ProbeState.SUCCEEDED: ProbeState.FAILED,
    ProbeState.FAILED: ProbeState.SUCCEEDED,
}


class Targets(NamedTuple):
    """What a pod shows in one state of a probe: values, and None for keys that are to be absent."""

    labels: tuple[tuple[str, str | None], ...]
    annotations: tuple[tuple[str, str | None], ...]


class Claim(NamedTuple):
    """What one probe writes on a pod; `targets` by state, without Unknown, which leaves marks alone."""

    name: str
    container: str
    condition_type: str
    targets: Mapping[str, Targets]


class Conflict(NamedTuple):
    """`name` (a `kind` of thing) is wanted by `probe` of `marker` and belongs to `owner_probe` of `owner`."""

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


Values = Mapping[str, frozenset[str]]
"""By key, all values that its owner gives it, in whatever state."""


class Claims(NamedTuple):
    """All that may be written on a pod, and what was refused."""

    claims: tuple[Claim, ...]
    condition_types: frozenset[str]
    labels: frozenset[str]
    annotations: frozenset[str]
    label_values: Values
    annotation_values: Values
    conflicts: tuple[Conflict, ...]


NO_CLAIMS: Final = Claims((), frozenset(), frozenset(), frozenset(), {}, {}, ())


@cached(LRUCache(maxsize=SHARED_CLAIMS))
def claims_of(markers: tuple[CompiledMarker, ...]) -> Claims:
    """The claims of the markers that match one pod, in any order; those being deleted claim nothing."""
    owners: dict[tuple[str, str], tuple[NamespacedName, str]] = {}
    conflicts: list[Conflict] = []
    ordered = sorted((each for each in markers if each.live), key=lambda each: each.order)
    claims = tuple(
        _claim(marker.key, probe, owners, conflicts)
        for marker in ordered
        for probe in marker.probes
    )
    return _together(claims, tuple(conflicts))


def claims_on(pod: Pod, claims: Claims) -> Claims:
    """Those of `claims` that can come true on `pod`: a container that it does not have is never probed.

    Who owns what stays as it is; but nothing is kept for an owner that could never put it right.
    """
    containers = {each.name for each in pod.containers}
    kept = tuple(each for each in claims.claims if each.container in containers)
    return claims if len(kept) == len(claims.claims) else _together(kept, claims.conflicts)


def _together(claims: tuple[Claim, ...], conflicts: tuple[Conflict, ...]) -> Claims:
    targets = [each for claim in claims for each in claim.targets.values()]
    return Claims(
        claims=claims,
        condition_types=frozenset(each.condition_type for each in claims if each.condition_type),
        labels=frozenset(key for each in targets for key, _ in each.labels),
        annotations=frozenset(key for each in targets for key, _ in each.annotations),
        label_values=_values(each.labels for each in targets),
        annotation_values=_values(each.annotations for each in targets),
        conflicts=conflicts,
    )


def _values(targets: Iterable[Iterable[tuple[str, str | None]]]) -> Values:
    values: dict[str, frozenset[str]] = {}
    for key, value in (each for some in targets for each in some):
        if value is not None:
            values[key] = values.get(key, frozenset()) | {value}
    return values


def _claim(
    marker: NamespacedName,
    probe: CompiledProbe,
    owners: dict[tuple[str, str], tuple[NamespacedName, str]],
    conflicts: list[Conflict],
) -> Claim:
    mine = (marker, probe.probe)

    def won(kind: str, name: str) -> bool:
        owner = owners.setdefault((kind, name), mine)
        if owner != mine:
            conflicts.append(Conflict(marker, probe.probe, kind, name, *owner))
        return owner == mine

    named = probe.policies.values()
    labels = {
        key for key in sorted({key for each in named for key in each.labels}) if won("label", key)
    }
    annotations = {
        key
        for key in sorted({key for each in named for key in each.annotations})
        if won("annotation", key)
    }
    condition_type = probe.condition_type
    return Claim(
        name=probe.name,
        container=probe.container,
        condition_type=(
            condition_type if condition_type and won("condition type", condition_type) else ""
        ),
        targets={
            state: Targets(
                labels=_targets(probe.policies, state, other, "labels", labels),
                annotations=_targets(probe.policies, state, other, "annotations", annotations),
            )
            for state, other in _OTHER.items()
        },
    )


def _targets(
    policies: Mapping[str, Marks], state: str, other: str, field: str, won: set[str]
) -> tuple[tuple[str, str | None], ...]:
    """Values of this state's policy, and the absence of what only the other state's policy names."""
    present: Mapping[str, str] = getattr(policies.get(state, NO_MARKS), field)
    absent: Mapping[str, str] = getattr(policies.get(other, NO_MARKS), field)
    wanted: dict[str, str | None] = dict.fromkeys(absent, None) | dict(present)
    return tuple(sorted((key, value) for key, value in wanted.items() if key in won))


def has_residue(pod: Pod, marker: CompiledMarker, claims: Claims) -> bool:
    """Whether `pod` still carries something that we wrote, `marker` names, and no live marker claims that may probe it.

    A condition that stays on the pod as a readiness gate is none once it says so. Nor is a mark that the cache does not
    show: what cannot be seen is never removed, and would be waited for without an end.
    """
    owned, claims = pod.owned, claims_on(pod, claims)
    if not pod.labels.keys().isdisjoint((owned.labels & marker.labels) - claims.labels):
        return True
    left_annotations = (owned.annotations & marker.annotations) - claims.annotations
    if not pod.annotations.keys().isdisjoint(left_annotations):
        return True
    left = (owned.condition_types & marker.condition_types) - claims.condition_types
    return bool(left - kept_gates(pod))


def kept_gates(pod: Pod) -> frozenset[str]:
    """Our conditions that stay on `pod` although nobody probes them, as its readiness waits for them, and that say so."""
    ours = pod.owned.condition_types & pod.readiness_gates
    if not ours:
        return ours
    return ours - {each.type for each in pod.conditions if each.reason != REASON_PROBE_REMOVED}
