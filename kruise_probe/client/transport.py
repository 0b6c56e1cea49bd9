"""HTTP to one server: a pool of connections, and every way in which they fail as one of two errors.

It sends a request exactly once: what is sent again is decided in `sender`. Bytes are `http1`'s and `answers'`,
connecting is `dialing`'s, keeping is `pool`'s.

Source: client-go rest/transport.go and apimachinery util/net/http.go (keep-alive, idle time, dial time).
Differs: HTTP/1.1 with a pool instead of one HTTP/2 connection; redirects are not followed, cookies not kept.
"""

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple, Self

from kruise_probe.api.errors import ConnectionFailed, ResponseTooLarge
from kruise_probe.client.answers import AnswerParser, BadResponse, BodyTooLarge
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.dialing import DialFailed, Untrusted, dial
from kruise_probe.client.http1 import Broken, HttpConnection
from kruise_probe.client.pool import Pool
from kruise_probe.client.request import Request
from kruise_probe.client.route import Route

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_TARGET = re.compile(r"[!-~]+")
_UNPRINTABLE = re.compile(r"[^\t -~]")


class ConnectionBroken(ConnectionFailed):
    """The connection ended without a whole answer; the request may or may not have been carried out.

    `was_new` when it had been made for this request.
    """

    def __init__(self, message: str, *, was_new: bool = False) -> None:
        super().__init__(message)
        self.was_new = was_new


class Stream:
    """The body of an answer that has no end yet. Closing it closes its connection, unless it has ended."""

    def __init__(self, connection: HttpConnection, pool: Pool, request: Request) -> None:
        self._connection = connection
        self._pool: Pool | None = pool
        self._request = request

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        """The next bytes, in whatever portions they arrive; empty at the end.

        Raises:
            ConnectionFailed: nothing came for `deadline_seconds`, or the connection broke.
        """
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._connection.portion()
        except TimeoutError as error:
            raise ConnectionFailed(
                f"{self._request}: silent for {deadline_seconds:g} s, not even a bookmark"
            ) from error
        except Broken as error:
            raise ConnectionBroken(f"{self._request}: {error}") from error
        except BadResponse as error:
            raise ConnectionFailed(f"{self._request}: {error}") from error

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.give_back(self._connection)


class Answer(NamedTuple):
    """What came back: the whole body, or on success of `open` the stream of it."""

    status: int
    retry_after: str | None
    body: bytes
    stream: Stream | None = None


class Transport:
    """One pool of kept connections to one server; an async context manager.

    Reading and writing happen on the loop that entered it. Leaving it closes all connections. `before_send` is
    asked in the very step that hands a writing request to a connection; what it raises keeps the request back.
    """

    def __init__(
        self, config: ClusterConfig, *, user_agent: str, before_send: Callable[[], None] | None
    ) -> None:
        self._authority = config.authority
        self._credentials = config.credentials
        self._route = Route.of(config)
        self._user_agent = user_agent
        self._before_send = before_send
        self._headers: dict[tuple[str, bool, bool, str | None], str] = {}
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        self._pool = Pool(
            lambda on_lost: dial(self._route, on_lost), lambda: self._credentials.version
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._credentials.close()
        if self._pool is not None:
            await self._pool.close()

    async def exchange(self, request: Request, authorization: str | None) -> Answer:
        """Sends `request` once and reads the whole answer.

        Raises:
            ConnectionBroken: the connection ended after it had been made.
            ResponseTooLarge: the body has more bytes than are taken.
            ConnectionFailed: no connection, or an answer that is not HTTP.
        """
        pool = self._entered()
        connection = await self._send(pool, request, authorization)
        try:
            return _whole(await connection.whole(), connection)
        except Broken as error:
            raise _broken(request, error, connection) from error
        except BodyTooLarge as error:
            raise ResponseTooLarge(f"{request}: {error}") from error
        except BadResponse as error:
            raise ConnectionFailed(f"{request}: {error}") from error
        finally:
            pool.give_back(connection)

    async def open(self, request: Request, authorization: str | None) -> Answer:
        """Sends `request` once: with the body as a stream on success, the whole answer of a refusal.

        Raises: as `exchange`.
        """
        pool = self._entered()
        connection = await self._send(pool, request, authorization)
        stream: Stream | None = None
        try:
            if (await connection.head()).status == 200:
                stream = Stream(connection, pool, request)
                return Answer(200, None, b"", stream)
            return _whole(await connection.whole(), connection)
        except Broken as error:
            raise _broken(request, error, connection) from error
        except BadResponse as error:
            raise ConnectionFailed(f"{request}: {error}") from error
        finally:
            if stream is None:
                pool.give_back(connection)

    def _entered(self) -> Pool:
        if self._pool is None:
            raise RuntimeError("the client is used outside of its `async with`")
        return self._pool

    async def _send(
        self, pool: Pool, request: Request, authorization: str | None
    ) -> HttpConnection:
        """Sends it on a connection, which is then the caller's."""
        data = self._encoded(request, authorization)
        connection = await self._connected(pool, request)
        try:
            if self._before_send is not None and request.method in _WRITES:
                self._before_send()
        except BaseException:
            pool.give_back(connection)
            raise
        connection.send(data)
        return connection

    async def _connected(self, pool: Pool, request: Request) -> HttpConnection:
        """A certificate that is not trusted is looked at again if the authority's file has been replaced."""
        authority = self._authority
        trusted = authority.version if authority is not None else 0
        try:
            try:
                return await pool.take()
            except Untrusted:
                if authority is None or not authority.renewed(since=trusted):
                    raise
            return await pool.take()
        except DialFailed as error:
            raise ConnectionFailed(f"{request}: {error}") from error

    def _encoded(self, request: Request, authorization: str | None) -> bytes:
        """The request as it is sent.

        Raises:
            ConnectionFailed: its target or the token would be something else on the wire.
        """
        if not _TARGET.fullmatch(request.target):
            raise ConnectionFailed(f"{request}: {request.target!r} cannot be asked for; quote it")
        body = request.body
        if body is None and request.method not in _WRITES:
            length = ""
        else:
            body = body or b""
            length = f"Content-Length: {len(body)}\r\n"
        head = (
            f"{request.method} {self._route.target_prefix}{request.target} HTTP/1.1\r\n"
            f"{self._headers_of(request, authorization)}{length}\r\n"
        ).encode("ascii")
        return head + body if body else head

    def _headers_of(self, request: Request, authorization: str | None) -> str:
        """Header fields are made once per kind of request and token; tokens change rarely."""
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
            headers = self._headers[kind] = self._made_headers(request, authorization)
        return headers

    def _made_headers(self, request: Request, authorization: str | None) -> str:
        if authorization is not None and _UNPRINTABLE.search(authorization):
            raise ConnectionFailed(f"{request}: the token has characters that no header can hold")
        fields = {
            "Host": self._route.host,
            "User-Agent": self._user_agent,
            "Accept": METADATA_ONLY if request.metadata_only else "application/json",
            "Accept-Encoding": "gzip" if request.compressed else None,
            "Content-Type": request.content_type or None,
            "Authorization": authorization,
        }
        lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
        if self._route.tls is None:
            lines.append(self._route.proxy_header)
        return "".join(lines)


def _broken(request: Request, error: Broken, connection: HttpConnection) -> ConnectionBroken:
    return ConnectionBroken(f"{request}: {error}", was_new=connection.requests == 1)


def _whole(answer: AnswerParser, connection: HttpConnection) -> Answer:
    if answer.status == 401:
        connection.close()
    return Answer(answer.status, answer.retry_after, answer.take())
