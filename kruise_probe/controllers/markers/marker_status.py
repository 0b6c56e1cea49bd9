"""The status of markers: what to write, in which patch, and whether a write changes anything. Pure functions.

Source: Kruise pkg/controller/podprobemarker (status update).
Differs: everything but observedGeneration and matchedPods. A merge patch also writes zeros.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import Condition
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus, ProbeState
from kruise_probe.controllers.markers.conditions import (
    conflict,
    degraded,
    deleting,
    not_marked,
    stamped,
    synced,
)
from kruise_probe.controllers.markers.counts import StatusCounts
from kruise_probe.controllers.pods.claims import ClaimConflict


def marker_status(
    marker: PodProbeMarker,
    counts: StatusCounts,
    *,
    conflicts: Iterable[ClaimConflict] = (),
    node_errors: Mapping[str, str],
    refusals: Mapping[NamespacedName, str],
    now: datetime,
) -> PodProbeMarkerStatus:
    """The status that `marker` should have.

    `conflicts` are those that it lost. `node_errors` says by node
    why a write failed, `refusals` by pod why the API server refuses its marks. observedGeneration is that of the
    counts, as `marker` may be newer.
    """
    by_state, generation = counts.by_state, counts.compiled.generation
    conditions = (
        synced(counts.nodes_behind, node_errors),
        conflict(conflicts),
        degraded(counts, refusals),
    )
    previous = _conditions(marker)
    return PodProbeMarkerStatus(
        observed_generation=generation,
        matched_pods=counts.matched,
        succeeded=by_state[ProbeState.SUCCEEDED],
        failed=by_state[ProbeState.FAILED],
        unknown=by_state[ProbeState.UNKNOWN],
        nodes_behind=len(counts.nodes_behind),
        conditions=tuple(
            stamped(each, previous.get(each.type), generation, now) for each in conditions
        ),
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
    if refusals:
        conditions.append(not_marked(refusals))
    previous = _conditions(marker)
    return PodProbeMarkerStatus(
        observed_generation=generation,
        succeeded=0,
        failed=0,
        unknown=0,
        nodes_behind=len(nodes),
        conditions=tuple(
            stamped(condition, previous.get(condition.type), generation, now)
            for condition in conditions
        ),
    )


def _conditions(marker: PodProbeMarker) -> dict[str, Condition]:
    return {each.type: each for each in (marker.status and marker.status.conditions) or ()}


def encode_status(status: PodProbeMarkerStatus) -> bytes:
    """Encode a merge patch of the whole status, also of zeros."""
    names = PodProbeMarkerStatus.__struct_encode_fields__
    values = msgspec.structs.astuple(status)
    return msgspec.json.encode({"status": dict(zip(names, values, strict=True))})


def differs(wanted: PodProbeMarkerStatus, current: PodProbeMarkerStatus | None) -> bool:
    """Whether a write would change anything but times, which never change alone."""
    return current is None or _without_times(wanted) != _without_times(current)


def _without_times(status: PodProbeMarkerStatus) -> PodProbeMarkerStatus:
    conditions = {
        condition.type: msgspec.structs.replace(condition, last_transition_time=None)
        for condition in status.conditions or ()
    }
    return msgspec.structs.replace(status, conditions=tuple(sorted(conditions.values(), key=_type)))


_type = attrgetter("type")
