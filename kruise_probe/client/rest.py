"""The REST client of the API server: typed requests and responses; error responses are exceptions.

`request` builds the requests, `sender` sends them (deadlines, retries, concurrency), the resource decodes.

Source: client-go rest/client.go and request.go; tools/cache/listwatch.go.
Differs: one client for all kinds, typed by its resource argument. Only lists request compression: decompressing a
large response takes less CPU than decrypting it uncompressed. The server never compresses a small one.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, ListPage, Resource
from kruise_probe.api.meta import DECODE_ERRORS, ApiObject, ObjectMeta
from kruise_probe.client import request as requests
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.request import PatchType, Request
from kruise_probe.client.sender import Sender
from kruise_probe.client.transport import Transport
from kruise_probe.client.watch import WatchStream
from kruise_probe.client.websocket import Handshake, WebSocket

T = TypeVar("T", bound=KubeObject)

_metadata_decoder: Final = msgspec.json.Decoder(ApiObject)


class RestClient:
    """Client of one API server: an async context manager that owns its connections.

    At most `max_in_flight` requests are in flight, without watches. `before_send` is called right before
    a write is sent, also on each retry. Its exception cancels the write and reaches the caller.
    """

    def __init__(
        self,
        *,
        config: ClusterConfig,
        field_manager: str,
        user_agent: str,
        max_in_flight: int = 64,
        qps: float = 0.0,
        burst: int = 0,
        before_send: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        self._field_manager = field_manager
        self._transport = Transport(config, user_agent=user_agent, before_send=before_send)
        self._sender = Sender(
            self._transport,
            config,
            max_in_flight=max_in_flight,
            qps=qps,
            burst=burst,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self._transport.__aexit__(*reason)

    def server_now(self) -> datetime:
        """The API server's time; the local time before the first response."""
        return self._transport.server_now()

    async def get(self, resource: Resource[T], key: NamespacedName, *, subresource: str = "") -> T:
        """Get one object.

        Raises:
            KubeError: from every method of this class. ApiError is an error response; ConnectionFailed is
                no usable response.
        """
        request = requests.get(resource, key, subresource=subresource)
        return _decode(resource, await self._send(request), request, key)

    async def list_page(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        limit: int = 500,
        continue_token: str = "",
        resource_version: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> ListPage[T]:
        """Return one page; `limit` 0 returns all objects at once. Raises Expired for an expired token."""
        request = requests.list_page(
            resource,
            namespace=namespace,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            field_selector=field_selector,
            label_selector=label_selector,
        )
        body = await self._send(request)
        try:
            page = resource.decode_list(body)
        except DECODE_ERRORS as error:
            raise ConnectionFailed(f"{request}: the response is not a list: {error}") from error
        return page

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        *,
        timeout_seconds: float,
        namespace: str = "",
        resource_version: str = "",
        field_selector: str = "",
        label_selector: str = "",
        send_initial_events: bool = False,
    ) -> AsyncIterator[WatchStream[T]]:
        """Open a watch. The iterator ends when the server ends the watch, after `timeout_seconds`.

        Iterating raises Expired and other ApiErrors for ERROR events. It raises ConnectionFailed after
        `watch.READ_DEADLINE_SECONDS` without data, or when the connection broke. Leaving the context closes the
        connection.
        """
        request = requests.watch(
            resource,
            namespace=namespace,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            send_initial_events=send_initial_events,
            field_selector=field_selector,
            label_selector=label_selector,
        )
        response = await self._sender.open_stream(request)
        stream = response.stream
        if stream is None:
            raise ConnectionFailed(
                f"{request}: the server responded with status {response.status} instead of a stream"
            )
        try:
            yield WatchStream(stream, resource, request)
        finally:
            stream.close()

    @asynccontextmanager
    async def open_pod_stream(
        self,
        pod: NamespacedName,
        subresource: str,
        query: Sequence[tuple[str, str]],
        *,
        protocol: str,
    ) -> AsyncIterator[WebSocket]:
        """Open a WebSocket to `exec` or `portforward` of a pod. Leaving the context closes it."""
        handshake = Handshake(protocol)
        request = requests.pod_stream(pod, subresource, query, upgrade=handshake.header_lines)
        response = await self._sender.open_stream(request)
        stream = response.stream
        if stream is None:
            raise ConnectionFailed(f"{request}: {handshake.problem(response)}")
        try:
            if problem := handshake.problem(response):
                raise ConnectionFailed(f"{request}: {problem}")
            yield WebSocket(stream, request)
        finally:
            stream.close()

    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T:
        """Create the object in `body`. Raises AlreadyExists if the name is taken."""
        request = requests.create(
            resource, body, namespace=namespace, field_manager=self._field_manager
        )
        return _decode(resource, await self._send(request), request)

    async def replace_for_metadata(
        self, resource: Resource[Any], key: NamespacedName, body: bytes, *, subresource: str = ""
    ) -> ObjectMeta:
        """Update the object, or its subresource. Return only its metadata, which saves the encoding of a large object.

        Raises:
            Conflict: the resource version in `body` is not current.
        """
        request = requests.replace(
            resource,
            key,
            body,
            subresource=subresource,
            field_manager=self._field_manager,
        )
        return _checked(request, _metadata_decoder.decode, await self._send(request), key).metadata

    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> T:
        request = requests.patch(
            resource,
            key,
            body,
            patch_type=patch_type,
            subresource=subresource,
            field_manager=self._field_manager,
        )
        return _decode(resource, await self._send(request), request, key)

    async def delete(
        self,
        resource: Resource[T],
        key: NamespacedName,
        *,
        uid: str = "",
    ) -> T | None:
        """Delete the object. Return it if finalizers or a grace period keep it, or None if it is gone.

        Raises:
            Conflict: it has another uid.
        """
        request = requests.delete(resource, key, uid=uid)
        body = await self._send(request)
        return None if _is_status(body) else _decode(resource, body, request, key)

    async def get_raw(self, target: str) -> bytes:
        """Return the body of `GET target` (path and query)."""
        return await self.request_raw("GET", target)

    async def request_raw(
        self, method: str, target: str, body: bytes | None = None, content_type: str = requests.JSON
    ) -> bytes:
        """Send any request and return the body. Only GET is retried after a broken connection."""
        return await self._send(
            Request(
                method,
                target,
                target,
                body,
                content_type if body is not None else "",
                repeatable=method == "GET",
            )
        )

    async def _send(self, request: Request) -> bytes:
        return (await self._sender.send(request)).body


class ResourceListerWatcher(Generic[T]):
    """Lists and watches one resource with a namespace and selectors. Has no state."""

    def __init__(
        self,
        client: RestClient,
        resource: Resource[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector

    async def list_page(
        self, *, limit: int, continue_token: str, resource_version: str
    ) -> ListPage[T]:
        return await self._client.list_page(
            self._resource,
            namespace=self._namespace,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )

    def watch(
        self, *, resource_version: str, timeout_seconds: float, send_initial_events: bool
    ) -> AbstractAsyncContextManager[WatchStream[T]]:
        return self._client.watch(
            self._resource,
            namespace=self._namespace,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            send_initial_events=send_initial_events,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )


class _OfKind(msgspec.Struct):
    kind: str = ""


def _is_status(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_OfKind).kind == "Status"
    except DECODE_ERRORS:
        return False


def _decode(
    resource: Resource[T], body: bytes, request: Request, key: NamespacedName | None = None
) -> T:
    return _checked(request, resource.decode, body, key)


def _checked(
    request: Request, decode: Callable[[bytes], T], body: bytes, key: NamespacedName | None
) -> T:
    """Decode a stored object. Other JSON may decode too, as an object whose fields are all absent.

    A proxy or gateway may respond with 200 and a body of its own.
    """
    try:
        found = decode(body)
        if not found.resource_version or key not in (None, found.key):
            raise msgspec.ValidationError(
                f"it is {found.key} with resourceVersion {found.resource_version!r}"
            )
    except DECODE_ERRORS as error:
        raise ConnectionFailed(f"{request}: the response is not that object: {error}") from error
    return found
