"""Authentication: bearer tokens, the refusal of web pages, and the reviews that other servers send.

Source: apiserver pkg/authentication/token/tokenfile (`--token-auth-file`), kubernetes
pkg/registry/authentication/tokenreview, pkg/registry/authorization/subjectaccessreview.
Differs: the token table is fixed when the server is created; a callback answers access reviews.
"""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from kruise_probe_playground.apiserver.bodies import read_review
from kruise_probe_playground.apiserver.failures import Failure, bad_request
from kruise_probe_playground.apiserver.schema import Json

AUTHENTICATED: Final = "system:authenticated"
TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHOAMI_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS: Final = {
    TOKEN_REVIEWS: "TokenReview",
    ACCESS_REVIEWS: "SubjectAccessReview",
    SELF_REVIEWS: "SelfSubjectAccessReview",
    WHOAMI_REVIEWS: "SelfSubjectReview",
}
"""The kind of review by path."""


class User(NamedTuple):
    """A user as TokenReview describes one."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def all_groups(self) -> tuple[str, ...]:
        """The groups with `system:authenticated`, which the API server adds."""
        return (*self.groups, AUTHENTICATED)


Tokens = Mapping[str, User]
"""The token table: bearer token to user. An empty one accepts every request, without a token."""


def user_of(authorization: str, tokens: Tokens) -> User | None:
    """The user of an `Authorization` header; None if its token is not in the table."""
    scheme, _, token = authorization.partition(" ")
    return tokens.get(token.strip()) if scheme.lower() == "bearer" else None


def check_no_web_page(headers: Mapping[str, str]) -> None:
    """Refuse the requests of web pages.

    A browser sends the requests of any page to loopback, also if the page's own name resolves to loopback. Such a
    request has the header Origin, or the page's name as Host; the request of a program has neither.
    """
    origin, host = headers.get("Origin"), headers.get("Host")
    if origin is not None:
        raise _web_page(f'the request has the header "Origin: {origin}"')
    if host is not None and not _is_loopback(host):
        raise _web_page(
            f'the request has the header "Host: {host}", which is neither a loopback address nor localhost'
        )


def _web_page(why: str) -> Failure:
    message = (
        f"forbidden: {why}; this playground's API server refuses requests that a web page can send:"
        " use kubectl or another program, without that header"
    )
    return Failure(403, "Forbidden", message, details={})


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


class _Attributes(msgspec.Struct):
    path: str = ""
    verb: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""

    @property
    def resource_or_path(self) -> str:
        return self.path or "/".join(filter(None, (self.resource, self.subresource)))


class _Spec(msgspec.Struct, rename="camel"):
    token: str = ""
    user: str = ""
    non_resource_attributes: _Attributes | None = None
    resource_attributes: _Attributes | None = None


class _Review(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


def review_response(
    path: str,
    body: bytes,
    content_type: str,
    user: str,
    *,
    tokens: Tokens,
    allows: Callable[[str, str, str, str], bool],
) -> Json:
    """Return the review that `user` sent with its status; `allows` decides about (user, verb, resource or path, namespace)."""
    kind, api_version = REVIEWS[path], "/".join(path.split("/")[2:4])
    sent = {"kind": kind, "apiVersion": api_version, **read_review(kind, body, content_type)}
    try:
        spec = msgspec.convert(sent, _Review).spec
    except msgspec.MsgspecError as error:
        raise bad_request(f"the body is not a review: {error}") from error
    if path == TOKEN_REVIEWS:
        return {**sent, "status": _token_status(spec.token, tokens)}
    if path == WHOAMI_REVIEWS:
        return {**sent, "status": {"userInfo": {"username": user, "groups": [AUTHENTICATED]}}}
    access = spec.non_resource_attributes or spec.resource_attributes or _Attributes()
    subject = user if path == SELF_REVIEWS else spec.user
    allowed = allows(subject, access.verb, access.resource_or_path, access.namespace)
    return {**sent, "status": {"allowed": allowed}}


def _token_status(token: str, tokens: Tokens) -> Json:
    user = tokens.get(token)
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {
        "authenticated": True,
        "user": {"username": user.name, "groups": list(user.all_groups)},
    }
