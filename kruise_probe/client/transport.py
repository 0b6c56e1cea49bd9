"""Sends a request once, and the fence: a check in the step that writes a request to the socket.

`rest` decides on retries. Every failure is a ConnectionFailed or a subclass.

Source: client-go rest/transport.go.
Differs: HTTP/1.1 with a pool instead of one HTTP/2 connection; redirects are not followed, cookies not kept.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import NamedTuple, Self

from kruise_probe.api.errors import ConnectionFailed, NoResponse
from kruise_probe.api.times import loop_time, utc_now
from kruise_probe.client.cluster_config import ClusterConfig
from kruise_probe.client.connection import (
    HttpConnection,
)
from kruise_probe.client.pool import Pool
from kruise_probe.client.request import METADATA_ONLY, WRITES, Request
from kruise_probe.wire.responses import SWITCHING_PROTOCOLS

_TARGET = re.compile(r"[!-~]+")
_UNPRINTABLE = re.compile(r"[^\t -~]")


class ResponseStream:
    """The body of a streaming response. `close` closes its connection, unless the stream has ended."""

    def __init__(self, connection: HttpConnection, pool: Pool, request: Request) -> None:
        self._connection = connection
        self._pool = pool
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
            now = loop_time()
            self._pool.lost(self._connection, now)
            raise NoResponse(f"{self._request}: no data for {deadline_seconds:g} s") from error
        except ConnectionFailed as error:
            text = f"{self._request}: {error}"
            error.args = (text,)
            raise

    def write(self, data: bytes) -> None:
        """Send bytes of the protocol that a 101 switched to."""
        self._connection.write(data)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection)


class Response(NamedTuple):
    """A response with its whole body, or with a stream after a successful streaming request.

    Attributes:
        headers: header fields by name in lower case.
        elsewhere: True for a 5xx if another connection may lead to another server. This one is closed.
    """

    status: int
    body: bytes = b""
    stream: ResponseStream | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    elsewhere: bool = False


class Transport:
    """Sends requests to one server: an async context manager that uses the connections of `pool`, by default its own.

    `before_send` is called in the same step that writes POST, PUT, PATCH or DELETE to the connection. If it raises, the
    request is not sent.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str,
        before_send: Callable[[], None] | None,
        pool: Pool | None = None,
    ) -> None:
        self._pool = pool or Pool(config)
        self._dialer = self._pool.dialer
        self._before_send = before_send
        self._identity = f"User-Agent: {user_agent}\r\n"
        if config.as_user:
            self._identity += f"Impersonate-User: {config.as_user}\r\n"
        for group in config.as_groups:
            self._identity += f"Impersonate-Group: {group}\r\n"
        self._date = ""
        self._date_at = 0.0

    async def __aenter__(self) -> Self:
        self._pool.enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.leave()

    async def round_trip(self, request: Request, authorization: str | None) -> Response:
        """Send `request` once. Read the whole response, but return the stream of a successful streaming request.

        Raises:
            TlsRefused: the certificate of the server or of this client is not trusted.
            ConnectionBroken: the connection ended before the complete response.
            ResponseTooLarge: the body exceeds the size limit.
            ConnectionFailed: dialing failed, or the response is not valid HTTP.
        """
        pool = self._pool
        data = self._encode(request, authorization)
        connection = await pool.acquire(request)
        sent_at = loop_time()
        response: Response | None = None
        try:
            if self._before_send is not None and request.method in WRITES:
                self._before_send()
            is_upgrade = bool(request.upgrade)
            connection.send(data, upgrade=is_upgrade)
            if request.on_sent is not None:
                request.on_sent(connection)
            response = await self._read(connection, request)
            return response
        except asyncio.CancelledError:
            if not connection.responding:
                pool.lost(connection, sent_at)
            raise
        finally:
            if response is None or response.stream is None:
                pool.release(connection)

    async def _read(self, connection: HttpConnection, request: Request) -> Response:
        header = await connection.read_header()
        status = header.status
        headers = header.headers
        if "date" in headers:
            self._date = headers["date"]
            self._date_at = loop_time()
        if request.streams and status in (200, SWITCHING_PROTOCOLS):
            connection.worked = True
            stream = ResponseStream(connection, self._pool, request)
            return Response(status, stream=stream, headers=headers)
        body = await connection.read_body(compressed=request.compressed)
        elsewhere = False
        if status >= 500:
            elsewhere = self._pool.give_up(connection, request)
        else:
            connection.worked = True
        if status == 401:
            connection.close()
        return Response(status, body, headers=headers, elsewhere=elsewhere)

    def server_now(self) -> datetime:
        """The server's time by the newest Date header, to a second; the local time without one."""
        with suppress(ValueError):
            passed = loop_time() - self._date_at
            date = parsedate_to_datetime(self._date)
            since = timedelta(seconds=passed)
            return date.astimezone(UTC) + since
        return utc_now()

    def _encode(self, request: Request, authorization: str | None) -> bytes:
        """Encode the request.

        Raises:
            ConnectionFailed: the target or the token has characters that are invalid in HTTP.
        """
        dialer = self._dialer
        if not _TARGET.fullmatch(request.target):
            raise ConnectionFailed(
                f"the target {request.target!r} is not a valid URL path; quote it"
            )
        if authorization is not None and _UNPRINTABLE.search(authorization):
            raise ConnectionFailed(
                "the bearer token has characters that are invalid in a header; replace the token"
            )
        accept = "application/json"
        if request.upgrade:
            accept = "*/*"  # streams of pods are not JSON
        elif request.metadata_only:
            accept = METADATA_ONLY
        body = request.body or b""
        lines = f"Host: {dialer.host_header}\r\nAccept: {accept}\r\n"
        if request.compressed:
            lines += "Accept-Encoding: gzip\r\n"
        if request.content_type:
            lines += f"Content-Type: {request.content_type}\r\n"
        if authorization:
            lines += f"Authorization: {authorization}\r\n"
        if request.method in WRITES:
            lines += f"Content-Length: {len(body)}\r\n"
        lines += self._identity
        if dialer.tls is None:
            lines += dialer.proxy_authorization
        target = f"{dialer.target_prefix}{request.target}"
        head = f"{request.method} {target} HTTP/1.1\r\n{lines}{request.upgrade}\r\n"
        return head.encode("ascii") + body
