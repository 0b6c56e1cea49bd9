"""The pool of connections to one server, and the fence: a check in the step that writes a request to the socket.

It sends a request exactly once; `rest` decides on retries. Every failure is a ConnectionFailed or a subclass.

Source: client-go rest/transport.go and Go net/http transport.go (idleConn, keep-alive, idle time).
Differs: HTTP/1.1 with a pool instead of one HTTP/2 connection; redirects are not followed, cookies not kept. The pool
has no limit, because `rest` limits the requests in flight.
"""

import asyncio
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from kruise_probe.api.errors import ConnectionFailed, NoResponse
from kruise_probe.api.times import utc_now
from kruise_probe.client.cluster_config import ClusterConfig
from kruise_probe.client.connection import SWITCHING_PROTOCOLS, HttpConnection
from kruise_probe.client.dialer import Dialer
from kruise_probe.client.request import METADATA_ONLY, Request

IDLE_SECONDS: Final = 90.0
"""Idle timeout of a connection, as in client-go."""

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_TARGET = re.compile(r"[!-~]+")
_UNPRINTABLE = re.compile(r"[^\t -~]")


class ResponseStream:
    """The body of a streaming response. `close` closes its connection, unless the stream has ended."""

    def __init__(
        self, connection: HttpConnection, transport: "Transport", request: Request
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._request = request
        self._closed = False

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        """Return the next chunk as received; empty at the end.

        Raises:
            NoResponse: no data for `deadline_seconds`.
            ConnectionFailed: the connection broke.
        """
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._connection.read_chunk()
        except TimeoutError as error:
            self._transport.close_idle(math.inf)
            raise NoResponse(f"{self._request}: no data for {deadline_seconds:g} s") from error
        except ConnectionFailed as error:
            error.args = (f"{self._request}: {error}",)
            raise

    def write(self, data: bytes) -> None:
        """Send bytes of the protocol that a 101 switched to."""
        self._connection.write(data)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.release(self._connection)


class Response(NamedTuple):
    """A response with its whole body, or with a stream after a successful streaming request.

    `headers` are the header fields by name in lower case.
    """

    status: int
    body: bytes = b""
    stream: ResponseStream | None = None
    headers: Mapping[str, str] = MappingProxyType({})


class Transport:
    """Sends requests to one server: an async context manager that owns all its connections.

    `before_send` is called in the same step that writes POST, PUT, PATCH or DELETE to the connection. If it raises, the
    request is not sent.
    """

    def __init__(
        self, config: ClusterConfig, *, user_agent: str, before_send: Callable[[], None] | None
    ) -> None:
        self._credentials = config.credentials
        self._dialer = Dialer(config)
        self._before_send = before_send
        self._identity = f"User-Agent: {user_agent}\r\n"
        if config.as_user:
            self._identity += f"Impersonate-User: {config.as_user}\r\n"
        for group in config.as_groups:
            self._identity += f"Impersonate-Group: {group}\r\n"
        self._idle: deque[tuple[HttpConnection, float]] = deque()
        """With the loop time since when; the oldest first."""
        self._open: dict[HttpConnection, int] = {}
        """With the version of the credentials of the handshake."""
        self._entered = False
        self._date, self._date_at = "", 0.0

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._entered = False
        self._credentials.close()
        for connection in self._open:
            connection.close()
        for _step in range(3):  # asyncio closes an aborted socket in one of the next steps
            await asyncio.sleep(0)

    async def round_trip(self, request: Request, authorization: str | None) -> Response:
        """Send `request` once. Read the whole response, but return the stream of a successful streaming request.

        Raises:
            TlsRefused: the certificate of the server or of this client is not trusted.
            ConnectionBroken: the connection ended before the complete response.
            ResponseTooLarge: the body exceeds the size limit.
            ConnectionFailed: dialing failed, or the response is not valid HTTP.
        """
        data = self._encode(request, authorization)
        connection = await self._acquire()
        sent_at = asyncio.get_running_loop().time()
        response: Response | None = None
        try:
            if self._before_send is not None and request.method in _WRITES:
                self._before_send()
            connection.send(data, upgrade=bool(request.upgrade))
            response = await self._read(connection, request)
            return response
        except asyncio.CancelledError:
            if not connection.responding:
                # After a fail-over of a load balancer all older connections are dead, and each would use up the
                # deadline of one more request.
                self.close_idle(sent_at)
            raise
        finally:
            if response is None or response.stream is None:
                self.release(connection)

    async def _read(self, connection: HttpConnection, request: Request) -> Response:
        header = await connection.read_header()
        if "date" in header.headers:
            self._date, self._date_at = header.headers["date"], asyncio.get_running_loop().time()
        if request.streams and header.status in (200, SWITCHING_PROTOCOLS):
            stream = ResponseStream(connection, self, request)
            return Response(header.status, stream=stream, headers=header.headers)
        body = await connection.read_body(compressed=request.compressed)
        if header.status == 401:
            connection.close()
        return Response(header.status, body, headers=header.headers)

    def release(self, connection: HttpConnection) -> None:
        """Keep the connection for the next request if it is usable; otherwise close it."""
        if self._entered and connection.usable:
            now = asyncio.get_running_loop().time()
            self._idle.append((connection, now))
        else:
            self._close(connection)

    def close_idle(self, since: float) -> None:
        """Close the connections that are idle since this loop time or longer."""
        while self._idle and self._idle[0][1] <= since:
            self._close(self._idle.popleft()[0])

    def server_now(self) -> datetime:
        """The server's time by the newest Date header, to a second; the local time without one."""
        with suppress(ValueError):
            passed = asyncio.get_running_loop().time() - self._date_at
            date = parsedate_to_datetime(self._date).astimezone(UTC)
            return date + timedelta(seconds=passed)
        return utc_now()

    async def _acquire(self) -> HttpConnection:
        """Return an idle connection, the most recently used first, or a new one. The caller must release it."""
        if not self._entered:
            raise ConnectionFailed("the client is not open")
        self.close_idle(asyncio.get_running_loop().time() - IDLE_SECONDS)
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.usable and self._open[connection] == self._credentials.version:
                return connection
            self._close(connection)
        version = self._credentials.version
        connection = await self._dialer.dial()
        if not self._entered:
            connection.close()
            raise ConnectionFailed("the client is not open")
        self._open[connection] = version
        return connection

    def _close(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)
        connection.close()

    def _encode(self, request: Request, authorization: str | None) -> bytes:
        """Encode the request.

        Raises:
            ConnectionFailed: the target or the token has characters that are invalid in HTTP.
        """
        if not _TARGET.fullmatch(request.target):
            raise ConnectionFailed(
                f"the target {request.target!r} is not a valid URL path; quote it"
            )
        if authorization is not None and _UNPRINTABLE.search(authorization):
            raise ConnectionFailed(
                "the bearer token has characters that are invalid in a header; replace the token"
            )
        accept = METADATA_ONLY if request.metadata_only else "application/json"
        fields = {
            "Host": self._dialer.host_header,
            "Accept": "*/*" if request.upgrade else accept,  # streams of pods are not JSON
            "Accept-Encoding": "gzip" if request.compressed else "",
            "Content-Type": request.content_type,
            "Authorization": authorization or "",
            "Content-Length": str(len(request.body or b"")) if request.method in _WRITES else "",
        }
        lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items() if value])
        proxy = self._dialer.proxy_authorization if self._dialer.tls is None else ""
        head = (
            f"{request.method} {self._dialer.target_prefix}{request.target} HTTP/1.1\r\n"
            f"{lines}{self._identity}{proxy}{request.upgrade}\r\n"
        )
        return head.encode("ascii") + (request.body or b"")
