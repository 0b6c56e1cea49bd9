"""The status of a marker: its counts and conditions with their times, its patch, and whether it must be written. Pure functions.

Source: Kruise pkg/controller/podprobemarker (status update).
Differs: everything but observedGeneration and matchedPods. A merge patch also writes zeros.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kruise_probe.api.meta import Condition, NamespacedName
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus, ProbeState
from kruise_probe.controllers.conditions import (
    CONFLICT,
    DEGRADED,
    NOT_MARKED,
    Facts,
    conflict,
    degraded,
    deleting,
    not_marked,
    synced,
)
from kruise_probe.controllers.counts import NODES_BEHIND, InState
from kruise_probe.controllers.readiness import previous_ready, ready


def stamped(
    conditions: Iterable[Condition],
    marker: PodProbeMarker,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """Set lastTransitionTime, which changes only with the status, and observedGeneration."""
    previous = {condition.type: condition for condition in marker.conditions}
    found = []
    for condition in conditions:
        since = None
        before = previous.get(condition.type)
        if before is not None and before.status == condition.status:
            since = before.last_transition_time
        stamped_condition = replace(
            condition,
            last_transition_time=since or format_time(now),
            observed_generation=generation,
        )
        found.append(stamped_condition)
    return tuple(found)


def marker_status(
    marker: PodProbeMarker,
    facts: Facts,
    *,
    lasting: set[str],
    inherited: Mapping[str, Condition],
    now: datetime,
) -> PodProbeMarkerStatus:
    """The status that `marker` should have. observedGeneration is that of the counts, as `marker` may be newer.

    `inherited`: by type, the conditions to report unless a more important problem is seen.
    """
    counts = facts.counts
    generation = facts.marker.generation
    is_ready = ready(
        facts.marker,
        counts,
        is_claimed=bool(facts.conflicts),
        previous=previous_ready(marker, generation),
        lasting=lasting,
    )
    conditions = (
        synced(facts),
        conflict(facts.conflicts, facts.foreign, inherited.get(CONFLICT)),
        degraded(facts, inherited.get(DEGRADED)),
        is_ready,
    )
    return PodProbeMarkerStatus(
        observed_generation=generation,
        matched_pods=counts.matched,
        succeeded=counts[InState(ProbeState.SUCCEEDED)],
        failed=counts[InState(ProbeState.FAILED)],
        unknown=counts[InState(ProbeState.UNKNOWN)],
        nodes_behind=len(counts.on_nodes(NODES_BEHIND)),
        conditions=stamped(conditions, marker, generation, now),
    )


def deleted_status(
    marker: PodProbeMarker,
    generation: int,
    *,
    nodes: Sequence[str],
    pod: NamespacedName | None,
    refusals: Mapping[NamespacedName, str],
    now: datetime,
) -> PodProbeMarkerStatus:
    """The status of a deleted marker of which `nodes` still hold entries, or `pod` still has marks."""
    conditions = [deleting(nodes, pod)]
    refused = not_marked(refusals)
    if refused:
        conditions.append(Condition(DEGRADED, "True", NOT_MARKED, refused))
    return PodProbeMarkerStatus(
        observed_generation=generation,
        succeeded=0,
        failed=0,
        unknown=0,
        nodes_behind=len(nodes),
        conditions=stamped(conditions, marker, generation, now),
    )


def encode_status(status: PodProbeMarkerStatus) -> bytes:
    """Encode a merge patch of the whole status, also of zeros."""
    names = PodProbeMarkerStatus.__struct_encode_fields__
    values = msgspec.structs.astuple(status)
    whole = dict(zip(names, values, strict=True))
    return msgspec.json.encode({"status": whole})


def differs(wanted: PodProbeMarkerStatus, current: PodProbeMarkerStatus | None) -> bool:
    """Whether a write would change anything but times, which never change alone."""
    if current is None:
        return True
    return _without_times(wanted) != _without_times(current)


def _without_times(status: PodProbeMarkerStatus) -> PodProbeMarkerStatus:
    conditions = []
    for condition in status.conditions:
        without_time = replace(condition, last_transition_time=None)
        conditions.append(without_time)
    return replace(status, conditions=tuple(conditions))
