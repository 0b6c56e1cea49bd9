"""A marker's status on the wire: what to write, whether it differs, and what the server keeps of it. Pure.

Source: Kruise pkg/controller/podprobemarker (status update).
Differs: a merge patch that writes zeros too; fields that the installed CRD prunes are not compared.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kruise_probe.api.v1alpha1 import Condition, PodProbeMarkerStatus

OUR_FIELDS: Final = ("succeeded", "failed", "unknown", "nodes_behind", "conditions")
"""What Kruise's CRD does not have."""


def encode_status(status: PodProbeMarkerStatus) -> bytes:
    """A merge patch of the whole status."""
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
    """Whether a write would change anything, as far as the server keeps it."""
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
    wanted: PodProbeMarkerStatus, answer: PodProbeMarkerStatus | None
) -> frozenset[str]:
    """The fields of `wanted` that the server did not keep."""
    return frozenset(
        field
        for field in OUR_FIELDS
        if getattr(wanted, field) is not None and getattr(answer, field, None) is None
    )


def _comparable(value: int | Sequence[Condition] | None) -> object:
    """Conditions by type, without stamps: they move with the rest, never alone."""
    if value is None or isinstance(value, int):
        return value
    return {
        each.type: (each.status, each.reason, each.message, each.observed_generation)
        for each in value
    }
