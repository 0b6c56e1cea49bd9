"""A small HTTP/1.1 server for untrusted clients, over plain TCP, TLS or both. Requests and responses are not streamed.

Every connection is one task over a bounded stream. Connections are counted when they are accepted, before TLS. When
there are too many, or their bodies hold too much memory, `ConnectionTable` selects the one to close. So slow or idle
clients cannot block a client that sends its request at once.

Source: Go net/http server.go (conn.serve, Shutdown; ReadTimeout, IdleTimeout, WriteTimeout).
Differs: no streams, no HTTP/2, no chunked bodies, no pipelining: a connection is closed after a response if the client
has sent more by then.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from kruise_probe.api.times import utc_now
from kruise_probe.serving.connections import (
    ConnectionStage,
    ConnectionTable,
    Limits,
    OpenConnection,
)
from kruise_probe.serving.http_messages import (
    END_OF_HEAD,
    MAX_HEAD_BYTES,
    HttpRequest,
    HttpResponse,
    RefusedRequest,
    RequestHead,
    parse_head,
)
from kruise_probe.serving.tls import ServerTls

HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]

READ_SECONDS: Final = 10.0
"""Separate deadlines for the TLS handshake, the request head (from its first byte) and the body."""
HANDLE_SECONDS: Final = 30.0
WRITE_SECONDS: Final = 10.0
"""Deadline for sending a response."""
LINGER_SECONDS: Final = 1.0
"""How long bytes after a refused request are read and discarded: closing earlier would reset the connection and lose
the response."""
STOP_SECONDS: Final = 0.5
"""How long requests in flight may take after the server was cancelled."""

KERNEL_BYTES: Final = 128 * 1024
"""Kernel socket buffer per connection and direction; it counts as this container's memory."""
ACCEPTS_A_STEP: Final = 32
"""Connections accepted per event loop step."""
ACCEPTS_A_STEP_WHEN_FULL: Final = 4
"""Each of them evicts another connection. A request takes several steps, so few connections may be evicted in each."""
ACCEPT_AGAIN_SECONDS: Final = 1.0
"""Pause after a failed accept, as when the process has no file descriptors left."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class HttpListener:
    """Serves `handler` on a listening socket, and closes the socket at the end.

    An exception of the handler is logged and returns 500. A handler that takes longer than `HANDLE_SECONDS` returns 503.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: HttpHandler,
        *,
        limits: Limits,
        tls: ServerTls | None = None,
    ) -> None:
        self._listening = listening
        self._handler = handler
        self._limits = limits
        self._tls = tls
        self._connections = ConnectionTable(limits)
        self._turn = asyncio.Lock()
        """Held for handshakes and request starts, which block the loop for milliseconds: at most one per loop step."""
        self._ending = False
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Serve until cancelled; requests in flight then have `STOP_SECONDS` to complete."""
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # inherited by accepted sockets
            self._listening.setsockopt(socket.SOL_SOCKET, buffer, KERNEL_BYTES)
        async with asyncio.TaskGroup() as self._group:
            loop.add_reader(self._listening, self._accept)
            try:
                await loop.create_future()
            finally:
                self._ending = True
                loop.remove_reader(self._listening)
                self._listening.close()
                await self._end()

    async def _end(self) -> None:
        answering = set[asyncio.Task[None]]()
        for each in self._connections:
            if each.task is not None and each.stage is ConnectionStage.ANSWERING:
                answering.add(each.task)
            else:
                self._close(each)
        if answering:
            await asyncio.wait(answering, timeout=STOP_SECONDS)
        for each in self._connections:
            self._close(each)

    def _accept(self) -> None:
        full = self._connections.is_full
        for _ in range(ACCEPTS_A_STEP_WHEN_FULL if full else ACCEPTS_A_STEP):
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning(
                    "cannot accept connections; trying again",
                    error=str(error),
                    retry_seconds=ACCEPT_AGAIN_SECONDS,
                )
                self._pause_accepting()
                return
            self._open(accepted)

    def _pause_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)

        def resume() -> None:
            if not self._ending:
                loop.add_reader(self._listening, self._accept)

        loop.call_later(ACCEPT_AGAIN_SECONDS, resume)

    def _open(self, accepted: socket.socket) -> None:
        assert self._group is not None, "not running"
        now = asyncio.get_running_loop().time()
        if self._connections.is_full:
            self._close(self._connections.to_evict(now))
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = OpenConnection(accepted, now)
        self._connections.add(connection)
        connection.task = self._group.create_task(self._serve(connection))
        # Not in the task: a task cancelled before its first step runs no code.
        connection.task.add_done_callback(partial(self._closed, connection))

    def _close(self, connection: OpenConnection) -> None:
        """Remove the connection from the count now; its socket is closed when its task ends."""
        self._connections.discard(connection)
        if connection.task is not None:
            connection.task.cancel()

    def _closed(self, connection: OpenConnection, _task: asyncio.Task[None]) -> None:
        connection.stream.close()
        self._connections.discard(connection)

    async def _serve(self, connection: OpenConnection) -> None:
        try:
            try:
                await self._serve_requests(connection)
            except RefusedRequest as error:
                await self._refuse(connection, error)
        except OSError:
            pass  # closed or reset by the client, timed out, or not TLS
        except Exception:  # noqa: BLE001 - one connection never ends the server
            _log.exception("serving a connection failed")

    async def _serve_requests(self, connection: OpenConnection) -> None:
        """Serve requests one after the other, until a response or the client closes the connection.

        Raises:
            RefusedRequest: the next request is refused.
        """
        async with asyncio.timeout(READ_SECONDS):
            if not await self._start_tls(connection):
                return
        while (received := await self._read_head(connection)) is not None:
            head = parse_head(received[0], max_body_bytes=self._limits.max_body_bytes)
            request, sent_more = await self._read_body(connection, head, received[1])
            self._enter(connection, ConnectionStage.ANSWERING)
            async with self._turn:
                await asyncio.sleep(0)
            response = await self._respond(request)
            self._connections.release_body(connection)
            close = head.close or self._ending or sent_more
            await self._send(connection, response, close=close, body=request.method != "HEAD")
            if close:
                connection.stream.end_sending()
                return
            self._enter(connection, ConnectionStage.IDLE)

    async def _start_tls(self, connection: OpenConnection) -> bool:
        """Detect TLS by the first byte and do the handshake; False if TLS is required and the client uses none."""
        if self._tls is None:
            return True
        if not await connection.stream.begins_with_tls():
            return not self._tls.required
        await self._tls.loaded.wait()
        await connection.stream.start_tls(self._tls.context, self._turn)
        return True

    async def _read_head(self, connection: OpenConnection) -> tuple[bytes, bytes] | None:
        """Return the next head, and the bytes received after it; None if the client has closed.

        The idle timeout covers the first request too: Go's clients open connections before they need them.

        Raises:
            RefusedRequest: the head is too large.
        """
        async with asyncio.timeout(self._limits.idle_seconds):
            received = bytearray(await connection.stream.receive())
        if not received:
            return None
        if connection.stage is ConnectionStage.IDLE:
            self._enter(connection, ConnectionStage.INCOMPLETE)
        searched = 0
        async with asyncio.timeout(READ_SECONDS):
            while (end := received.find(END_OF_HEAD, searched, MAX_HEAD_BYTES)) < 0:
                if len(received) > MAX_HEAD_BYTES:
                    raise RefusedRequest(431)
                searched = max(len(received) - len(END_OF_HEAD) + 1, 0)
                chunk = await connection.stream.receive()
                if not chunk:
                    return None
                received += chunk
        end += len(END_OF_HEAD)
        return bytes(received[:end]), bytes(received[end:])

    async def _read_body(
        self, connection: OpenConnection, head: RequestHead, chunk: bytes
    ) -> tuple[HttpRequest, bool]:
        """Return the complete request, and whether the client has sent more; `chunk` are the bytes after the head.

        Raises:
            RefusedRequest: the bodies of all connections are too large.
        """
        if head.expects_continue and head.body_bytes and not chunk:
            await connection.stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(READ_SECONDS):
            missing = head.body_bytes
            while missing > len(chunk):
                self._store(connection, chunk)
                missing -= len(chunk)
                chunk = await connection.stream.receive()
                if not chunk:
                    raise ConnectionError("the body ended early")
        self._store(connection, chunk[:missing])
        body = b"".join(connection.body)
        connection.body.clear()
        return head.with_body(body), len(chunk) > missing

    def _store(self, connection: OpenConnection, chunk: bytes) -> None:
        """Store a chunk of a body, and close other connections if all bodies together are too large.

        Raises:
            RefusedRequest: this connection has to be closed.
        """
        self._connections.store_body(connection, chunk)
        while (other := self._connections.to_close_for_bodies(connection)) is not None:
            if other is connection:
                raise RefusedRequest(503)
            self._close(other)

    def _enter(self, connection: OpenConnection, stage: ConnectionStage) -> None:
        self._connections.enter(connection, stage, asyncio.get_running_loop().time())

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        try:
            async with asyncio.timeout(HANDLE_SECONDS):
                return await self._handler(request)
        except TimeoutError:
            return HttpResponse.of_status(503)
        except Exception:  # noqa: BLE001 - the client gets a response
            _log.exception("request failed", method=request.method, path=request.path)
            return HttpResponse.of_status(500)

    async def _send(
        self,
        connection: OpenConnection,
        response: HttpResponse,
        *,
        close: bool,
        body: bool = True,
    ) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await connection.stream.send(response.head(now=utc_now(), close=close))
            if body:
                await connection.stream.send(response.body)

    async def _refuse(self, connection: OpenConnection, error: RefusedRequest) -> None:
        """Send the status, then discard what the client still sends, for up to `LINGER_SECONDS`."""
        self._connections.release_body(connection)
        await self._send(connection, HttpResponse.of_status(error.status), close=True)
        connection.stream.end_sending()
        async with asyncio.timeout(LINGER_SECONDS):
            while await connection.stream.receive():
                pass
