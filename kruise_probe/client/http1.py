"""One connection that carries one request at a time.

Source: Go net/http transport.go (persistConn).
Differs: no goroutines: what arrives is parsed in the step that reads it. Closing says goodbye and waits for nobody.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final, cast

from kruise_probe.client.answers import AnswerParser, BadResponse

UNREAD_BYTES: Final = 256 * 1024
"""How much of a stream may wait for its reader before the connection is no longer read from."""


class Broken(Exception):
    """The connection ended before the answer did; the text says how."""


class HttpConnection(asyncio.Protocol):
    """Made by `dialing`, kept by `pool`. Requests are sent by whoever holds it, one after the other.

    `on_lost` is called once, when its descriptor is about to be given back. `version` is the pool's; `requests`
    counts what it has carried, proxies' tunnels apart.
    """

    def __init__(self, on_lost: Callable[["HttpConnection"], None]) -> None:
        self.version = 0
        self.requests = 0
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._tcp: asyncio.Transport | None = None
        self._answer: AnswerParser | None = None
        self._problem: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._streaming = False
        self._paused = False
        self._over = False
        self._closed = False

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    @property
    def usable(self) -> bool:
        """Whether a request can be sent now, as far as is known here."""
        if self._over or self._closed or self._transport is None or self._transport.is_closing():
            return False
        answer = self._answer
        if answer is None:
            return True
        # An answer may come before its request has been read to the end; then there is no telling what is next.
        return (
            answer.complete
            and answer.reusable
            and not self._paused
            and not self._transport.get_write_buffer_size()
        )

    def send(self, data: bytes, *, tunnel: bool = False) -> None:
        """Hands a whole request to the socket, in this very step; only when `usable`."""
        self._answer = AnswerParser(tunnel=tunnel)
        self._streaming = False
        self.requests += not tunnel
        if self._over or self._closed:  # since it was made; nobody would tell again
            self._fail(Broken("the connection was closed without an answer"))
        else:
            self.transport.write(data)

    async def head(self) -> AnswerParser:
        """The answer as soon as its head is there.

        Raises:
            Broken: the connection ended before.
            BadResponse: as is everything here, when it is no HTTP.
        """
        answer = self._expected()
        self._streaming = True
        while not answer.status:
            await self._news()
        return answer

    async def whole(self) -> AnswerParser:
        """The answer when nothing is left to come. Raises: as `head`."""
        answer = self._expected()
        self._streaming = False
        self._go_on()
        while not answer.complete:
            await self._news()
        return answer

    async def portion(self) -> bytes:
        """The next bytes of the body after `head`; empty at its end. Raises: as `head`."""
        answer = self._expected()
        while not (data := answer.take()):
            if answer.complete:
                return b""
            self._go_on()
            await self._news()
        self._go_on()
        return data

    def secured(self, transport: asyncio.Transport) -> None:
        """From now on it speaks through `transport`, which is TLS above the one that it had."""
        self._transport = transport
        if self._answer is not None and not self._answer.reusable:
            self.close()  # a proxy's tunnel, and something in it before anything was asked
        self._answer = None

    def close(self) -> None:
        """Ends it now, whatever is under way; a peer that is silent keeps nothing open."""
        if not self._closed:
            self._closed = True
            if self._transport is not None and self._tcp is not None:
                self._transport.close()  # tells the other side, where there is TLS
                self._tcp.abort()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._tcp = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if self._closed:
            return
        if answer is None:
            self.close()
            return
        try:
            answer.feed(data)
        except BadResponse as error:
            self._fail(error)
            return
        if answer.complete:
            self._wake()
        elif self._streaming and answer.status:
            if answer.pending_bytes > UNREAD_BYTES and not self._paused:
                self._paused = True
                self.transport.pause_reading()
            self._wake()

    def eof_received(self) -> None:
        self._ended("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(_words(exc) if exc is not None else "the connection was closed")
        self._closed = True
        self._on_lost(self)

    def _expected(self) -> AnswerParser:
        assert self._answer is not None, "nothing was asked"
        return self._answer

    def _go_on(self) -> None:
        if self._paused:
            self._paused = False
            if not self._closed:
                self.transport.resume_reading()

    def _ended(self, how: str) -> None:
        self._over = True
        answer = self._answer
        if answer is None or answer.complete or self._problem is not None:
            return
        try:
            whole = answer.end()
        except BadResponse as error:
            self._fail(error)
            return
        if whole:
            self._wake()
        elif answer.status:
            self._fail(Broken(f"{how} in the middle of the answer"))
        else:
            self._fail(Broken(f"{how} without an answer"))

    def _fail(self, problem: Exception) -> None:
        self._problem = problem
        self.close()
        self._wake()

    async def _news(self) -> None:
        if self._problem is not None:
            raise self._problem
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return error.strerror or os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__
