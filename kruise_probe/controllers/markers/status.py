"""Encodes and compares the status of markers, and finds fields that the server prunes. Pure functions.

Source: Kruise pkg/controller/podprobemarker (status update).
Differs: a merge patch that also writes zeros; fields that the installed CRD prunes are not compared.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kruise_probe.api.v1alpha1 import Condition, PodProbeMarkerStatus

OUR_FIELDS: Final = ("succeeded", "failed", "unknown", "nodes_behind", "conditions")
"""Status fields that are not in Kruise's CRD."""


def encode_status(status: PodProbeMarkerStatus) -> bytes:
    """Encodes a merge patch of the whole status."""
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
    wanted: PodProbeMarkerStatus, answer: PodProbeMarkerStatus | None
) -> frozenset[str]:
    """The fields of `wanted` that the server pruned."""
    return frozenset(
        field
        for field in OUR_FIELDS
        if getattr(wanted, field) is not None and getattr(answer, field, None) is None
    )


def _comparable(value: int | Sequence[Condition] | None) -> object:
    """Conditions by type, without times: a time never changes alone."""
    if value is None or isinstance(value, int):
        return value
    return {
        each.type: (each.status, each.reason, each.message, each.observed_generation)
        for each in value
    }
