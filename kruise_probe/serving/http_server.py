"""A small HTTP/1.1 server for untrusted clients, over plain TCP, TLS or both. Requests and responses are not streamed.

Every connection is one task over a bounded stream. Connections are counted when they are accepted, before TLS. When
there are too many, or their bodies hold too much memory, the oldest connection without a complete request is
closed. So slow or idle clients cannot block a client that sends its request at once.

Source: Go net/http server.go (conn.serve, Shutdown; ReadTimeout, IdleTimeout, WriteTimeout).
Differs: no streams, no HTTP/2, no chunked bodies.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

import structlog

from kruise_probe.api.times import utc_now
from kruise_probe.serving.http_messages import (
    END_OF_HEAD,
    MAX_HEAD_BYTES,
    BadRequest,
    Request,
    RequestHead,
    Response,
    parse_head,
)
from kruise_probe.serving.stream import Stream

Handler = Callable[[Request], Awaitable[Response]]

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

MAX_CONNECTIONS: Final = 256
"""During a flood, a new client has time to send its request until this many others have connected."""
GRACE_SECONDS: Final = 1.0
"""A connection without a complete request is not evicted before this age."""
MAX_AHEAD: Final = 16
"""Pipelined requests per connection; the connection is closed after more."""
KERNEL_BYTES: Final = 128 * 1024
"""Kernel socket buffer per connection and direction; it counts as this container's memory."""
ACCEPTS_A_STEP: Final = 32
"""Connections accepted per event loop step."""
ACCEPTS_A_STEP_WHEN_FULL: Final = 4
"""Each of them closes another connection. A request takes some steps, in which few new connections may come."""
ACCEPT_AGAIN_SECONDS: Final = 1.0
"""Pause after a failed accept, as when the process has no file descriptors left."""

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Limits(NamedTuple):
    """Limits of a listener.

    Attributes:
        idle_seconds: how long a connection without a request is kept.
        all_bodies_bytes: maximum size of the bodies of all connections together.
    """

    idle_seconds: float
    max_body_bytes: int = 0
    all_bodies_bytes: int = 0
    max_connections: int = MAX_CONNECTIONS


class Tls(NamedTuple):
    """TLS settings. `context` is awaited before each handshake; `required` closes connections without TLS."""

    context: Callable[[], Awaitable[ssl.SSLContext]]
    required: bool = True


class Stage(Enum):
    """Stage of a connection."""

    INCOMPLETE = "has sent no complete request"
    IDLE = "is between two requests"
    ANSWERING = "has a request in flight"


class Connection:
    """One accepted connection; `since` is when it entered its stage."""

    def __init__(self, connection: socket.socket, since: float) -> None:
        self.stream: Final = Stream(connection)
        self.stage = Stage.INCOMPLETE
        self.since = since
        self.body: list[bytes] = []
        """Body chunks received so far. Not a local of the task: those of a cancelled task wait for the garbage collector."""
        self.body_bytes = 0
        self.task: asyncio.Task[None] | None = None


class HttpListener:
    """Serves `handler` on a listening socket, and closes the socket at the end.

    An exception of the handler is logged and returns 500. A handler that takes longer than `HANDLE_SECONDS` returns 503.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: Handler,
        *,
        limits: Limits,
        tls: Tls | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._listening = listening
        self._handler = handler
        self._limits = limits
        self._tls = tls
        self._now = now
        self._connections: dict[Connection, None] = {}
        self._by_stage: dict[Stage, dict[Connection, None]] = {each: {} for each in Stage}
        self._body_bytes = 0
        self._turn = asyncio.Lock()
        """Held for handshakes and request starts, which block the loop for milliseconds: at most one per loop step."""
        self._turn_of_followers = asyncio.Lock()
        """Held in addition by requests that a client sent ahead of an answer, so one of them at most waits for `_turn`."""
        self._ending = False
        self._group: asyncio.TaskGroup | None = None

    async def run(self, on_listening: Callable[[], None] = lambda: None) -> None:
        """Serve until cancelled; requests in flight then have `STOP_SECONDS` to complete."""
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # inherited by accepted sockets
            self._listening.setsockopt(socket.SOL_SOCKET, buffer, KERNEL_BYTES)
        async with asyncio.TaskGroup() as self._group:
            loop.add_reader(self._listening, self._accept)
            try:
                on_listening()
                await loop.create_future()
            finally:
                self._ending = True
                loop.remove_reader(self._listening)
                self._listening.close()
                await self._end()

    async def _end(self) -> None:
        answering = set[asyncio.Task[None]]()
        for each in tuple(self._connections):
            if each.task is not None and each.stage is Stage.ANSWERING:
                answering.add(each.task)
            else:
                self._close(each)
        if answering:
            await asyncio.wait(answering, timeout=STOP_SECONDS)
        for each in tuple(self._connections):
            self._close(each)

    def _accept(self) -> None:
        full = len(self._connections) >= self._limits.max_connections
        for _ in range(ACCEPTS_A_STEP_WHEN_FULL if full else ACCEPTS_A_STEP):
            try:
                connection, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections for a second", error=str(error))
                self._pause_accepting()
                return
            self._opened(connection)

    def _pause_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)

        def resume() -> None:
            if not self._ending:
                loop.add_reader(self._listening, self._accept)

        loop.call_later(ACCEPT_AGAIN_SECONDS, resume)

    def _opened(self, accepted: socket.socket) -> None:
        assert self._group is not None, "not running"
        now = asyncio.get_running_loop().time()
        if len(self._connections) >= self._limits.max_connections:
            self._close(self._connection_to_evict(now))
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(accepted, now)
        self._connections[connection] = None
        self._by_stage[Stage.INCOMPLETE][connection] = None
        connection.task = self._group.create_task(self._serve(connection))
        # Not in the task: a task cancelled before its first step runs no code.
        connection.task.add_done_callback(partial(self._closed, connection))

    def _connection_to_evict(self, now: float) -> Connection:
        """Select the connection to close for a new one.

        First the oldest without a complete request, if it is older than `GRACE_SECONDS`. Then the one idle for
        longest, then the oldest of all. So a new client gets a response even while others flood the server.
        """
        incomplete = next(iter(self._by_stage[Stage.INCOMPLETE]), None)
        if incomplete is not None and now - incomplete.since >= GRACE_SECONDS:
            return incomplete
        idle = next(iter(self._by_stage[Stage.IDLE]), None)
        return idle if idle is not None else next(iter(self._connections))

    def _close(self, connection: Connection) -> None:
        """Remove the connection from the count now; its socket is closed when its task ends."""
        self._forget(connection)
        if connection.task is not None:
            connection.task.cancel()

    def _closed(self, connection: Connection, _task: asyncio.Task[None]) -> None:
        connection.stream.close()
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._by_stage[connection.stage].pop(connection, None)
        self._release(connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            await self._serve_requests(connection)
        except OSError:
            pass  # closed or reset by the client, timed out, or not TLS
        except Exception:
            log.exception("serving a connection failed")

    async def _serve_requests(self, connection: Connection) -> None:
        try:
            await self._answer_requests(connection)
        except BadRequest as error:
            await self._refuse(connection, error)

    async def _answer_requests(self, connection: Connection) -> None:
        """Serve requests one after the other, until a response or the client closes the connection.

        Raises:
            BadRequest: the next request is refused.
        """
        received = bytearray()
        async with asyncio.timeout(READ_SECONDS):
            if not await self._start(connection):
                return
        head = await self._next_head(connection, received)
        ahead = 0
        while head is not None:
            request, close = await self._read_rest(connection, head, received)
            self._enter(connection, Stage.ANSWERING)
            await self._take_turn(followed=bool(ahead))
            response = await self._respond(request)
            self._release(connection)
            ahead = ahead + 1 if received else 0
            close = close or self._ending or ahead > MAX_AHEAD
            await self._send(connection, response, close=close, body=request.method != "HEAD")
            if close:
                connection.stream.end_sending()
                return
            self._enter(connection, Stage.IDLE)
            head = await self._next_head(connection, received)

    async def _start(self, connection: Connection) -> bool:
        """Detect TLS by the first byte and do the handshake; False if this port requires TLS and the client has none."""
        if self._tls is None:
            return True
        if await connection.stream.begins_with_tls():
            await connection.stream.start_tls(await self._tls.context(), self._turn)
            return True
        return not self._tls.required

    async def _next_head(self, connection: Connection, received: bytearray) -> bytes | None:
        """Read the next head. The idle timeout covers the first one too: Go's clients open connections before they need them."""
        if not received:
            async with asyncio.timeout(self._limits.idle_seconds):
                received += await connection.stream.receive()
            if not received:
                return None
        if connection.stage is Stage.IDLE:
            self._enter(connection, Stage.INCOMPLETE)
        async with asyncio.timeout(READ_SECONDS):
            return await self._read_head(connection, received)

    async def _read_head(self, connection: Connection, received: bytearray) -> bytes | None:
        """Take the next head from `received` and leave the rest there; None if the client has closed.

        Raises:
            BadRequest: the head is too large.
        """
        searched = 0
        while (end := received.find(END_OF_HEAD, max(searched - 3, 0), MAX_HEAD_BYTES)) < 0:
            if len(received) > MAX_HEAD_BYTES:
                raise BadRequest(431)
            searched = len(received)
            chunk = await connection.stream.receive()
            if not chunk:
                return None
            received += chunk
        end += len(END_OF_HEAD)
        head = bytes(received[:end])
        del received[:end]
        return head

    async def _read_rest(
        self, connection: Connection, head: bytes, received: bytearray
    ) -> tuple[Request, bool]:
        """Return the complete request, and whether to close the connection after the response.

        Raises:
            BadRequest: the head or the length of the body is invalid.
        """
        parsed = parse_head(head, max_body_bytes=self._limits.max_body_bytes)
        if not parsed.body_bytes:
            return parsed.request, parsed.close
        if parsed.expects_continue and not received:
            await connection.stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(READ_SECONDS):
            return await self._with_body(connection, parsed, received), parsed.close

    async def _with_body(
        self, connection: Connection, parsed: RequestHead, received: bytearray
    ) -> Request:
        missing, chunk = parsed.body_bytes, bytes(received)
        received.clear()
        while True:
            received += chunk[missing:]
            self._hold(connection, chunk[:missing])
            missing -= len(chunk[:missing])
            if not missing:
                body = b"".join(connection.body)
                connection.body.clear()
                return parsed.with_body(body)
            chunk = await connection.stream.receive()
            if not chunk:
                raise ConnectionError("the body ended early")

    def _hold(self, connection: Connection, chunk: bytes) -> None:
        """Store a chunk of a body; above `all_bodies_bytes` close the oldest connection with an incomplete body.

        Raises:
            BadRequest: this connection is the oldest.
        """
        connection.body.append(chunk)
        connection.body_bytes += len(chunk)
        self._body_bytes += len(chunk)
        while self._body_bytes > self._limits.all_bodies_bytes:
            unfinished = (each for each in self._by_stage[Stage.INCOMPLETE] if each.body_bytes)
            oldest = next(unfinished, connection)
            if oldest is connection:
                raise BadRequest(503)
            self._close(oldest)

    def _release(self, connection: Connection) -> None:
        self._body_bytes -= connection.body_bytes
        connection.body_bytes = 0
        connection.body.clear()

    def _enter(self, connection: Connection, stage: Stage) -> None:
        if connection not in self._connections:
            return  # already closed; its task is not cancelled yet
        self._by_stage[connection.stage].pop(connection, None)
        self._by_stage[stage][connection] = None
        connection.stage = stage
        connection.since = asyncio.get_running_loop().time()

    async def _take_turn(self, *, followed: bool) -> None:
        """`followed`: the client sent the request ahead of an answer. The first requests of others go before it."""
        if followed:
            async with self._turn_of_followers:
                await self._take_turn(followed=False)
            return
        async with self._turn:
            await asyncio.sleep(0)

    async def _respond(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(HANDLE_SECONDS):
                return await self._handler(request)
        except TimeoutError:
            return Response.of_status(503)
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            return Response.of_status(500)

    async def _send(
        self, connection: Connection, response: Response, *, close: bool, body: bool = True
    ) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await connection.stream.send(response.head(now=self._now(), close=close))
            if body:
                await connection.stream.send(response.body)

    async def _refuse(self, connection: Connection, error: BadRequest) -> None:
        """Send the status, then discard what the client still sends, for up to `LINGER_SECONDS`."""
        self._release(connection)
        await self._send(connection, Response.of_status(error.status), close=True)
        connection.stream.end_sending()
        async with asyncio.timeout(LINGER_SECONDS):
            while await connection.stream.receive():
                pass
