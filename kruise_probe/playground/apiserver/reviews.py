"""TokenReview and SubjectAccessReview: what a server with metrics asks of the API server.

Source: apiserver pkg/authentication, kubernetes pkg/registry/authorization/subjectaccessreview.
Differs: both answer from the server's own table and callback; they are in no discovery document.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from kruise_probe.playground.apiserver.failures import bad_request
from kruise_probe.playground.apiserver.schema import Json
from kruise_probe.playground.apiserver.users import Tokens

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PATHS: Final = frozenset({TOKEN_REVIEWS, ACCESS_REVIEWS})

Allows = Callable[[str, str, str], bool]
"""Whether a user may do a verb to a path."""


class _Attributes(msgspec.Struct):
    path: str = ""
    verb: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    token: str = ""
    user: str = ""
    non_resource_attributes: _Attributes = msgspec.field(default_factory=_Attributes)


class _Review(msgspec.Struct):
    spec: _Spec


def answer_review(path: str, body: bytes, *, tokens: Tokens, allows: Allows) -> Json:
    """The review with its status.

    Raises:
        Failure: the body is no review.
    """
    try:
        spec = msgspec.json.decode(body, type=_Review).spec
        sent: Json = msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise bad_request(f"the body is not a review: {error}") from error
    if path == TOKEN_REVIEWS:
        return {**sent, "status": _token_status(spec.token, tokens)}
    attributes = spec.non_resource_attributes
    return {**sent, "status": {"allowed": allows(spec.user, attributes.verb, attributes.path)}}


def _token_status(token: str, tokens: Tokens) -> Json:
    user = tokens.get(token)
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {
        "authenticated": True,
        "user": {"username": user.name, "groups": list(user.all_groups)},
    }
