"""One strategic merge patch of `pods/status` for all changes of a pod, or, should that be invalid, one for each part.

It carries `metadata.uid`: a pod that was replaced under the same name answers 422 instead of taking the marks of
its predecessor. It names nothing but our own keys and condition types, so no concurrent writer loses anything.

Source: apimachinery strategicpatch (merge key `type` of conditions, `$patch: delete`).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
)
from kruise_probe.api.keys import ProbeName
from kruise_probe.api.pods import Pod, PodCondition
from kruise_probe.controllers.pods.claims import Claims
from kruise_probe.controllers.pods.marking import Changes

MAX_REFUSAL_CHARS: Final = 200

EVERY_MARKER: Final = ""
"""In place of a marker's name: what is refused is not one marker's alone."""

_encoder = msgspec.json.Encoder()


class Part(NamedTuple):
    """Changes that stand or fall together, and the name of the marker that wants them."""

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
    """Empty texts are removed where they stand and left out elsewhere; stamps that do not move are left out."""
    entry: dict[str, str | None] = {"type": condition.type, "status": condition.status}
    if condition.reason or (current is not None and current.reason):
        entry["reason"] = condition.reason or None
    if condition.message or (current is not None and current.message):
        entry["message"] = condition.message or None
    if condition.last_probe_time:
        entry["lastProbeTime"] = condition.last_probe_time
    if condition.last_transition_time:
        entry["lastTransitionTime"] = condition.last_transition_time
    return entry


def parts_of(changes: Changes, claims: Claims) -> list[Part]:
    """Conditions and what is to be removed, then the labels and annotations of each marker on their own.

    So a value that the API server does not take costs its marker those, and nobody else anything.
    """
    left = Changes(dict(changes.labels), dict(changes.annotations), *changes[2:])
    by_marker: dict[str, Changes] = {}
    for claim in claims.claims:
        marker = ProbeName.parse(claim.name).marker
        part = by_marker.setdefault(marker, Changes({}, {}, [], []))
        for targets in claim.targets.values():
            _move(targets.labels, left.labels, part.labels)
            _move(targets.annotations, left.annotations, part.annotations)
    parts = [Part(EVERY_MARKER, left), *(Part(*each) for each in by_marker.items())]
    return [each for each in parts if each.changes]


def _move(
    targets: Iterable[tuple[str, str | None]],
    left: dict[str, str | None],
    part: dict[str, str | None],
) -> None:
    """Moves the values that are to be written under the keys of `targets`."""
    for key, _ in targets:
        value = left.get(key)
        if value is not None:
            part[key] = value
            del left[key]


def pod_is_gone(error: KubeError) -> bool:
    """Whether the server says that the pod with this uid does not exist any more."""
    match error:
        case NotFound():
            return True
        case Invalid() | Conflict():
            return "metadata.uid" in error.message or "Precondition failed: UID" in error.message
        case _:
            return False


def refusal(error: KubeError) -> str:
    """Why the server will not take this patch however often it comes, in short; empty for trouble that passes."""
    match error:
        case BadRequest() | Forbidden() | Invalid() if not pod_is_gone(error):
            return f"{error.code} {_first_line(error)}"
        case _:
            return ""


def _first_line(error: ApiError) -> str:
    return error.message.partition("\n")[0][:MAX_REFUSAL_CHARS]
