"""A small HTTP/1.1 server for untrusted clients, over plain TCP or TLS. Requests and responses are not streamed.

Every connection is one task. Connections are counted when they are accepted, before TLS. When there are too many, or
their bodies hold too much memory, the server closes one of them. So slow or idle clients cannot block a client that
sends its request at once.

Source: Go net/http server.go (conn.serve, Shutdown; ReadTimeout, IdleTimeout, WriteTimeout); controller-runtime
pkg/manager/internal.go and pkg/metrics/server.
Differs: no streams, no HTTP/2, no chunked bodies, no `100 Continue`; the router does not redirect. A client
that pipelines gets one response, and its connection is closed.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import structlog

from kruise_probe.api.times import loop_time, utc_now
from kruise_probe.serving.server_tls import ServerTls
from kruise_probe.serving.sockets import BindAddress, ConnectionStream, listen
from kruise_probe.wire.requests import (
    END_OF_HEAD,
    HttpRequest,
    HttpResponse,
    RefusedRequest,
    parse_head,
)

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
GRACE_SECONDS: Final = 1.0
"""A connection without a complete request is not evicted before this age, unless all others are busy too."""
ACCEPTS_A_STEP: Final = 4
"""Connections accepted per event loop step. Each may evict another, and a request takes several steps."""
ACCEPT_AGAIN_SECONDS: Final = 1.0
"""Pause after a failed accept, as when the process has no file descriptors left."""

MAX_HEAD_BYTES: Final = 32 * 1024
"""Maximum size of the request line and header fields."""
KERNEL_BYTES: Final = 128 * 1024
"""Kernel socket buffer per connection and direction; it counts as this container's memory."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ServerLimits(NamedTuple):
    """ServerLimits of a server.

    Attributes:
        idle_seconds: how long a connection without a request is kept.
        all_bodies_bytes: maximum size of the bodies of all connections together.
        max_connections: during a flood, a new client has time to send its request until this many others have connected.
    """

    idle_seconds: float = 15.0
    max_body_bytes: int = 0
    all_bodies_bytes: int = 0
    max_connections: int = 256


DEFAULT_LIMITS: Final = ServerLimits()


class Stage(StrEnum):
    """What an open connection does."""

    INCOMPLETE = "has sent no complete request"
    IDLE = "between two requests"
    ANSWERING = "in flight"


class _Connection:
    """One accepted connection; `since` is when it entered its stage."""

    def __init__(self, accepted: socket.socket, now: float) -> None:
        self.stream: Final = ConnectionStream(accepted)
        self.task: asyncio.Task[None] | None = None
        self.accepted_at = self.since = now
        self.stage = Stage.INCOMPLETE
        self.received = bytearray()
        self.body_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Size of what was received and of the body that is being answered."""
        return len(self.received) + self.body_bytes

    async def receive(self) -> None:
        """Receive the next chunk.

        Raises:
            EOFError: the client has closed its side.
        """
        chunk = await self.stream.receive()
        if not chunk:
            raise EOFError("the client has closed the connection")
        self.received += chunk

    def take(self, size: int) -> bytes:
        """Remove and return the first `size` bytes received."""
        data = bytes(self.received[:size])
        del self.received[:size]
        return data


class HttpServer:
    """Serves handlers by path at one address. They accept only `method`; GET includes HEAD.

    Call `bind` before `run`, and before anything else starts, so that a port in use is the first message in the log.
    `run` serves until cancelled, then closes the port. An exception of a handler is logged and returns 500. A handler that takes longer
    than `HANDLE_SECONDS` returns 503.
    """

    def __init__(
        self,
        address: BindAddress,
        *,
        flag: str,
        handlers: Mapping[str, HttpHandler],
        method: str = "GET",
        limits: ServerLimits = DEFAULT_LIMITS,
        tls: ServerTls | None = None,
    ) -> None:
        self.name = f"HTTP server of {flag}"
        self._configured = address
        self._flag = flag
        self._handlers = dict(handlers)
        self._methods = ("GET", "HEAD") if method == "GET" else (method,)
        self._limits = limits
        self._tls = tls
        self._socket: socket.socket | None = None
        self._connections: dict[_Connection, None] = {}
        """The open connections, in the order in which they entered their stage."""
        self._turn = asyncio.Lock()
        """Held for request starts, which block the loop for milliseconds: at most one per loop step."""

    @property
    def address(self) -> BindAddress | None:
        """The bound address with its actual port; None if not bound."""
        return BindAddress(*self._socket.getsockname()[:2]) if self._socket else None

    @property
    def port(self) -> int:
        """The actual port; 0 if not bound."""
        return self.address.port if self.address else 0

    def bind(self) -> None:
        """Bind the port.

        Raises:
            BindError: one line that names the flag, the address and what to do.
        """
        self._socket = listen(self._configured, flag=self._flag)
        self._socket.setblocking(False)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # inherited by accepted sockets
            self._socket.setsockopt(socket.SOL_SOCKET, buffer, KERNEL_BYTES)

    def close(self) -> None:
        """Release the port."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def run(self) -> None:
        """Serve until cancelled; requests in flight then have `STOP_SECONDS` to complete."""
        assert self._socket is not None, "bound before"
        scheme = "https" if self._tls else "http"
        _log.info(
            "listening",
            address=str(self.address),
            scheme=scheme,
            paths=[*self._handlers],
        )
        async with asyncio.TaskGroup() as group:
            try:
                if self._tls is not None:
                    await self._tls.loaded.wait()
                await self._accept(self._socket, group)
            finally:
                self.close()
                await self._end()

    async def _end(self) -> None:
        """Close connections without a request, and wait for the others. The caller closes those that remain."""
        for connection in self._in_stage(Stage.INCOMPLETE) + self._in_stage(Stage.IDLE):
            self._close(connection)
        if busy := [connection.task for connection in self._connections if connection.task]:
            await asyncio.wait(busy, timeout=STOP_SECONDS)

    def _in_stage(self, stage: Stage) -> list[_Connection]:
        """The connections in this stage, the longest in it first."""
        return [connection for connection in self._connections if connection.stage == stage]

    async def _accept(
        self,
        listening: socket.socket,
        group: asyncio.TaskGroup,
    ) -> None:
        loop = asyncio.get_running_loop()
        accepted_in_step = 0
        while True:
            try:
                accepted, _address = await loop.sock_accept(listening)
            except ConnectionError:
                continue
            except OSError as error:
                _log.warning(
                    "cannot accept connections; trying again",
                    error=str(error),
                    retry_seconds=ACCEPT_AGAIN_SECONDS,
                )
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            now = loop.time()
            if len(self._connections) >= self._limits.max_connections:
                self._close(self._to_evict(now))
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(accepted, now)
            self._connections[connection] = None
            connection.task = group.create_task(self._serve(connection))
            # Not in the task: a task cancelled before its first step runs no code.
            connection.task.add_done_callback(partial(self._closed, connection))
            accepted_in_step += 1
            if accepted_in_step >= ACCEPTS_A_STEP:
                accepted_in_step = 0
                await asyncio.sleep(0)

    def _to_evict(self, now: float) -> _Connection:
        """Return the connection to close for a new one.

        First the oldest without a complete request, if it is older than `GRACE_SECONDS`. Then the one idle for
        longest, then the oldest of all. So a new client gets a response even while others flood the server.
        """
        incomplete = self._in_stage(Stage.INCOMPLETE)
        if incomplete and now - incomplete[0].since >= GRACE_SECONDS:
            return incomplete[0]
        if idle := self._in_stage(Stage.IDLE):
            return idle[0]
        return min(
            self._connections,
            key=lambda connection: connection.accepted_at,
        )

    def _enter(self, connection: _Connection, stage: Stage) -> None:
        """Change the stage; no-op for a connection that was closed, whose task may still run."""
        if connection in self._connections:
            del self._connections[connection]
            self._connections[connection] = None
            connection.stage = stage
            connection.since = loop_time()

    def _close(self, connection: _Connection) -> None:
        """Remove the connection from the count now; its socket is closed when its task ends."""
        self._connections.pop(connection, None)
        if connection.task is not None:
            connection.task.cancel()

    async def _serve(self, connection: _Connection) -> None:
        try:
            if self._tls is not None:
                async with asyncio.timeout(READ_SECONDS):
                    await connection.stream.start_tls(self._tls.context, self._turn)
            try:
                while await self._serve_request(connection):
                    self._enter(connection, Stage.IDLE)
                connection.stream.end_sending()
            except RefusedRequest as error:
                await self._refuse(connection, error)
        except (OSError, EOFError):
            pass  # closed or reset by the client, timed out, or not TLS
        except Exception:  # noqa: BLE001 - one connection never ends the server
            _log.exception("serving a connection failed")

    def _closed(
        self,
        connection: _Connection,
        _task: asyncio.Task[None],
    ) -> None:
        connection.stream.close()
        self._connections.pop(connection, None)
        connection.task = None  # its error refers to the connection; the cycle would live until a garbage collection

    async def _serve_request(self, connection: _Connection) -> bool:
        """Serve the next request; False if the connection must be closed after it.

        Raises:
            RefusedRequest: the request is refused.
        """
        head, size = parse_head(
            await self._read_head(connection), max_body_bytes=self._limits.max_body_bytes
        )
        async with asyncio.timeout(READ_SECONDS):
            while len(connection.received) < size:
                self._limit_bodies(connection)
                await connection.receive()
        request = replace(head, body=connection.take(size))
        connection.body_bytes = size
        # A client that pipelines would be younger than others with each request, and so displace them.
        pipelines = bool(connection.received)
        self._enter(connection, Stage.ANSWERING)
        async with self._turn:
            await asyncio.sleep(0)
        response = await self._respond(request)
        keep_alive = request.keep_alive and not pipelines and self._socket is not None
        await self._send(
            connection,
            response,
            keep_alive=keep_alive,
            body=request.method != "HEAD",
        )
        connection.body_bytes = 0
        return keep_alive

    async def _read_head(self, connection: _Connection) -> bytes:
        """Return the next head. The idle timeout covers the first request too: Go's clients open connections early.

        Raises:
            RefusedRequest: the head is too large.
        """
        if not connection.received:
            async with asyncio.timeout(self._limits.idle_seconds):
                await connection.receive()
        if connection.stage is Stage.IDLE:
            self._enter(connection, Stage.INCOMPLETE)
        async with asyncio.timeout(READ_SECONDS):
            while (
                end := connection.received.find(
                    END_OF_HEAD,
                    0,
                    MAX_HEAD_BYTES,
                )
            ) < 0:
                if len(connection.received) > MAX_HEAD_BYTES:
                    raise RefusedRequest(431)
                await connection.receive()
        return connection.take(end + len(END_OF_HEAD))

    def _limit_bodies(self, connection: _Connection) -> None:
        """If all bodies together are too large, evict other connections, the oldest with an incomplete request first.

        Raises:
            RefusedRequest: there is no such other.
        """
        held = sum(other.held_bytes for other in self._connections)
        for oldest in [other for other in self._in_stage(Stage.INCOMPLETE) if other.received]:
            if held <= self._limits.all_bodies_bytes:
                return
            if oldest is connection:
                raise RefusedRequest(503)
            held -= oldest.held_bytes
            self._close(oldest)

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        handler = self._handlers.get(request.path)
        if handler is None:
            return HttpResponse.of_status(404)
        if request.method not in self._methods:
            return HttpResponse.of_status(
                405,
                Allow=", ".join(self._methods),
            )
        try:
            async with asyncio.timeout(HANDLE_SECONDS):
                return await handler(request)
        except TimeoutError:
            return HttpResponse.of_status(503)
        except Exception:  # noqa: BLE001 - the client gets a response
            _log.exception(
                "request failed",
                method=request.method,
                path=request.path,
            )
            return HttpResponse.of_status(500)

    async def _send(
        self,
        connection: _Connection,
        response: HttpResponse,
        *,
        keep_alive: bool = False,
        body: bool = True,
    ) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await connection.stream.send(response.head(now=utc_now(), keep_alive=keep_alive))
            if body:
                await connection.stream.send(response.body)

    async def _refuse(self, connection: _Connection, error: RefusedRequest) -> None:
        """Send the status, then discard what the client still sends, for up to `LINGER_SECONDS`."""
        connection.received.clear()
        await self._send(connection, HttpResponse.of_status(error.status))
        connection.stream.end_sending()
        async with asyncio.timeout(LINGER_SECONDS):
            while await connection.stream.receive():
                pass
