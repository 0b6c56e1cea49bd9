"""HTTP transport to one server: a pool of connections, with every failure as ConnectionFailed or a subclass.

It sends a request exactly once; `sender` decides on retries. `http1` and `response` handle the protocol, `dialer`
connects, and `pool` keeps idle connections.

Source: client-go rest/transport.go and apimachinery util/net/http.go (keep-alive, idle time, dial time).
Differs: HTTP/1.1 with a pool instead of one HTTP/2 connection; redirects are not followed, cookies not kept.
"""

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import NamedTuple, Self

from kruise_probe.api.errors import ConnectionFailed, NoResponse, ResponseTooLarge
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.dialer import Dialer, DialFailed, UntrustedServer
from kruise_probe.client.http1 import ConnectionLost, HttpConnection
from kruise_probe.client.pool import Pool
from kruise_probe.client.request import Request
from kruise_probe.client.response import (
    SWITCHING_PROTOCOLS,
    BodyTooLarge,
    ResponseError,
    ResponseParser,
)

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_TARGET = re.compile(r"[!-~]+")
_UNPRINTABLE = re.compile(r"[^\t -~]")


class ConnectionBroken(ConnectionFailed):
    """The connection ended before a complete response; the request may or may not have taken effect.

    `was_new`: the connection was made for this request.
    """

    def __init__(self, message: str, *, was_new: bool = False) -> None:
        super().__init__(message)
        self.was_new = was_new


class ResponseStream:
    """The body of a streaming response. `close` closes its connection, unless the stream has ended."""

    def __init__(self, connection: HttpConnection, pool: Pool, request: Request) -> None:
        self._connection = connection
        self._pool: Pool | None = pool
        self._request = request

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        """Return the next chunk as received; empty at the end.

        Raises:
            ConnectionFailed: no data for `deadline_seconds`, or the connection broke.
        """
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._connection.read_chunk()
        except TimeoutError as error:
            if self._pool is not None:
                self._pool.close_idle(math.inf)
            raise NoResponse(f"{self._request}: no data for {deadline_seconds:g} s") from error
        except ConnectionLost as error:
            raise ConnectionBroken(f"{self._request}: {error}") from error
        except ResponseError as error:
            raise ConnectionFailed(f"{self._request}: {error}") from error

    def write(self, data: bytes) -> None:
        """Send bytes of the protocol that a 101 switched to."""
        self._connection.write(data)

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.release(self._connection)


class Response(NamedTuple):
    """A response with its whole body, or with a stream after a successful `open_stream`.

    `upgrade_fields` are the WebSocket header fields of a 101.
    """

    status: int
    retry_after: str | None
    body: bytes
    stream: ResponseStream | None = None
    upgrade_fields: Mapping[str, str] = MappingProxyType({})


class Transport:
    """Transport with one connection pool to one server: an async context manager.

    All I/O runs on the event loop that entered it. Leaving it closes all connections. `before_send` is called in the
    same step that writes POST, PUT, PATCH or DELETE to the connection. If it raises, the request is not sent.
    """

    def __init__(
        self, config: ClusterConfig, *, user_agent: str, before_send: Callable[[], None] | None
    ) -> None:
        self._ca_file = config.ca_file
        self._credentials = config.credentials
        self._dialer = Dialer.for_config(config)
        self._user_agent = user_agent
        self._impersonation = _impersonation_headers(config)
        self._before_send = before_send
        self._headers: dict[tuple[str, bool, bool, str | None, bool], str] = {}
        self._pool: Pool | None = None
        self._date, self._date_at = "", 0.0

    async def __aenter__(self) -> Self:
        self._pool = Pool(self._dialer.dial, lambda: self._credentials.version)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._credentials.close()
        await self._require_pool().close()

    async def round_trip(self, request: Request, authorization: str | None) -> Response:
        """Send `request` once and read the whole response.

        Raises:
            ConnectionBroken: the connection ended before the complete response.
            ResponseTooLarge: the body exceeds the size limit.
            ConnectionFailed: dialing failed, or the response is not valid HTTP.
        """
        pool = self._require_pool()
        connection = await self._send(pool, request, authorization)
        sent_at = asyncio.get_running_loop().time()
        try:
            return self._response(await connection.read_response(), connection)
        except asyncio.CancelledError:
            _close_unproven(pool, connection, sent_at)
            raise
        except ConnectionLost as error:
            raise _connection_broken(request, error, connection) from error
        except BodyTooLarge as error:
            raise ResponseTooLarge(f"{request}: {error}") from error
        except ResponseError as error:
            raise ConnectionFailed(f"{request}: {error}") from error
        finally:
            pool.release(connection)

    async def open_stream(self, request: Request, authorization: str | None) -> Response:
        """Send `request` once. Return a stream on success, and the whole body of an error response.

        Raises: as `round_trip`.
        """
        pool = self._require_pool()
        connection = await self._send(pool, request, authorization)
        sent_at = asyncio.get_running_loop().time()
        stream: ResponseStream | None = None
        try:
            header = await connection.read_header()
            if header.status in (200, SWITCHING_PROTOCOLS):
                stream = ResponseStream(connection, pool, request)
                self._note_date(header)
                return Response(header.status, None, b"", stream, header.upgrade_fields)
            return self._response(await connection.read_response(), connection)
        except asyncio.CancelledError:
            _close_unproven(pool, connection, sent_at)
            raise
        except ConnectionLost as error:
            raise _connection_broken(request, error, connection) from error
        except ResponseError as error:
            raise ConnectionFailed(f"{request}: {error}") from error
        finally:
            if stream is None:
                pool.release(connection)

    def server_now(self) -> datetime:
        """The server's time by the newest Date header, to a second; the local time without one."""
        with suppress(ValueError):
            passed = asyncio.get_running_loop().time() - self._date_at
            date = parsedate_to_datetime(self._date).astimezone(UTC)
            return date + timedelta(seconds=passed)
        return utc_now()

    def _response(self, parsed: ResponseParser, connection: HttpConnection) -> Response:
        self._note_date(parsed)
        if parsed.status == 401:
            connection.close()
        return Response(parsed.status, parsed.retry_after, parsed.take())

    def _note_date(self, parsed: ResponseParser) -> None:
        if parsed.date:
            self._date, self._date_at = parsed.date, asyncio.get_running_loop().time()

    def _require_pool(self) -> Pool:
        if self._pool is None:
            raise RuntimeError("enter the client with `async with` before its first request")
        return self._pool

    async def _send(
        self, pool: Pool, request: Request, authorization: str | None
    ) -> HttpConnection:
        """Send `request` and return its connection. The caller must release it to the pool."""
        data = self._encode(request, authorization)
        connection = await self._connect(pool, request)
        try:
            if self._before_send is not None and request.method in _WRITES:
                self._before_send()
        except BaseException:
            pool.release(connection)
            raise
        connection.send(data, upgrade=bool(request.upgrade))
        return connection

    async def _connect(self, pool: Pool, request: Request) -> HttpConnection:
        """Acquire a connection. If the server is not trusted and the CA file has changed, dial once more."""
        ca_file = self._ca_file
        version = ca_file.version if ca_file is not None else 0
        try:
            try:
                return await pool.acquire()
            except UntrustedServer:
                if ca_file is None or not ca_file.reload(since=version):
                    raise
            return await pool.acquire()
        except DialFailed as error:
            raise ConnectionFailed(f"{request}: {error}") from error

    def _encode(self, request: Request, authorization: str | None) -> bytes:
        """Encode the request.

        Raises:
            ConnectionFailed: the target or the token has characters that are invalid in HTTP.
        """
        if not _TARGET.fullmatch(request.target):
            raise ConnectionFailed(
                f"{request}: the target {request.target!r} is not a valid URL path; quote it"
            )
        body = request.body
        if body is None and request.method not in _WRITES:
            length = ""
        else:
            body = body or b""
            length = f"Content-Length: {len(body)}\r\n"
        head = (
            f"{request.method} {self._dialer.target_prefix}{request.target} HTTP/1.1\r\n"
            f"{self._headers_of(request, authorization)}{request.upgrade}{length}\r\n"
        ).encode("ascii")
        return head + body if body else head

    def _headers_of(self, request: Request, authorization: str | None) -> str:
        """Return the headers, cached per kind of request and token."""
        kind = (
            request.content_type,
            request.metadata_only,
            request.compressed,
            authorization,
            bool(request.upgrade),
        )
        headers = self._headers.get(kind)
        if headers is None:
            if len(self._headers) > 32:
                self._headers.clear()
            headers = self._headers[kind] = self._build_headers(request, authorization)
        return headers

    def _build_headers(self, request: Request, authorization: str | None) -> str:
        if authorization is not None and _UNPRINTABLE.search(authorization):
            raise ConnectionFailed(
                f"{request}: the bearer token has characters that are invalid in a header; replace the token"
            )
        fields = {
            "Host": self._dialer.host_header,
            "User-Agent": self._user_agent,
            "Accept": _accepted(request),
            "Accept-Encoding": "gzip" if request.compressed else None,
            "Content-Type": request.content_type or None,
            "Authorization": authorization,
        }
        lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
        lines += self._impersonation
        if self._dialer.tls is None:
            lines.append(self._dialer.proxy_authorization)
        return "".join(lines)


def _close_unproven(pool: Pool, connection: HttpConnection, sent_at: float) -> None:
    """Close the idle connections that have not worked since a request that got no response was sent.

    After a fail-over of a load balancer all are dead, and each would use up the deadline of one more request.
    """
    if not connection.responding:
        pool.close_idle(sent_at)


def _accepted(request: Request) -> str:
    if request.upgrade:
        return "*/*"  # streams of pods have no JSON representation
    return METADATA_ONLY if request.metadata_only else "application/json"


def _impersonation_headers(config: ClusterConfig) -> list[str]:
    lines = [f"Impersonate-Group: {each}\r\n" for each in config.as_groups]
    if config.as_user:
        lines.append(f"Impersonate-User: {config.as_user}\r\n")
    return lines


def _connection_broken(
    request: Request, error: ConnectionLost, connection: HttpConnection
) -> ConnectionBroken:
    return ConnectionBroken(f"{request}: {error}", was_new=connection.requests == 1)
