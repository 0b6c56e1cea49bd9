"""HTTP to one server: a pool of connections, and every way in which they fail as one of two errors.

The only module that knows aiohttp's client. It sends a request exactly once: what is sent again is decided in
`rest`, never behind its back by the library.

Source: client-go rest/transport.go and apimachinery util/net/http.go (keep-alive, idle time, dial time).
Differs: HTTP/1.1 with a pool instead of one HTTP/2 connection; redirects are not followed.
"""

import asyncio
import asyncio.sslproto
import os
import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple, Self

import aiohttp
from aiohttp import ClientRequest, ClientResponse
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import NEEDS_CLEANUP_CLOSED, AddrInfoType, Connection
from multidict import CIMultiDict
from yarl import URL

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.request import Request

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 90.0
"""How long an unused connection is kept; client-go's number."""

TCP_KEEPALIVE_IDLE_SECONDS = 30
TCP_KEEPALIVE_INTERVAL_SECONDS = 30
TCP_KEEPALIVE_PROBES = 3
"""With the two above: a silent peer is given up after two minutes, and load balancers see traffic each 30 s."""

TLS_BUFFER_BYTES = 32 * 1024
"""Per connection. asyncio's 256 KiB cost 13 MB with fifty connections, and allocating as much for each read costs time;
a TLS record holds 16 KiB at most."""

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class ConnectionBroken(ConnectionFailed):
    """The connection ended without a whole answer; the request may or may not have been carried out."""


class _Untrusted(ConnectionFailed):
    """The server's certificate is not one that we trust; nothing was sent."""


class Stream:
    """The body of an answer that has no end yet. Closing it closes its connection."""

    def __init__(self, response: ClientResponse, request: Request) -> None:
        self._response = response
        self._request = request

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        """The next bytes, in whatever portions they arrive; empty at the end.

        Raises:
            ConnectionFailed: nothing came for `deadline_seconds`, or the connection broke.
        """
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._response.content.readany()
        except TimeoutError as error:
            raise ConnectionFailed(
                f"{self._request}: silent for {deadline_seconds:g} s, not even a bookmark"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionBroken(f"{self._request}: {_sentence(error)}") from error

    def close(self) -> None:
        self._response.close()


class Answer(NamedTuple):
    """What came back: the whole body, or on success of `open` the stream of it."""

    status: int
    retry_after: str | None
    body: bytes
    stream: Stream | None = None


class Transport:
    """One pool of kept connections to one server; an async context manager.

    Reading and writing happen on the loop that entered it. Leaving it closes all connections.
    """

    def __init__(
        self, config: ClusterConfig, *, user_agent: str, before_send: Callable[[], None] | None
    ) -> None:
        self._config = config
        self._user_agent = user_agent
        self._request_class = _guarded(before_send) if before_send else ClientRequest
        self._headers: dict[tuple[str, bool, bool, str | None], CIMultiDict[str]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tls = self._config.tls
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=tls if tls is not None else True,
                limit=0,
                keepalive_timeout=IDLE_SECONDS,
                # Before Python 3.12.8 a TLS connection that was closed stays open for as long as its peer is silent.
                enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,
                socket_factory=_keepalive_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            proxy=self._config.proxy,
            request_class=self._request_class,
            middlewares=(_only_once,),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def exchange(self, request: Request, authorization: str | None) -> Answer:
        """Sends `request` once and reads the whole answer.

        Raises:
            ConnectionBroken: the connection ended after it had been made.
            ConnectionFailed: no connection, or an answer that is not HTTP.
        """
        response = await self._send(request, authorization)
        return await _whole(response, request)

    async def open(self, request: Request, authorization: str | None) -> Answer:
        """Sends `request` once: with the body as a stream on success, the whole answer of a refusal.

        Raises: as `exchange`.
        """
        response = await self._send(request, authorization)
        if response.status == 200:
            return Answer(response.status, None, b"", Stream(response, request))
        return await _whole(response, request)

    async def _send(self, request: Request, authorization: str | None) -> ClientResponse:
        """Sends it; a certificate that is not trusted is looked at again if the authority's file has been replaced."""
        authority = self._config.authority
        trusted = authority.version if authority is not None else 0
        try:
            return await self._send_once(request, authorization)
        except _Untrusted:
            if authority is None or not authority.renewed(since=trusted):
                raise
        return await self._send_once(request, authorization)

    async def _send_once(self, request: Request, authorization: str | None) -> ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used outside of its `async with`")
        try:
            return await self._session.request(
                request.method,
                URL(self._config.server + request.target, encoded=True),
                data=request.body,
                headers=self._headers_of(request, authorization),
                allow_redirects=False,
                server_hostname=self._config.server_name,
            )
        except aiohttp.ClientConnectorCertificateError as error:
            raise _Untrusted(f"{request}: {_sentence(error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionFailed(f"{request}: {_sentence(error)}") from error

    def _headers_of(self, request: Request, authorization: str | None) -> CIMultiDict[str]:
        """Headers are made once per kind of request and token; tokens change rarely."""
        kind = (
            request.content_type,
            request.metadata_only,
            request.compressed,
            authorization,
        )
        headers = self._headers.get(kind)
        if headers is None:
            if len(self._headers) > 32:
                self._headers.clear()
            headers = CIMultiDict({"User-Agent": self._user_agent})
            headers["Accept"] = METADATA_ONLY if request.metadata_only else "application/json"
            if request.compressed:
                headers["Accept-Encoding"] = "gzip"
            if request.content_type:
                headers["Content-Type"] = request.content_type
            if authorization is not None:
                headers["Authorization"] = authorization
            self._headers[kind] = headers
        return headers


async def _whole(response: ClientResponse, request: Request) -> Answer:
    try:
        body = await response.read()
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectionBroken(f"{request}: {_sentence(error)}") from error
    if response.status == 401:
        response.close()
    return Answer(response.status, response.headers.get("Retry-After"), body)


def _guarded(before_send: Callable[[], None]) -> type[ClientRequest]:
    """Requests that call `before_send` with the connection in hand, in the step that writes them."""

    class GuardedRequest(ClientRequest):
        async def send(self, conn: Connection) -> ClientResponse:
            if self.method in _WRITES:
                before_send()
            return await super().send(conn)

        async def write_bytes(
            self,
            writer: AbstractStreamWriter,
            conn: Connection,
            content_length: int | None = None,
        ) -> None:
            """Asks again: before Python 3.12 this is a turn of the loop after `send`, and a process that was suspended
            in between would send what it had been allowed long ago.
            """
            try:
                if self.method in _WRITES:
                    before_send()
            except Exception as error:
                if conn.protocol is not None:
                    conn.protocol.set_exception(error)
                conn.close()
                raise
            await super().write_bytes(writer, conn, content_length)

    return GuardedRequest


async def _only_once(request: ClientRequest, handler: aiohttp.ClientHandlerType) -> ClientResponse:
    """Keeps aiohttp from repeating what it takes for idempotent: it would go past `before_send`'s owner."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (
        aiohttp.ServerDisconnectedError,
        aiohttp.ClientOSError,
        aiohttp.ClientConnectionResetError,
    ) as error:
        raise ConnectionBroken(
            f"{request.method} {request.url.path}: {_sentence(error)}"
        ) from error


def _keepalive_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, TCP_KEEPALIVE_IDLE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, TCP_KEEPALIVE_INTERVAL_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TCP_KEEPALIVE_PROBES)
    return made


def _sentence(error: Exception) -> str:
    """One line; some of the library's errors have no text of their own, others speak of Python's sockets."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        of_system = not isinstance(cause, (ssl.SSLError, socket.gaierror)) and cause.errno
        why = os.strerror(of_system) if of_system else cause.strerror or str(cause)
        return f"cannot connect to {error.host}:{error.port}: {' '.join(why.split())}"
    return " ".join(str(error).split()) or type(error).__name__
