"""Authorize /metrics with a TokenReview and a SubjectAccessReview for `get /metrics`.

Source: controller-runtime pkg/metrics/filters (WithAuthenticationAndAuthorization).
Differs: returns 503 when the API server cannot be reached. Limits concurrent reviews of unknown tokens, so a flood
of requests here does not become a flood on the API server.
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec
from cachetools import TLRUCache

from kruise_probe.api.errors import ConnectionFailed, KubeError
from kruise_probe.api.times import loop_time
from kruise_probe.serving.http_server import HttpHandler
from kruise_probe.wire.requests import HttpRequest, HttpResponse

ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 10.0
MAX_CACHED: Final = 256
"""More than the tokens that can be denied in `DENIED_SECONDS`."""
MAX_REVIEWS: Final = 4
"""Concurrent reviews of unknown tokens."""
HOLD_SECONDS: Final = 0.5
"""A review slot stays taken this long after its review, so at most eight unknown tokens a second are reviewed."""
WAIT_SECONDS: Final = 2.0
"""How long a request waits for a review slot."""
REVIEW_SECONDS: Final = 5.0


_REMEDY: Final = "send the token of a user with the ClusterRole kruise-probe-metrics-reader"

Post = Callable[[str, str, bytes], Awaitable[bytes]]
"""Sends method, path and body to the API server and returns the response body."""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    """Status of a TokenReview (the first two fields) or of a SubjectAccessReview."""

    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus


class Decision(NamedTuple):
    """Result of a review: HTTP status 200, 401, 403 or 503, valid `until` this loop time."""

    status: int
    text: str
    until: float


class MetricsGuard:
    """Wraps a handler and admits only bearer tokens whose user may `get` the path.

    Caches decisions by the digest of the token, never the token itself. Denials leave the cache when they expire, and
    are few because of the review slots, so a flood of invalid tokens does not evict valid ones.
    """

    def __init__(self, handler: HttpHandler) -> None:
        self._post: Post | None = None
        self._handler = handler
        self._decisions: TLRUCache[bytes, Decision] = TLRUCache(
            MAX_CACHED, ttu=_kept_until, timer=loop_time
        )
        self._review_slots = asyncio.Semaphore(MAX_REVIEWS)

    def connect(self, post: Post) -> None:
        """Set what sends the reviews. Until then every request with a token gets 503."""
        self._post = post

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return _refusal(401, f"{request.path} requires a bearer token; {_REMEDY}")
        decision = await self._decide(token, request.path)
        if decision.status != 200:
            return _refusal(decision.status, decision.text)
        return await self._handler(request)

    async def _decide(self, token: str, path: str) -> Decision:
        digest = hashlib.sha256(token.encode()).digest()
        decision = self._decisions.get(digest)
        if decision is None:
            decision = await self._review_unknown(token, path)
        elif decision.until <= loop_time():
            decision = await self._review(token, path)
        if decision.status != 503:
            self._decisions[digest] = decision
        return decision

    async def _review_unknown(self, token: str, path: str) -> Decision:
        """Review a token in a slot, which stays taken for `HOLD_SECONDS` afterwards."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._review_slots.acquire()
        except TimeoutError:
            text = "too many unknown tokens are being reviewed; try again in a second"
            return Decision(503, text, 0.0)
        try:
            return await self._review(token, path)
        finally:
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self._review_slots.release)

    async def _review(self, token: str, path: str) -> Decision:
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                authentication = await self._send(
                    "authentication",
                    "TokenReview",
                    token=token,
                )
                if not authentication.authenticated:
                    text = f"the API server rejected the bearer token; {_REMEDY}"
                    return Decision(401, text, loop_time() + DENIED_SECONDS)
                user = authentication.user
                access = await self._send(
                    "authorization",
                    "SubjectAccessReview",
                    user=user.username,
                    uid=user.uid,
                    groups=user.groups,
                    extra=user.extra,
                    nonResourceAttributes={"path": path, "verb": "get"},
                )
        except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
            reason = str(error) or f"no response within {REVIEW_SECONDS:g} s"
            text = f"cannot check the bearer token with the API server: {reason}; try again"
            return Decision(503, text, 0.0)
        if access.allowed and not access.denied:
            return Decision(200, "", loop_time() + ALLOWED_SECONDS)
        text = (
            f'user "{user.username}" cannot get path "{path}"; bind it to the ClusterRole '
            "kruise-probe-metrics-reader"
        )
        return Decision(403, text, loop_time() + DENIED_SECONDS)

    async def _send(self, group: str, kind: str, **spec: Any) -> _ReviewStatus:
        if self._post is None:
            raise ConnectionFailed("this process is still starting")
        version = f"{group}.k8s.io/v1"
        body = msgspec.json.encode(
            {
                "apiVersion": version,
                "kind": kind,
                "spec": spec,
            }
        )
        response = await self._post(
            "POST",
            f"/apis/{version}/{kind.lower()}s",
            body,
        )
        return msgspec.json.decode(response, type=_Review).status


def _kept_until(_digest: bytes, decision: Decision, _now: float) -> float:
    """A token that was allowed stays known after its decision has expired."""
    return math.inf if decision.status == 200 else decision.until


def _refusal(status: int, text: str) -> HttpResponse:
    more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return HttpResponse.of_text(
        f"{status}: {text}\n",
        status=status,
        **more,
    )
