"""The status of markers: what to write, in which patch, and whether a write changes anything. Pure functions.

Source: Kruise pkg/controller/podprobemarker (status update).
Differs: everything but observedGeneration and matchedPods. A merge patch also writes zeros. Fields that the installed
CRD prunes are not compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import Condition
from kruise_probe.api.v1alpha1 import PodProbeMarker, PodProbeMarkerStatus, ProbeState
from kruise_probe.controllers.markers.conditions import (
    conflict,
    degraded,
    deletion_complete,
    deletion_waits,
    not_marked,
    stamped,
    synced,
)
from kruise_probe.controllers.markers.counts import StatusCounts
from kruise_probe.controllers.pods.claims import ClaimConflict

OUR_FIELDS: Final = ("succeeded", "failed", "unknown", "nodes_behind", "conditions")
"""Status fields that are not in Kruise's CRD."""


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


def waiting_status(
    marker: PodProbeMarker,
    generation: int,
    *,
    nodes: Sequence[str],
    pod: NamespacedName | None,
    refusals: Mapping[NamespacedName, str],
    now: datetime,
) -> PodProbeMarkerStatus:
    """The status of a deleted marker of which `nodes` still hold entries, or `pod` still has marks."""
    previous = _conditions(marker)
    conditions = [deletion_waits(nodes, pod)]
    if refusals:
        conditions.append(not_marked(refusals))
    changed = {
        each.type: stamped(each, previous.get(each.type), generation, now) for each in conditions
    }
    return msgspec.structs.replace(
        marker.status or PodProbeMarkerStatus(),
        observed_generation=generation,
        nodes_behind=len(nodes),
        conditions=tuple((previous | changed).values()),
    )


def deleted_status(marker: PodProbeMarker, generation: int, now: datetime) -> PodProbeMarkerStatus:
    """The status of a deleted marker that only finalizers of others keep."""
    condition = deletion_complete()
    previous = _conditions(marker).get(condition.type)
    return PodProbeMarkerStatus(
        observed_generation=generation,
        matched_pods=0,
        succeeded=0,
        failed=0,
        unknown=0,
        nodes_behind=0,
        conditions=(stamped(condition, previous, generation, now),),
    )


def _conditions(marker: PodProbeMarker) -> dict[str, Condition]:
    return {each.type: each for each in (marker.status and marker.status.conditions) or ()}


def encode_status(status: PodProbeMarkerStatus) -> bytes:
    """Encode a merge patch of the whole status."""
    body: dict[str, Any] = {
        "observedGeneration": status.observed_generation,
        "matchedPods": status.matched_pods,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "unknown": status.unknown,
        "nodesBehind": status.nodes_behind,
        "conditions": status.conditions,
    }
    return msgspec.json.encode({"status": body})


def differs(
    wanted: PodProbeMarkerStatus, current: PodProbeMarkerStatus | None, pruned: frozenset[str]
) -> bool:
    """Whether a write would change any field that the server stores."""
    if current is None or (wanted.observed_generation, wanted.matched_pods) != (
        current.observed_generation,
        current.matched_pods,
    ):
        return True
    return any(
        _comparable(getattr(wanted, field)) != _comparable(getattr(current, field))
        for field in OUR_FIELDS
        if field not in pruned
    )


def pruned_fields(
    wanted: PodProbeMarkerStatus, response: PodProbeMarkerStatus | None
) -> frozenset[str]:
    """The fields of `wanted` that the server pruned."""
    return frozenset(
        field
        for field in OUR_FIELDS
        if getattr(wanted, field) is not None and getattr(response, field, None) is None
    )


def _comparable(value: int | Sequence[Condition] | None) -> object:
    """Conditions by type, without times: a time never changes alone."""
    if value is None or isinstance(value, int):
        return value
    return {
        each.type: (each.status, each.reason, each.message, each.observed_generation)
        for each in value
    }
