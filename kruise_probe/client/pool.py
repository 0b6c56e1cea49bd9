"""The connections to one server: open, in use and idle. Clients of one process may share them.

A request takes an idle connection, or waits for the first one that is released or opened. `pool_policy` decides whether
one is opened for it.

Source: Go net/http transport.go (idleConn, wantConn, keep-alive, idle time).
Differs: HTTP/1.1 alone; if no further connection can be opened, leases come first, then watches; namespaces take
turns.
"""

import asyncio
import copy
from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import structlog

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time
from kruise_probe.client.cluster_config import ClusterConfig
from kruise_probe.client.connection import HttpConnection
from kruise_probe.client.dialer import Dialer
from kruise_probe.client.pool_policy import (
    Closing,
    GivingUp,
    Growth,
    Turn,
    may_be_at_fault,
    turn_of,
)
from kruise_probe.client.request import Request

_log = structlog.get_logger(__name__)

MAX_CONNECTIONS: Final = 64
"""In use or idle, without those of streams. Writes of leases may open more."""

IDLE_SECONDS: Final = 90.0
"""Idle timeout of a connection, as in client-go."""


@dataclass(slots=True, order=True)
class _Waiter:
    """A request that waits for a connection.

    Attributes:
        round: a namespace has one request in each round, so that one with many does not delay the others.
    """

    turn: Turn
    round: int
    order: int
    namespace: str = field(compare=False)
    connection: asyncio.Future[HttpConnection] = field(compare=False)
    dialing: bool = field(default=False, compare=False)
    tried: bool = field(default=False, compare=False)


class Pool:
    """Owns all connections to one server. Open from the first `enter` to the last `leave`."""

    def __init__(self, config: ClusterConfig) -> None:
        self.dialer = Dialer(config)
        self._credentials = config.credentials
        self._growth = Growth()
        self._giving_up = GivingUp()
        self._users = 0
        self._open: set[HttpConnection] = set()
        self._idle: deque[HttpConnection] = deque()
        """The longest idle first."""
        self._busy = 0
        """Connections in use, without those of streams."""
        self._waiters: list[_Waiter] = []
        self._round = 0
        """Of the last request that got a connection after it had waited."""
        self._orders = count()
        self._dialing = 0
        self._dials: set[asyncio.Task[None]] = set()
        self._end_of_pause: asyncio.TimerHandle | None = None
        self._reported = False

    def enter(self) -> None:
        """Open the pool for one more client."""
        self._users += 1

    async def leave(self) -> None:
        """Close the pool after its last client: all connections end."""
        self._users -= 1
        if self._users:
            return
        if self._end_of_pause is not None:
            self._end_of_pause.cancel()
        self._fail_waiters(ConnectionFailed("the client is not open"))
        for dial in self._dials:
            dial.cancel()
        if self._dials:
            await asyncio.wait(self._dials)
        for connection in self._open:
            connection.close()
        for _step in range(3):  # asyncio closes an aborted socket in one of the next steps
            await asyncio.sleep(0)

    async def acquire(self, request: Request) -> HttpConnection:
        """Return an idle connection, the most recently used first, or wait for one. Release it afterwards.

        Raises:
            TlsRefused, ConnectionFailed: none could be opened, and none is in use that would be released.
        """
        if not self._users:
            raise ConnectionFailed("the client is not open")
        now = loop_time()
        self.close_idle(now - IDLE_SECONDS)
        connection = self._take_idle()
        if connection is None:
            if self._busy or self._dialing or self._waiters:
                return await self._wait(request)
            connection = await self._dial_alone()
        self._use(connection, streams=request.streams)
        return connection

    def release(self, connection: HttpConnection) -> None:
        """Give back a connection: to the next request, if it is usable."""
        if connection not in self._open:
            connection.close()
            return
        if not connection.streams:
            self._busy -= 1
        if self._users and self._is_good(connection):
            connection.idle_since = loop_time()
            self._idle.append(connection)
        else:
            self._close(connection)
        if self._waiters:
            self._advance()

    def close_idle(self, since: float) -> None:
        """Close the connections that are idle since this loop time or longer."""
        while self._idle:
            oldest = self._idle[0]
            if oldest.idle_since > since:
                return
            self._idle.popleft()
            self._close(oldest)

    def give_up(self, connection: HttpConnection, request: Request) -> bool:
        """Handle a 5xx response. Return True if the request may succeed on another connection.

        The next connection is opened to another address, if the name has several.
        """
        now = loop_time()
        worked = connection.worked
        closing = self._giving_up.closing(
            now,
            worked=worked,
            may_be_at_fault=may_be_at_fault(request),
        )
        if closing is Closing.NONE:
            return False
        connection.close()
        self.dialer.avoid(connection)
        if closing is Closing.THIS_AND_OLDER:
            for older in self._open:
                older.retired = True
            self.close_idle(now)
        return worked

    def lost(self, connection: HttpConnection, sent_at: float) -> None:
        """Handle a request, sent at this loop time, that got no response in time.

        After a fail-over of a load balancer all older connections are dead, and each would use up the deadline of one
        more request.
        """
        self.dialer.avoid(connection)
        self.close_idle(sent_at)

    # Waiting.

    async def _wait(self, request: Request) -> HttpConnection:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[HttpConnection] = loop.create_future()
        waiter = _Waiter(
            turn_of(request),
            self._next_round(request.namespace),
            next(self._orders),
            request.namespace,
            future,
        )
        insort(self._waiters, waiter)
        self._advance()
        try:
            return await future
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif _has_result(future):
                self.release(future.result())
            raise

    def _next_round(self, namespace: str) -> int:
        """The first round in which no request of this namespace waits yet."""
        last = self._round
        for waiter in self._waiters:
            if waiter.namespace == namespace:
                last = max(last, waiter.round)
        return last + 1

    def _advance(self) -> None:
        """Give idle connections to the requests that wait, and open connections for the others."""
        self._give_idle()
        loop = asyncio.get_running_loop()
        now = loop.time() + CLOCK_SLACK_SECONDS
        for waiter in self._waiters:
            if waiter.turn is Turn.OTHER and self._is_full:
                break
            if waiter.dialing:
                continue
            one_for_each = self._dialing >= len(self._waiters)
            if one_for_each and waiter.turn is not Turn.LEASE:
                continue
            may_dial = self._growth.may_dial(
                now,
                waiter.turn,
                tried=waiter.tried,
                dialing=self._dialing,
                busy=self._busy,
            )
            if may_dial:
                self._start_dial(waiter)
        paused_until = self._growth.paused_until
        if self._waiters and self._end_of_pause is None and now < paused_until:
            self._end_of_pause = loop.call_at(paused_until, self._end_pause)

    def _give_idle(self) -> None:
        for waiter in self._waiters.copy():
            if waiter.connection.done():
                continue
            connection = self._take_idle()
            if connection is None:
                return
            self._waiters.remove(waiter)
            if waiter.turn is Turn.OTHER:
                self._round = max(self._round, waiter.round)
            streams = waiter.turn is Turn.STREAM
            self._use(connection, streams=streams)
            waiter.connection.set_result(connection)

    @property
    def _is_full(self) -> bool:
        connections = self._busy + len(self._idle) + self._dialing
        return connections >= MAX_CONNECTIONS

    def _end_pause(self) -> None:
        self._end_of_pause = None
        self._advance()

    def _start_dial(self, waiter: _Waiter) -> None:
        waiter.dialing = True
        self._dialing += 1
        dialing = self._dial(waiter)
        dial = asyncio.create_task(dialing, name="dial")
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)

    async def _dial(self, waiter: _Waiter) -> None:
        """Open a connection for the first request that waits. `waiter` is the one that caused it."""
        try:
            connection = await self._dial_once()
            self._idle.append(connection)
        except Exception as error:  # noqa: BLE001 - raised where a connection is awaited
            waiter.tried = True
            self._handle_failure(error)
        finally:
            waiter.dialing = False
        self._advance()

    async def _dial_alone(self) -> HttpConnection:
        """Open a connection for a request that nothing else could serve."""
        self._dialing += 1
        try:
            connection = await self._dial_once()
        except Exception as error:
            self._handle_failure(error)
            raise
        finally:
            if self._waiters:
                self._advance()
        if not self._users:
            self._close(connection)
            raise ConnectionFailed("the client is not open")
        return connection

    async def _dial_once(self) -> HttpConnection:
        """Open a connection, as an attempt that is counted already."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        version = self._credentials.version
        try:
            connection = await self.dialer.dial()
        except Exception:
            self._growth.failed(loop.time(), began_at)
            raise
        finally:
            self._dialing -= 1
        self._growth.succeeded()
        if self._reported:
            _log.info("connections to the API server can be opened again")
            self._reported = False
        connection.version = version
        connection.idle_since = loop.time()
        self._open.add(connection)
        return connection

    def _handle_failure(self, error: Exception) -> None:
        if self._open and not self._reported:
            self._reported = True
            _log.warning(
                "no further connection to the API server can be opened; requests wait for one that is free",
                open=len(self._open),
                error=str(error),
            )
        if not self._busy and not self._dialing and not self._idle:
            self._fail_waiters(error)

    def _fail_waiters(self, error: Exception) -> None:
        waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            if not waiter.connection.done():
                waiter.connection.set_exception(copy.copy(error))

    def _take_idle(self) -> HttpConnection | None:
        """Remove and return the most recently used connection."""
        while self._idle:
            connection = self._idle.pop()
            if self._is_good(connection):
                return connection
            self._close(connection)
        return None

    def _is_good(self, connection: HttpConnection) -> bool:
        if connection.retired or connection.version != self._credentials.version:
            return False
        return connection.usable

    def _use(self, connection: HttpConnection, *, streams: bool) -> None:
        connection.streams = streams
        if not streams:
            self._busy += 1

    def _close(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        connection.close()


def _has_result(future: asyncio.Future[HttpConnection]) -> bool:
    if not future.done() or future.cancelled():
        return False
    return future.exception() is None
