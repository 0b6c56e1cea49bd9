"""A small HTTP/1.1 server for strangers: whole requests in, whole responses out, over plain TCP, TLS or both.

Every connection is one task over a bounded stream. Connections are counted when they are accepted, before TLS. When
there are too many, or their bodies hold too much memory, the oldest connection that has sent no complete request is
closed. So a client that sends its request at once is answered, however many others do not.

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
"""For a TLS handshake, for a request's head from its first byte to its last, and for its body."""
HANDLE_SECONDS: Final = 30.0
WRITE_SECONDS: Final = 10.0
"""For the client to accept an answer."""
LINGER_SECONDS: Final = 1.0
"""How long the client of a refused request may go on sending: a reset for unread bytes would discard the answer."""
STOP_SECONDS: Final = 0.5
"""How long answers in flight may take when the server ends."""

MAX_CONNECTIONS: Final = 256
"""A client that comes during a flood has time to send its request until so many others have come."""
GRACE_SECONDS: Final = 1.0
"""How long a new connection may take to send its request before others are closed in its place."""
MAX_AHEAD: Final = 16
"""Requests that a client may send ahead of their answers before its connection ends."""
KERNEL_BYTES: Final = 128 * 1024
"""What the kernel holds for one connection in each direction: it counts as this container's memory."""
ACCEPTS_A_STEP: Final = 32
"""Connections accepted in one step of the loop."""
ACCEPT_AGAIN_SECONDS: Final = 1.0
"""After the process has run out of files."""

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Limits(NamedTuple):
    """`idle_seconds` is how long a connection is kept without a request, `all_bodies_bytes` bounds bodies of all connections."""

    idle_seconds: float
    max_body_bytes: int = 0
    all_bodies_bytes: int = 0
    max_connections: int = MAX_CONNECTIONS


class Tls(NamedTuple):
    """`context` is awaited by the first connections that speak TLS; `required` closes those that do not."""

    context: Callable[[], Awaitable[ssl.SSLContext]]
    required: bool = True


class Stage(Enum):
    """What a connection is at."""

    INCOMPLETE = "has sent no complete request"
    IDLE = "is between two requests"
    ANSWERING = "has a request in flight"


class Connection:
    """One client, as the listener counts it; `since` is when it entered its stage."""

    def __init__(self, connection: socket.socket, since: float) -> None:
        self.stream: Final = Stream(connection)
        self.stage = Stage.INCOMPLETE
        self.since = since
        self.body: list[bytes] = []
        """So far. Here, not in the task: what a cancelled one held is freed by the garbage collector only."""
        self.body_bytes = 0
        self.task: asyncio.Task[None] | None = None


class HttpListener:
    """Serves `handler` at a listening socket, which it closes in the end.

    A handler that raises is logged and answered with 500, one that takes longer than `HANDLE_SECONDS` with 503.
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
        """Held by what may take milliseconds of the loop: one handshake or request starts in one step."""
        self._ending = False
        self._group: asyncio.TaskGroup | None = None

    async def run(self, on_listening: Callable[[], None] = lambda: None) -> None:
        """Serves until cancelled; answers in flight are given `STOP_SECONDS`."""
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # accepted sockets inherit them
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
        for _ in range(ACCEPTS_A_STEP):
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
            self._close(self._least_deserving(now))
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(accepted, now)
        self._connections[connection] = None
        self._by_stage[Stage.INCOMPLETE][connection] = None
        connection.task = self._group.create_task(self._serve(connection))
        # Not in the task: one that is cancelled before its first step runs no code.
        connection.task.add_done_callback(partial(self._closed, connection))

    def _least_deserving(self, now: float) -> Connection:
        """What gives way to a new connection.

        The oldest that has sent no complete request, but a new one has a moment to send it; then the one that is idle
        for the longest; then the oldest of all. So a client that comes and sends its request has its turn, also when
        strangers send requests without end.
        """
        incomplete = next(iter(self._by_stage[Stage.INCOMPLETE]), None)
        if incomplete is not None and now - incomplete.since >= GRACE_SECONDS:
            return incomplete
        idle = next(iter(self._by_stage[Stage.IDLE]), None)
        return idle if idle is not None else next(iter(self._connections))

    def _close(self, connection: Connection) -> None:
        """Stops counting it at once; its socket is closed when its task has ended."""
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
            await self._converse(connection)
        except OSError:
            pass  # the client's end: closed, reset, too slow, not TLS
        except Exception:
            log.exception("serving a connection failed")

    async def _converse(self, connection: Connection) -> None:
        try:
            await self._answer_requests(connection)
        except BadRequest as error:
            await self._refuse(connection, error)

    async def _answer_requests(self, connection: Connection) -> None:
        """One after the other, until one closes or the client does.

        Raises:
            BadRequest: of the next one.
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
        """Decides by the first byte; False when this port serves nobody who begins so."""
        if self._tls is None:
            return True
        if await connection.stream.begins_with_tls():
            await connection.stream.start_tls(await self._tls.context(), self._turn)
            return True
        return not self._tls.required

    async def _next_head(self, connection: Connection, received: bytearray) -> bytes | None:
        """The first one, too, may take its time: Go's clients open connections ahead of their requests."""
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
        """The next head, cut off `received`; what follows stays there. None when the client is done.

        Raises:
            BadRequest: it is too large.
        """
        searched = 0
        while (end := received.find(END_OF_HEAD, max(searched - 3, 0), MAX_HEAD_BYTES)) < 0:
            if len(received) > MAX_HEAD_BYTES:
                raise BadRequest(431)
            searched = len(received)
            portion = await connection.stream.receive()
            if not portion:
                return None
            received += portion
        end += len(END_OF_HEAD)
        head = bytes(received[:end])
        del received[:end]
        return head

    async def _read_rest(
        self, connection: Connection, head: bytes, received: bytearray
    ) -> tuple[Request, bool]:
        """The request, and whether its connection ends with the answer.

        Raises:
            BadRequest: the head or the length of the body is unacceptable.
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
        missing, portion = parsed.body_bytes, bytes(received)
        received.clear()
        while True:
            received += portion[missing:]
            self._hold(connection, portion[:missing])
            missing -= len(portion[:missing])
            if not missing:
                body = b"".join(connection.body)
                connection.body.clear()
                return parsed.with_body(body)
            portion = await connection.stream.receive()
            if not portion:
                raise ConnectionError("the body ended early")

    def _hold(self, connection: Connection, portion: bytes) -> None:
        """Keeps a portion of a body; beyond the bound the oldest unfinished one is closed.

        Raises:
            BadRequest: that is this one.
        """
        connection.body.append(portion)
        connection.body_bytes += len(portion)
        self._body_bytes += len(portion)
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
            return  # closed; its task has not seen it yet
        self._by_stage[connection.stage].pop(connection, None)
        self._by_stage[stage][connection] = None
        connection.stage = stage
        connection.since = asyncio.get_running_loop().time()

    async def _respond(self, request: Request) -> Response:
        async with self._turn:
            await asyncio.sleep(0)
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
        """Sends the status, then discards what the client still sends, for a moment."""
        self._release(connection)
        await self._send(connection, Response.of_status(error.status), close=True)
        connection.stream.end_sending()
        async with asyncio.timeout(LINGER_SECONDS):
            while await connection.stream.receive():
                pass
