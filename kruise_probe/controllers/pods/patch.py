"""Strategic merge patches of `pods/status`: one for all changes of a pod or, if that is invalid, one for each part.

A patch carries `metadata.uid`: if the pod was replaced under the same name, the API server returns 422. A patch
contains only our own keys and condition types, so it never overwrites changes of other writers.

Source: apimachinery strategicpatch (merge key `type` of conditions, `$patch: delete`).
"""

from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    first_line,
)
from kruise_probe.api.keys import ProbeName
from kruise_probe.api.pods import Pod, PodCondition
from kruise_probe.controllers.pods.claims import Claims, WantedItems
from kruise_probe.controllers.pods.marking import Changes, same_condition

EVERY_MARKER: Final = ""
"""In place of a marker's name: the refused changes belong to several markers."""

_encoder = msgspec.json.Encoder()


class PatchPart(NamedTuple):
    """Changes that are written in one patch, and the name of their marker."""

    marker: str
    changes: Changes


def encode_patch(pod: Pod, changes: Changes) -> bytes:
    metadata: dict[str, Any] = {"uid": pod.uid}
    if changes.labels:
        metadata["labels"] = changes.labels
    if changes.annotations:
        metadata["annotations"] = changes.annotations
    body: dict[str, Any] = {"metadata": metadata}
    if changes.conditions or changes.deleted:
        written = [_entry(each, pod.condition(each.type)) for each in changes.conditions]
        deleted = [{"$patch": "delete", "type": each} for each in changes.deleted]
        body["status"] = {"conditions": written + deleted}
    return _encoder.encode(body)


def _entry(condition: PodCondition, current: PodCondition | None) -> dict[str, str | None]:
    """Encode a condition. Omit unchanged times, and texts that are empty and not set."""
    entry: dict[str, str | None] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason or None,
        "message": condition.message or None,
        "lastProbeTime": condition.last_probe_time,
        "lastTransitionTime": condition.last_transition_time,
    }
    removed = {
        "reason": current is not None and current.reason,
        "message": current is not None and current.message,
    }
    return {name: text for name, text in entry.items() if text or removed.get(name)}


def was_applied(changes: Changes, written: Pod) -> bool:
    """Whether the response to a patch shows what was sent."""
    conditions = {each.type: each for each in written.conditions}
    return (
        all(written.labels.get(key) == value for key, value in changes.labels.items())
        and all(written.annotations.get(key) == value for key, value in changes.annotations.items())
        and all(same_condition(conditions.get(each.type), each) for each in changes.conditions)
        and conditions.keys().isdisjoint(changes.deleted)
    )


def parts_of(changes: Changes, claims: Claims) -> list[PatchPart]:
    """Split changes: one part with conditions and removals, then one per marker with its labels and annotations.

    So a value that the API server refuses only affects its own marker.
    """
    left = Changes(dict(changes.labels), dict(changes.annotations), *changes[2:])
    by_marker: dict[str, Changes] = {}
    for claim in claims.claims:
        marker = ProbeName.parse(claim.name).marker
        part = by_marker.setdefault(marker, Changes({}, {}, [], []))
        for wanted in claim.wanted.values():
            _move(wanted.labels, left.labels, part.labels)
            _move(wanted.annotations, left.annotations, part.annotations)
    parts = [PatchPart(EVERY_MARKER, left), *(PatchPart(*each) for each in by_marker.items())]
    return [each for each in parts if each.changes]


def _move(
    wanted: WantedItems,
    left: dict[str, str | None],
    part: dict[str, str | None],
) -> None:
    """Move the values of the keys of `wanted` from `left` to `part`; removals stay in `left`."""
    for key, _ in wanted:
        value = left.get(key)
        if value is not None:
            part[key] = value
            del left[key]


def pod_is_gone(error: KubeError) -> bool:
    """Whether the error means that the pod with this uid no longer exists."""
    match error:
        case NotFound():
            return True
        case Invalid() | Conflict():
            return "metadata.uid" in error.message or "Precondition failed: UID" in error.message
        case _:
            return False


def refusal(error: KubeError) -> str:
    """The short reason of a permanent refusal; empty for a transient error."""
    match error:
        case BadRequest() | Forbidden() | Invalid() if not pod_is_gone(error):
            return f"{error.code} {first_line(error.message)}"
        case _:
            return ""
