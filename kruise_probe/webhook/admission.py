"""AdmissionReview requests and responses, and the review of PodProbeMarkers.

Source: k8s.io/api admission/v1; apiserver pkg/admission/plugin/webhook/errors for how a denial is shown to the user;
Kruise pkg/webhook/podprobemarker/validating; apiextensions' ratcheting for which fields updates may keep.
Differs: reports all errors at once, each with its field.
"""

import base64
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.problems import ErrorKind, Problem, first_errors, violation
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.api.validation import (
    fields_without_effect,
    marker_errors,
)

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
MAX_WARNING: Final = 256
"""Characters of one warning. The API server truncates longer ones, and drops warnings beyond 4 KB in total."""

MAX_VALUES: Final = 30_000
"""Values in one object; a valid marker has fewer."""

_NOT_A_REVIEW: Final = f"the request body is not an {KIND} of {API_VERSION}"
_ABSENT: Final = msgspec.Raw(b"null")


class BadReview(Exception):
    """The bytes are not an AdmissionReview."""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An admission request; `object` and `old_object` stay undecoded until a handler decodes them."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = _ABSENT
    old_object: msgspec.Raw = _ABSENT


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    request: AdmissionRequest
    api_version: str = API_VERSION
    kind: str = KIND


class AdmissionResponse(NamedTuple):
    """Allows the request, or denies it with `status`. `patch` is a JSON patch."""

    status: dict[str, Any] | None = None
    warnings: Sequence[str] = ()
    patch: Sequence[dict[str, Any]] = ()


ALLOWED: Final = AdmissionResponse()


def decode_review(body: bytes) -> AdmissionRequest:
    """Decode a review.

    Raises:
        BadReview: the body is not a review; the message names the field.
    """
    try:
        review = msgspec.json.decode(body, type=_Review)
    except DECODE_ERRORS as error:
        raise BadReview(f"{_NOT_A_REVIEW}: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        found = f"{review.kind} of {review.api_version}"
        raise BadReview(f"{_NOT_A_REVIEW}: it is {found[:MAX_WARNING]}")
    return review.request


def has_too_many_values(raw: msgspec.Raw) -> bool:
    """Whether decoding would take long. Counting commas is a hundred times cheaper than decoding the values."""
    return bytes(raw).count(b",") > MAX_VALUES


def encode_review(request: AdmissionRequest, response: AdmissionResponse) -> bytes:
    """Encode the AdmissionReview to return."""
    wire: dict[str, Any] = {"uid": request.uid, "allowed": response.status is None}
    if response.status is not None:
        wire["status"] = response.status
    if response.warnings:
        wire["warnings"] = [each[:MAX_WARNING] for each in response.warnings]
    if response.patch:
        wire["patchType"] = "JSONPatch"
        wire["patch"] = base64.b64encode(msgspec.json.encode(response.patch)).decode()
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": wire})


def denied(code: int, reason: str, message: str, **details: Any) -> AdmissionResponse:
    """Deny a request with an error in the API server's format."""
    return AdmissionResponse({"code": code, "reason": reason, "message": message, **details})


def review_marker(
    request: AdmissionRequest, *, allowed_labels: Collection[str] = ()
) -> AdmissionResponse:
    """Deny an invalid marker, and warn about fields without effect. Unchanged parts of an update are not validated.

    So a marker stored before the rules existed can still be labelled, and can lose its finalizer on deletion.
    `allowed_labels` are the keys of the manager's --allowed-label-keys.
    """
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return ALLOWED
    kind, name = MARKERS.kind, request.name
    if has_too_many_values(request.object):
        message = f'{kind} "{name}" has more than {MAX_VALUES} values, which is too large to validate; create several objects instead'
        return denied(413, "RequestEntityTooLarge", message)
    try:
        marker = MARKERS.decode(request.object)
    except DECODE_ERRORS as error:
        message = (
            f'{kind} "{name}" cannot be decoded: {error}; see kubectl explain {kind.lower()}.spec'
        )
        return denied(422, "Invalid", message)
    errors = first_errors(_new_errors(marker, _old_marker(request), allowed_labels))
    if errors:
        name, listed = marker.metadata.name, ", ".join(map(str, errors))
        message = f'{kind} "{name}" is invalid: ' + (f"[{listed}]" if len(errors) > 1 else listed)
        causes = [error.cause for error in errors]
        details = {"name": name, "kind": kind, "causes": causes}
        return denied(422, "Invalid", message, details=details)
    return AdmissionResponse(
        warnings=[
            f"{path} has no effect: probes of a marker never restart a container"
            for path in fields_without_effect(marker.spec)
        ]
    )


def _old_marker(request: AdmissionRequest) -> PodProbeMarker | None:
    """Decode the old marker; None on creation, when it is null, and if it was stored before its CRD had types or bounds."""
    if has_too_many_values(request.old_object):
        return None
    try:
        return MARKERS.decode(request.old_object)
    except DECODE_ERRORS:
        return None


def _new_errors(
    new: PodProbeMarker, old: PodProbeMarker | None, allowed_labels: Collection[str]
) -> Iterator[Problem]:
    """Errors of a new marker, or of the changed parts of an update (the selector, everything else).

    They end with the first list that is too long: it may have a hundred thousand items.
    """
    if old is not None and old.spec == new.spec:
        return
    same_selector = old is not None and old.spec.selector == new.spec.selector
    for error in marker_errors(new.spec, old.spec if old else None, allowed_labels=allowed_labels):
        if same_selector and error.path.startswith("spec.selector"):
            continue
        yield error
        if error.reason is ErrorKind.TOO_MANY:
            why = (
                "these items and the fields after them are not validated; there may be more errors"
            )
            yield violation(error.path, ErrorKind.TOO_MANY, why)
            return
