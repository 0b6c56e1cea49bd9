"""Pool of idle connections. The most recently used connection is reused first.

Source: Go net/http transport.go (idleConn), with client-go's idle timeout.
Differs: no limit of connections, because the sender limits the requests in flight.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from kruise_probe.client.dialer import DialFailed
from kruise_probe.client.http1 import HttpConnection

IDLE_SECONDS = 90.0
"""Idle timeout of a connection, as in client-go."""
CLOSE_SECONDS: Final = 1.0

Dial = Callable[[Callable[[HttpConnection], None]], Awaitable[HttpConnection]]


class _Idle(NamedTuple):
    connection: HttpConnection
    since: float


class Pool:
    """Dials connections, keeps idle ones, and closes all of them at the end.

    `dial` opens a connection, which calls the argument of `dial` when it is lost. `certificate_version` returns the
    current version of the client certificate; a connection with an older version is not reused.
    """

    def __init__(self, dial: Dial, certificate_version: Callable[[], int]) -> None:
        self._dial = dial
        self._certificate_version = certificate_version
        self._idle: deque[_Idle] = deque()
        self._open: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_lost: asyncio.Event = asyncio.Event()

    async def acquire(self) -> HttpConnection:
        """Return an idle or new connection. The caller must call `release`.

        Raises:
            DialFailed: no idle connection is usable, and dialing failed.
        """
        while self._idle:
            connection = self._idle.pop().connection
            if connection.usable and connection.certificate_version == self._certificate_version():
                return connection
            connection.close()
        if not self._closed:
            version = self._certificate_version()
            connection = await self._dial(self._lost)
            connection.certificate_version = version
            if connection.usable:  # if already lost, `send` reports it
                self._open.add(connection)
            if not self._closed:
                return connection
            connection.close()
        raise DialFailed("the client is closed")

    def release(self, connection: HttpConnection) -> None:
        """Keep the connection for the next request if it is usable; otherwise close it."""
        if self._closed or not connection.usable:
            connection.close()
            return
        now = asyncio.get_running_loop().time()
        self._idle.append(_Idle(connection, now))
        if self._sweep is None:
            self._sweep_at(now + IDLE_SECONDS)

    async def close(self) -> None:
        """Close every connection, also those in use. Wait at most `CLOSE_SECONDS` until all sockets are closed."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in tuple(self._open):
            connection.close()
        if self._open:
            with contextlib.suppress(TimeoutError):
                # In a cancelled task, `asyncio.timeout` of Python 3.11.2 raises no TimeoutError.
                await asyncio.wait_for(self._all_lost.wait(), CLOSE_SECONDS)
        await asyncio.sleep(0)  # asyncio closes the socket right after `on_lost`

    def close_idle(self, since: float) -> None:
        """Close the connections that are idle since this loop time or longer. The leftmost is idle longest."""
        while self._idle and self._idle[0].since <= since:
            self._idle.popleft().connection.close()

    def _lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if self._closed and not self._open:
            self._all_lost.set()

    def _sweep_at(self, when: float) -> None:
        self._sweep = asyncio.get_running_loop().call_at(when, self._close_expired)

    def _close_expired(self) -> None:
        self._sweep = None
        self.close_idle(asyncio.get_running_loop().time() - IDLE_SECONDS)
        if self._idle:
            self._sweep_at(self._idle[0].since + IDLE_SECONDS)
