"""Connections that are kept between requests; the one that was used last is used next.

Source: Go net/http transport.go (idleConn), with client-go's idle time.
Differs: no limit of its own: the sender bounds how many requests are under way.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from kruise_probe.client.dialing import DialFailed
from kruise_probe.client.http1 import HttpConnection

IDLE_SECONDS = 90.0
"""How long an unused connection is kept; client-go's number."""
CLOSE_SECONDS: Final = 1.0

Dial = Callable[[Callable[[HttpConnection], None]], Awaitable[HttpConnection]]


class _Idle(NamedTuple):
    connection: HttpConnection
    since: float


class Pool:
    """Gives connections out, takes them back, and closes all of them in the end.

    `dial` makes one that reports its own end to the function that it is given. `version` says of what version a
    connection must be made to be used again: an older one presented a client certificate that has been replaced.
    """

    def __init__(self, dial: Dial, version: Callable[[], int] = lambda: 0) -> None:
        self._dial = dial
        self._version = version
        self._idle: deque[_Idle] = deque()
        self._open: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_lost: asyncio.Event = asyncio.Event()

    async def take(self) -> HttpConnection:
        """One that can be used now; it is the caller's until `give_back`.

        Raises:
            DialFailed: none was kept, and none could be made.
        """
        while self._idle:
            connection = self._idle.pop().connection
            if connection.usable and connection.version == self._version():
                return connection
            connection.close()
        if not self._closed:
            version = self._version()
            connection = await self._dial(self._lost)
            connection.version = version
            if connection.usable:  # or it has told of its end already; sending will say so
                self._open.add(connection)
            if not self._closed:
                return connection
            connection.close()
        raise DialFailed("the client has been closed")

    def give_back(self, connection: HttpConnection) -> None:
        """Keeps it for the next request if it can carry one, closes it otherwise."""
        if self._closed or not connection.usable:
            connection.close()
            return
        now = asyncio.get_running_loop().time()
        self._idle.append(_Idle(connection, now))
        if self._sweep is None:
            self._sweep_at(now + IDLE_SECONDS)

    async def close(self) -> None:
        """Closes every connection, also those under way; returns when no descriptor is left."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._idle.clear()
        for connection in tuple(self._open):
            connection.close()
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._all_lost.wait()
        await asyncio.sleep(0)  # the descriptor goes right after it was told

    def _lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if self._closed and not self._open:
            self._all_lost.set()

    def _sweep_at(self, when: float) -> None:
        self._sweep = asyncio.get_running_loop().call_at(when, self._close_idle)

    def _close_idle(self) -> None:
        """Those at the left have been idle for the longest."""
        self._sweep = None
        now = asyncio.get_running_loop().time()
        while self._idle and now >= self._idle[0].since + IDLE_SECONDS:
            self._idle.popleft().connection.close()
        if self._idle:
            self._sweep_at(self._idle[0].since + IDLE_SECONDS)
