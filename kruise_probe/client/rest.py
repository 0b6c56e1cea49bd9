"""The REST client of the API server: it builds a request, sends it with deadline and retries, and decodes the response.

Source: client-go rest/client.go, request.go and with_retry.go; util/flowcontrol/throttle.go; tools/cache/listwatch.go.
Differs: one client for all kinds, typed by its resource argument. Every request except a watch ends within 30 s. The
concurrency is limited. The rate limit is off by default, because the server has its own flow control. Waits have
positive jitter, so that clients do not retry at the same time. If Retry-After is always 0, the wait still doubles. A 5xx
response other than 503 is returned to the caller, because the request may have taken effect. Only lists request
compression: decompressing a large response takes less CPU than decrypting it uncompressed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from prometheus_client import Counter, Histogram

from kruise_probe.api.errors import ConnectionFailed, NoResponse
from kruise_probe.api.meta import (
    DECODE_ERRORS,
    ApiObject,
    KubeObject,
    ListPage,
    NamespacedName,
    ObjectMeta,
    Resource,
    decode_deep,
    run_steps,
)
from kruise_probe.api.times import loop_time
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.client.cluster_config import ClusterConfig
from kruise_probe.client.connection import ConnectionBroken, TlsRefused
from kruise_probe.client.pool import Pool
from kruise_probe.client.request import JSON, REQUEST_SECONDS, PatchType, Request
from kruise_probe.client.retries import wait_or_raise
from kruise_probe.client.transport import Response, Transport
from kruise_probe.client.uploads import LARGE_BYTES, Uploads
from kruise_probe.client.watch import WatchStream

T = TypeVar("T", bound=KubeObject)

MAX_RECONNECTS: Final = 2
"""Maximum immediate retries of a repeatable request after its connection broke. The pool may have several
connections that the server has closed. If a new connection breaks, there is only one more retry."""

REQUESTS = Counter(
    "rest_client_requests_total",
    "Number of HTTP requests, partitioned by status code, method, and host.",
    ("code", "method", "host"),
)
RETRIES = Counter(
    "rest_client_request_retries_total",
    "Number of request retries, partitioned by status code, verb, and host.",
    ("code", "verb", "host"),
)
DURATION = Histogram(
    "rest_client_request_duration_seconds",
    "Request latency in seconds. Broken down by verb, and host.",
    ("verb", "host"),
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
_requests_with = cache(REQUESTS.labels)
_duration_of = cache(DURATION.labels)
"""Finding a series takes longer than counting. The metric itself keeps each series, too."""


class _OfKind(msgspec.Struct, frozen=True):
    kind: str = ""


_metadata_decoder: Final = msgspec.json.Decoder(ApiObject)
_kind_decoder: Final = msgspec.json.Decoder(_OfKind)


class RestClient:
    """Client of one API server: an async context manager that owns its connections, unless it shares a `pool`.

    With `qps`, `burst` requests are sent at once, then `qps` per second. `before_send` is called right before a write is sent, also on each retry. Its exception cancels the
    write and reaches the caller.

    Every method raises KubeError: ApiError is an error response; ConnectionFailed is no usable response.
    """

    def __init__(
        self,
        *,
        config: ClusterConfig,
        field_manager: str,
        user_agent: str,
        qps: float = 0.0,
        burst: int = 0,
        before_send: Callable[[], None] | None = None,
        pool: Pool | None = None,
    ) -> None:
        self.config = config
        self._credentials = config.credentials
        self._query = _query(fieldManager=field_manager)
        self._transport = Transport(
            config, user_agent=user_agent, before_send=before_send, pool=pool
        )
        self._uploads = Uploads()
        self._turn = asyncio.Lock()
        self._tokens: TokenBucket | None = None
        if qps:
            interval = 1.0 / qps
            at_once = max(burst, 1)
            self._tokens = TokenBucket(burst=at_once, interval_seconds=interval)
        self._host = urlsplit(config.server).netloc

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self._transport.__aexit__(*reason)

    def server_now(self) -> datetime:
        """The API server's time; the local time before the first response."""
        return self._transport.server_now()

    async def get(self, resource: Resource[T], key: NamespacedName) -> T:
        """Get one object."""
        target = resource.path(*key)
        request = Request("GET", target)
        response = await self.send(request)
        return await _checked(request, resource.decode, response, key)

    async def list_page(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
        field_selector: str = "",
    ) -> ListPage[T]:
        """Return one page; `limit` 0 returns all objects at once. A continue token replaces the resource version.

        Raises:
            Expired: the token has expired.
        """
        query = _query(
            limit=str(limit) if limit else "",
            **{"continue": continue_token},
            resourceVersion="" if continue_token else resource_version,
            fieldSelector=field_selector,
        )
        target = resource.path(namespace) + query
        request = Request("GET", target, compressed=True)
        response = await self.send(request)
        steps = resource.decode_list(response.body)
        try:
            return await run_steps(steps)
        except DECODE_ERRORS as error:
            raise ConnectionFailed(f"{request}: the response is not a list: {error}") from error

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        *,
        timeout_seconds: float,
        namespace: str = "",
        resource_version: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
    ) -> AsyncIterator[WatchStream[T]]:
        """Open a watch with bookmarks; with `send_initial_events`, a streaming list (KEP-3157).

        The iterator ends when the server ends the watch, after `timeout_seconds`. Iterating raises Expired and other
        ApiErrors for ERROR events. It raises NoResponse after `transport.READ_DEADLINE_SECONDS` without data, and ConnectionFailed when
        the connection broke. Leaving the context closes the connection.
        """
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            timeoutSeconds=str(max(int(timeout_seconds), 1)),
            resourceVersion=resource_version,
            sendInitialEvents="true" if send_initial_events else "",
            resourceVersionMatch="NotOlderThan" if send_initial_events else "",
            fieldSelector=field_selector,
        )
        target = resource.path(namespace) + query
        request = Request("GET", target, streams=True)
        response = await self.send(request)
        if response.stream is None:
            raise ConnectionFailed(
                f"{request}: the server responded with status {response.status} instead of a stream"
            )
        try:
            yield WatchStream(response.stream, resource, request)
        finally:
            response.stream.close()

    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T:
        """Create the object in `body`. Raises AlreadyExists if the name is taken."""
        target = resource.path(namespace) + self._query
        request = Request("POST", target, body, JSON, repeatable=False)
        response = await self.send(request)
        return await _checked(request, resource.decode, response)

    async def replace_for_metadata(
        self,
        resource: Resource[Any],
        key: NamespacedName,
        body: bytes,
        *,
        subresource: str = "",
        deadline_seconds: float = REQUEST_SECONDS,
    ) -> ObjectMeta:
        """Update the object. Request and return only metadata, which saves the encoding of a large object.

        Raises:
            Conflict: the resource version in `body` is not current.
        """
        request = Request(
            "PUT",
            resource.path(*key, subresource) + self._query,
            body,
            JSON,
            repeatable=False,
            metadata_only=True,
            deadline_seconds=deadline_seconds,
        )
        response = await self.send(request)
        updated = await _checked(request, _metadata_decoder.decode, response, key)
        return updated.metadata

    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> T:
        """Patch the object with a merge patch, which is idempotent."""
        target = resource.path(*key, subresource) + self._query
        request = Request("PATCH", target, body, patch_type)
        response = await self.send(request)
        return await _checked(request, resource.decode, response, key)

    async def delete(self, resource: Resource[Any], key: NamespacedName, *, uid: str = "") -> None:
        """Delete the object. It may still exist afterwards, with finalizers or for a grace period.

        Raises:
            Conflict: it has another uid.
        """
        request = Request("DELETE", resource.path(*key))
        if uid:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
            body = msgspec.json.encode(options)
            request = request._replace(body=body, content_type=JSON)
        response = await self.send(request)
        with suppress(*DECODE_ERRORS):
            found = _kind_decoder.decode(response.body)
            if found.kind == "Status":
                return
        await _checked(request, _metadata_decoder.decode, response, key)

    async def request_raw(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """Send any request and return the body. `target` is path and query. Only GET is retried after a broken connection."""
        if body is None:
            content_type = ""
        is_get = method == "GET"
        request = Request(method, target, body, content_type, repeatable=is_get)
        response = await self.send(request)
        return response.body

    async def send(self, request: Request) -> Response:
        """Send `request`, with retries within its deadline, and return the successful response.

        It is retried after 429 or 503 with Retry-After, and after 401 or a failed TLS handshake if credentials or CAs
        could be renewed. If it is repeatable, it is also retried after a broken connection, and on another connection
        after a 5xx on one that worked before.

        Raises:
            ApiError: the server returned an error.
            ConnectionFailed: no usable response within the deadline; for a large body, after its last progress.
        """
        if self._uploads.slow:
            await self._uploads.until_sent(request)
        deadline = loop_time() + request.deadline_seconds
        try:
            async with asyncio.timeout_at(deadline) as timeout:
                if request.body is None or len(request.body) < LARGE_BYTES:
                    return await self._send_until(deadline, request)
                with self._uploads.following(request, timeout) as large:
                    return await self._send_until(deadline, large)
        except TimeoutError as error:
            raise NoResponse(
                f"{request}: {self.config.server} did not respond within {request.deadline_seconds:g} s"
            ) from error

    async def _send_until(self, deadline: float, request: Request) -> Response:
        credentials = self._credentials
        time = asyncio.get_running_loop().time
        retries = reconnects = 0
        renewed = False
        while True:
            if self._tokens is not None:
                async with self._turn:  # A caller that gives up while it waits takes no token.
                    wait = self._tokens.wait_seconds(time())
                    await asyncio.sleep(wait)
                    self._tokens.take(time())
            version = credentials.version
            authorization = credentials.authorization()
            try:
                response = await self._round_trip(request, authorization)
            except TlsRefused:
                if renewed or not await credentials.renew(authorization, version):
                    raise
                renewed = True
                RETRIES.labels("<error>", request.method, self._host).inc()
                continue
            except ConnectionBroken as broken:
                if broken.was_new:  # a server may end TLS 1.3 without an alert after the handshake
                    credentials.reload_files()
                if not request.repeatable or reconnects >= MAX_RECONNECTS:
                    raise
                reconnects = MAX_RECONNECTS if broken.was_new else reconnects + 1
                RETRIES.labels("<error>", request.method, self._host).inc()
                continue
            if 200 <= response.status < 300 or response.stream is not None:
                return response
            rejected = response.status == 401 and not renewed
            if rejected and await credentials.renew(authorization, version):
                renewed = True
            else:
                await wait_or_raise(
                    response, request, retries=retries, left_seconds=deadline - time()
                )
                retries += 1
            RETRIES.labels(str(response.status), request.method, self._host).inc()

    async def _round_trip(self, request: Request, authorization: str | None) -> Response:
        time = asyncio.get_running_loop().time
        sent_at = time()
        code = "<error>"
        try:
            response = await self._transport.round_trip(request, authorization)
            code = str(response.status)
        except ConnectionFailed as error:
            error.args = (f"{request}: {error}",)
            raise
        finally:
            _requests_with(code, request.method, self._host).inc()
            _duration_of(request.method, self._host).observe(time() - sent_at)
        return response


class ResourceListerWatcher(Generic[T]):
    """Lists and watches one resource with a namespace and a field selector. Has no state."""

    def __init__(
        self,
        client: RestClient,
        resource: Resource[T],
        namespace: str = "",
        *,
        field_selector: str = "",
    ) -> None:
        self.list_page: Callable[..., Coroutine[Any, Any, ListPage[T]]] = partial(
            client.list_page, resource, namespace=namespace, field_selector=field_selector
        )
        self.watch: Callable[..., AbstractAsyncContextManager[WatchStream[T]]] = partial(
            client.watch, resource, namespace=namespace, field_selector=field_selector
        )


async def _checked(
    request: Request,
    decode: Callable[[bytes], T],
    response: Response,
    key: NamespacedName | None = None,
) -> T:
    """Decode a stored object. Other JSON may decode too, as an object whose fields are all absent.

    A proxy or gateway may respond with 200 and a body of its own.
    """
    try:
        steps = decode_deep(decode, response.body)
        found = await run_steps(steps)
        if not found.resource_version or key not in (None, found.key):
            raise msgspec.ValidationError(
                f"it is {found.key} with resourceVersion {found.resource_version!r}"
            )
    except DECODE_ERRORS as error:
        raise ConnectionFailed(f"{request}: the response is not that object: {error}") from error
    return found


def _query(**parameters: str) -> str:
    """Return `?a=b&c=d` of the non-empty parameters."""
    present = {name: value for name, value in parameters.items() if value}
    if not present:
        return ""
    query = urlencode(present, quote_via=quote)
    return f"?{query}"
