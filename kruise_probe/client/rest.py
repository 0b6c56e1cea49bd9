"""Requests to the API server: typed in, typed out, each refusal an exception.

Building is `request`'s, sending (deadlines, repetitions, concurrency) `sender`'s, decoding the resource's.

Source: client-go rest/client.go and request.go.
Differs: one client for all kinds, typed by the resource that it is given; compression is asked for lists only:
unpacking a large answer costs less than decrypting it at full length, a small one is never compressed anyway.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, Self, TypeVar, overload

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import DECODE_ERRORS, KubeObject, ListPage, Resource
from kruise_probe.client import request as requests
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.request import PatchType, Request
from kruise_probe.client.sender import Sender
from kruise_probe.client.throttle import Throttle
from kruise_probe.client.transport import Transport
from kruise_probe.client.watch import WatchStream

__all__ = ["PatchType", "RestClient"]

T = TypeVar("T", bound=KubeObject)

READ_DEADLINE_SECONDS = 70.0
"""A healthy watch says something each minute, if only a bookmark."""


class RestClient:
    """A client of one API server; an async context manager that owns its connections.

    At most `max_in_flight` requests are under way at once; watches are not counted. `before_send` is
    called right before each copy of a writing request leaves; what it raises reaches the caller.
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
            throttle=Throttle(qps=qps, burst=burst) if qps > 0 else None,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self._transport.__aexit__(*reason)

    async def get(self, resource: Resource[T], key: NamespacedName) -> T:
        """Reads one object from the server's store.

        Raises:
            KubeError: as every method here: ApiError with the server's refusal, ConnectionFailed without
                a usable answer.
        """
        request = requests.get(resource, key)
        return _decode(resource, await self._perform(request), request)

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
        """One page; `limit` 0 asks for everything at once. Expired when the token has grown too old."""
        request = requests.list_page(
            resource,
            namespace=namespace,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            field_selector=field_selector,
            label_selector=label_selector,
        )
        body = await self._perform(request)
        try:
            page = resource.decode_list(body)
        except DECODE_ERRORS as error:
            raise ConnectionFailed(f"{request}: the answer is no list: {error}") from error
        if page.continue_token and page.continue_token == continue_token:
            raise ConnectionFailed(f"{request}: the list has no end: its next page is this page")
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
        read_deadline_seconds: float = READ_DEADLINE_SECONDS,
    ) -> AsyncIterator[WatchStream[T]]:
        """Opens a watch; the iterator ends when the server ends it, which it does after `timeout_seconds`.

        Iterating raises Expired and other ApiErrors for ERROR events, and ConnectionFailed when nothing was
        heard for `read_deadline_seconds` or the connection broke. Leaving the context closes the connection.
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
        answer = await self._sender.open(request)
        stream = answer.stream
        if stream is None:
            raise ConnectionFailed(f"{request}: the server opened no stream ({answer.status})")
        try:
            yield WatchStream(
                stream, resource, request, read_deadline_seconds=read_deadline_seconds
            )
        finally:
            stream.close()

    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T:
        """Creates what `body` says. AlreadyExists when the name is taken."""
        request = requests.create(
            resource, body, namespace=namespace, field_manager=self._field_manager
        )
        return _decode(resource, await self._perform(request), request)

    async def replace(self, resource: Resource[T], key: NamespacedName, body: bytes) -> T:
        """Replaces the whole object; Conflict when `body` names another resource version."""
        request = requests.replace(resource, key, body, field_manager=self._field_manager)
        return _decode(resource, await self._perform(request), request)

    @overload
    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
        decode: Literal[True] = True,
    ) -> T: ...
    @overload
    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
        decode: Literal[False],
    ) -> None: ...
    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
        decode: bool = True,
    ) -> T | None:
        """Changes what `body` says. With `decode=False` the answer is neither asked for whole nor decoded."""
        request = requests.patch(
            resource,
            key,
            body,
            patch_type=patch_type,
            subresource=subresource,
            field_manager=self._field_manager,
            metadata_only=not decode,
        )
        answer = await self._perform(request)
        return _decode(resource, answer, request) if decode else None

    async def delete(self, resource: Resource[Any], key: NamespacedName, *, uid: str = "") -> None:
        """Asks for deletion (finalizers may delay it); with `uid`, Conflict when it is another object."""
        await self._perform(requests.delete(resource, key, uid=uid))

    async def get_raw(self, target: str) -> bytes:
        """The body of `GET target` (path and query)."""
        return await self._perform(Request("GET", target, target))

    async def request_raw(
        self, method: str, target: str, body: bytes | None = None, content_type: str = requests.JSON
    ) -> bytes:
        """The body of any request; sent again only where the server asked for it."""
        return await self._perform(
            Request(
                method,
                target,
                target,
                body,
                content_type if body is not None else "",
                repeatable=method == "GET",
            )
        )

    async def _perform(self, request: Request) -> bytes:
        return (await self._sender.perform(request)).body


def _decode(resource: Resource[T], body: bytes, request: Request) -> T:
    try:
        return resource.decode(body)
    except DECODE_ERRORS as error:
        raise ConnectionFailed(f"{request}: the answer is no {resource.kind}: {error}") from error
