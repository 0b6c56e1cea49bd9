"""Authorize /metrics with a TokenReview and a SubjectAccessReview for `get /metrics`.

Source: controller-runtime pkg/metrics/filters (WithAuthenticationAndAuthorization).
Differs: returns 503 when the API server cannot be reached. Limits concurrent reviews of unknown tokens, so a flood
of requests here does not become a flood on the API server.
"""

import asyncio
import hashlib
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from cachetools import LRUCache

from kruise_probe.api.errors import ConnectionFailed, KubeError
from kruise_probe.serving.http_messages import HttpRequest, HttpResponse
from kruise_probe.serving.http_server import HttpHandler

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 10.0
MAX_CACHED: Final = 256
"""Cached decisions, separately for allowed and denied tokens."""
MAX_REVIEWS: Final = 4
"""Concurrent reviews of unknown tokens."""
HOLD_SECONDS: Final = 0.5
"""A denied token keeps its review slot this long, so at most eight unknown tokens a second are reviewed."""
WAIT_SECONDS: Final = 2.0
"""How long a request waits for a review slot."""
REVIEW_SECONDS: Final = 5.0


_REMEDY: Final = "send the token of a user with the ClusterRole kruise-probe-metrics-reader"


class ReviewClient(Protocol):
    """Sends a request body to the API server and returns the response body."""

    async def request_raw(self, method: str, target: str, body: bytes | None = None) -> bytes: ...


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus


class Decision(NamedTuple):
    """Result of a review: HTTP status 200, 401, 403 or 503, valid `until` this loop time."""

    status: int
    text: str
    until: float


class MetricsGuard:
    """Wraps a handler and admits only bearer tokens whose user may `get` the path.

    Caches decisions by the digest of the token, never the token itself. Allowed and denied tokens have separate
    caches, so a flood of invalid tokens does not evict valid ones.
    """

    def __init__(self, handler: HttpHandler) -> None:
        self._client: ReviewClient | None = None
        self._handler = handler
        self._allowed: LRUCache[bytes, Decision] = LRUCache(MAX_CACHED)
        self._denied: LRUCache[bytes, Decision] = LRUCache(MAX_CACHED)
        self._in_flight: dict[bytes, asyncio.Lock] = {}
        self._review_slots = asyncio.Semaphore(MAX_REVIEWS)

    def connect(self, client: ReviewClient) -> None:
        """Set the client that sends the reviews. Until then every request with a token gets 503."""
        self._client = client

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return _refusal(401, f"{request.path} requires a bearer token; {_REMEDY}")
        decision = await self._decide(token, request.path)
        if decision is None:
            return _refusal(
                503, "too many unknown tokens are being reviewed; try again in a second"
            )
        if decision.status != 200:
            return _refusal(decision.status, decision.text)
        return await self._handler(request)

    async def _decide(self, token: str, path: str) -> Decision | None:
        """Return the decision about a token; None if no review slot became free."""
        digest = hashlib.sha256(token.encode()).digest()
        if decision := self._cached(digest):
            return decision
        # One review per token: concurrent requests with the same token wait for it.
        lock = self._in_flight.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                if decision := self._cached(digest):
                    return decision
                known = digest in self._allowed  # expired, but allowed before
                review = self._review if known else self._review_unknown
                return self._cache(digest, await review(token, path))
        finally:
            if not lock.locked():
                self._in_flight.pop(digest, None)

    def _cached(self, digest: bytes) -> Decision | None:
        decision = self._allowed.get(digest) or self._denied.get(digest)
        now = asyncio.get_running_loop().time()
        return decision if decision is not None and now < decision.until else None

    def _cache(self, digest: bytes, decision: Decision | None) -> Decision | None:
        if decision is None or decision.status == 503:
            return decision
        kept, other = (
            (self._allowed, self._denied)
            if decision.status == 200
            else (self._denied, self._allowed)
        )
        other.pop(digest, None)
        kept[digest] = decision
        return decision

    async def _review_unknown(self, token: str, path: str) -> Decision | None:
        """Review a token in a free slot; a denied token keeps its slot for `HOLD_SECONDS`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._review_slots.acquire()
        except TimeoutError:
            return None
        held_seconds = HOLD_SECONDS
        try:
            decision = await self._review(token, path)
            if decision.status == 200:
                held_seconds = 0.0
            return decision
        finally:
            asyncio.get_running_loop().call_later(held_seconds, self._review_slots.release)

    async def _review(self, token: str, path: str) -> Decision:
        time = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                authentication = await self._post(TOKEN_REVIEWS, _TokenReview, {"token": token})
                if not authentication.status.authenticated:
                    text = f"the API server rejected the bearer token; {_REMEDY}"
                    return Decision(401, text, time() + DENIED_SECONDS)
                user = authentication.status.user
                spec = _access_spec(user, path)
                access = await self._post(ACCESS_REVIEWS, _AccessReview, spec)
        except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
            reason = str(error) or f"no response within {REVIEW_SECONDS:g} s"
            text = f"cannot check the bearer token with the API server: {reason}; try again"
            return Decision(503, text, time())
        if access.status.allowed and not access.status.denied:
            return Decision(200, "", time() + ALLOWED_SECONDS)
        text = (
            f'user "{user.username}" cannot get path "{path}"; bind it to the ClusterRole '
            "kruise-probe-metrics-reader"
        )
        return Decision(403, text, time() + DENIED_SECONDS)

    async def _post(self, target: str, kind: type[Any], spec: dict[str, Any]) -> Any:
        if self._client is None:
            raise ConnectionFailed("this process is still starting")
        body = msgspec.json.encode({**_TYPES[target], "spec": spec})
        return msgspec.json.decode(await self._client.request_raw("POST", target, body), type=kind)


_TYPES: Final = {
    TOKEN_REVIEWS: {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"},
    ACCESS_REVIEWS: {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"},
}


def _access_spec(user: UserInfo, path: str) -> dict[str, Any]:
    return {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        "nonResourceAttributes": {"path": path, "verb": "get"},
    }


def _refusal(status: int, text: str) -> HttpResponse:
    more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return HttpResponse.of_text(f"{status}: {text}\n", status=status, **more)
