"""AdmissionReview requests and responses.

Source: k8s.io/api admission/v1; apiserver pkg/admission/plugin/webhook/errors for how a denial is shown to the user.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS

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
