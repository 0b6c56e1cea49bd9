"""Authentication: bearer tokens, the refusal of web pages, and the reviews that other servers send.

Source: apiserver pkg/authentication/token/tokenfile (`--token-auth-file`), kubernetes
pkg/registry/authentication/tokenreview, pkg/registry/authorization/subjectaccessreview.
Differs: the token table is fixed when the server is made; every user has all rights, and no group but
system:authenticated.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from kruise_probe_playground.apiserver.failures import Failure, bad_request
from kruise_probe_playground.apiserver.requests import read_json
from kruise_probe_playground.apiserver.schema import Json

AUTHENTICATED: Final = "system:authenticated"
TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REVIEWS: Final = {
    TOKEN_REVIEWS: "TokenReview",
    ACCESS_REVIEWS: "SubjectAccessReview",
}
"""The kind of review by path."""


Tokens = Mapping[str, str]
"""The token table: bearer token to the name of a user. An empty one accepts every request, without a token."""


def check_token(authorization: str, tokens: Tokens) -> None:
    """Fail if the token of an `Authorization` header is not in the table."""
    scheme, _, token = authorization.partition(" ")
    if tokens and (scheme.lower() != "bearer" or token.strip() not in tokens):
        raise Failure(401, "Unauthorized", "Unauthorized")


def check_no_impersonation(headers: Mapping[str, str]) -> None:
    """Refuse a request in the name of another user, instead of doing it in the name of its own."""
    if any(name.lower().startswith("impersonate-") for name in headers):
        raise bad_request("this playground's API server has no impersonation; leave out --as")


def check_no_web_page(headers: Mapping[str, str]) -> None:
    """Refuse the requests of web pages.

    A browser sends the requests of any page to loopback, also if the page's own name resolves to loopback. Such a
    request has the header Origin, or the page's name as Host; the request of a program has neither.
    """
    origin = headers.get("Origin")
    host = headers.get("Host")
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


def review_response(
    path: str,
    body: bytes,
    content_type: str,
    tokens: Tokens,
) -> Json:
    """Return the review that was sent with its status."""
    kind = REVIEWS[path]
    api_version = "/".join(path.split("/")[2:4])
    sent = {
        "kind": kind,
        "apiVersion": api_version,
        **read_json(body, content_type, kind),
    }
    spec = sent.get("spec")
    if not isinstance(spec, dict):
        raise bad_request("the body is not a review: it has no spec")
    if path == TOKEN_REVIEWS:
        name = tokens.get(str(spec.get("token")))
        refused = {"user": {}, "error": "invalid bearer token"}
        accepted = {
            "authenticated": True,
            "user": {"username": name, "groups": [AUTHENTICATED]},
        }
        return {**sent, "status": accepted if name else refused}
    return {**sent, "status": {"allowed": True}}
