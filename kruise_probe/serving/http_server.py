"""A small HTTP/1.1 server: whole requests in, whole responses out.

What a client can do wrong ends in an answer that says so or in a closed connection, within a bounded time: each state
of a connection has its deadline, and there is a bound to connections, heads, bodies and requests in waiting.

Source: Go net/http server.go (conn.serve, Shutdown; ReadTimeout, IdleTimeout, WriteTimeout).
Differs: no streams, no HTTP/2; a handler is cancelled when its client breaks the connection.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

import structlog

from kruise_probe.api.times import utc_now
from kruise_probe.serving.http_messages import (
    BadRequest,
    Received,
    Request,
    RequestParser,
    Response,
)

Handler = Callable[[Request], Awaitable[Response]]

READ_SECONDS: Final = 30.0
"""From the first byte of a request to its last; also for the first byte of a new connection."""
HANDLE_SECONDS: Final = 30.0
WRITE_SECONDS: Final = 30.0
"""For the client to take an answer."""
HANDSHAKE_SECONDS: Final = 10.0
LINGER_SECONDS: Final = 1.0
"""How long a connection that is refused stays open for the refusal to be read."""
STOP_SECONDS: Final = 0.5
"""How long an answer under way may take when the server ends."""
CLOSE_SECONDS: Final = 1.0

MAX_CONNECTIONS: Final = 256
"""Beyond it the one that has been idle for the longest gives way; with none idle the new one does."""

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Limits(NamedTuple):
    """`idle_seconds` is how long a connection is kept between two requests."""

    idle_seconds: float
    max_body_bytes: int = 0
    max_connections: int = MAX_CONNECTIONS


class Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other."""

    def __init__(self, server: "HttpListener") -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = RequestParser(max_body_bytes=server.limits.max_body_bytes)
        self._waiting: deque[Received] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._written = asyncio.Event()
        self._written.set()
        self._reading = False
        self._ending = False

    @property
    def idle(self) -> bool:
        return self._answering is None and not self._parser.busy and not self._ending

    def finish(self) -> None:
        """Ends it after the answer that is under way, at once without one."""
        if self._answering is None:
            self.abort()
        else:
            self._parser.close()
            self._ending = True

    def abort(self) -> None:
        """Ends it now."""
        self._ending = True
        self._parser.close()
        if self._answering is not None:
            self._answering.cancel()
        if self._transport is not None:
            self._transport.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Paused as soon as one byte is left over. With 0 asyncio's TLS would pause when none is, until more is read.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._within(READ_SECONDS)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        self._ending = True
        self._parser.close()
        self._written.set()
        if self._answering is not None:
            self._answering.cancel()
        self._server.lost(self)

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        try:
            self._waiting.extend(self._parser.feed(data))
        except BadRequest as error:
            self._refuse(error)
            return
        if self._answering is None:
            if self._waiting:
                self._reading = False
                self._end_deadline()
                self._answering = self._server.start(self._answer_all())
            else:
                self._read_on()
        elif self._waiting:
            self._transport_of().pause_reading()

    def eof_received(self) -> bool:
        """Whoever says no more may still listen: what was asked is answered first. TLS has no such half."""
        if self._answering is None or not self._transport_of().can_write_eof():
            return False
        if self._waiting:
            self._waiting[-1] = replace(self._waiting[-1], close=True)
        else:
            self._ending = True
        return True

    def pause_writing(self) -> None:
        self._written.clear()

    def resume_writing(self) -> None:
        self._written.set()

    def _read_on(self) -> None:
        """A request is under way: its deadline counts from its first byte."""
        if not self._reading:
            self._reading = True
            self._within(READ_SECONDS)
        if self._parser.wants_to_go_on:
            self._parser.wants_to_go_on = False
            self._transport_of().write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer_all(self) -> None:
        try:
            while self._waiting and not self._transport_of().is_closing():
                await self._answer(self._waiting.popleft())
                if self._ending:
                    return
        except asyncio.CancelledError:
            self._transport_of().abort()
            raise
        except Exception:
            log.exception("answering failed")
            self._transport_of().abort()
            return
        finally:
            self._answering = None
        self._next()

    def _next(self) -> None:
        """Nothing waits for an answer: reads on, or tells what was wrong with what came last."""
        self._transport_of().resume_reading()
        if self._parser.refuses:
            try:
                self._parser.feed(b"")
            except BadRequest as error:
                self._refuse(error)
        elif self._parser.busy:
            self._read_on()
        else:
            self._within(self._server.limits.idle_seconds)

    async def _answer(self, received: Received) -> None:
        response = await self._server.respond(received.request)
        transport = self._transport_of()
        close = received.close or self._ending
        transport.write(
            response.encoded(
                now=self._server.now(), close=close, with_body=received.request.method != "HEAD"
            )
        )
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._written.wait()
        except TimeoutError:
            self._ending = True
            transport.abort()
            return
        if close or self._ending:
            self._ending = True
            transport.close()
            self._within(CLOSE_SECONDS)

    def _refuse(self, error: BadRequest) -> None:
        """Says so and goes on reading for a moment: a reset for unread bytes would take the answer along.

        With an answer under way there is nothing to say in between: the connection ends after it.
        """
        if self._answering is not None:
            self._ending = True
            return
        self._ending = True
        transport = self._transport_of()
        response = Response.of_status(error.status)
        transport.write(response.encoded(now=self._server.now(), close=True))
        if transport.can_write_eof():
            transport.write_eof()
        self._within(LINGER_SECONDS)

    def _transport_of(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    def _within(self, seconds: float) -> None:
        self._end_deadline()
        self._deadline = self._loop.call_later(seconds, self.abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class HttpListener:
    """Serves `handler` at a listening socket, which it closes in the end; with `tls` over TLS.

    What the handler raises is logged and answered with 500; what takes longer than `HANDLE_SECONDS` with 503.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: Handler,
        *,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.limits = limits
        self.now = now
        self._listening = listening
        self._handler = handler
        self._tls = tls
        self._connections: dict[Connection, None] = {}
        self._group: asyncio.TaskGroup | None = None
        self._lost = asyncio.Event()

    async def run(self, on_listening: Callable[[], None] = lambda: None) -> None:
        """Serves until cancelled; answers under way are given `STOP_SECONDS`."""
        async with asyncio.TaskGroup() as self._group:
            server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self),
                sock=self._listening,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
                ssl_shutdown_timeout=CLOSE_SECONDS if self._tls else None,
            )
            try:
                on_listening()
                await asyncio.get_running_loop().create_future()
            finally:
                server.close()
                await self._end()

    # What its connections call.

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._group is not None, "not running"
        return self._group.create_task(work)

    def opened(self, connection: Connection) -> None:
        self._connections[connection] = None
        if len(self._connections) > self.limits.max_connections:
            next((each for each in self._connections if each.idle), connection).abort()

    def lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._lost.set()

    async def respond(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(HANDLE_SECONDS):
                return await self._handler(request)
        except TimeoutError:
            return Response.of_status(503)
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            return Response.of_status(500)

    async def _end(self) -> None:
        try:
            for connection in tuple(self._connections):
                connection.finish()
            await self._all_lost(STOP_SECONDS)
        finally:
            for connection in tuple(self._connections):
                connection.abort()
            await self._all_lost(CLOSE_SECONDS)

    async def _all_lost(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._connections:
                    self._lost.clear()
                    await self._lost.wait()
