"""An HTTP/1.1 connection with one request at a time.

Source: Go net/http transport.go (persistConn).
Differs: no goroutines; received data is parsed in the callback that reads it. Closing sends the TLS close_notify and
does not wait for the peer.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final, cast

from kruise_probe.client.answers import AnswerParser, BadResponse

UNREAD_BYTES: Final = 256 * 1024
"""Unread bytes of a stream at which reading from the socket is paused."""


class Broken(Exception):
    """The connection ended before the response did; the message says how."""


class HttpConnection(asyncio.Protocol):
    """A connection made by `dialing` and kept by `pool`. Its holder sends requests one after the other.

    `on_lost` is called once, right before the socket is closed. `version` is set and read by the pool.
    `requests` is the number of requests sent, without CONNECT.
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
        self._eof = False
        self._closed = False

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    @property
    def usable(self) -> bool:
        """True if a request can be sent now, as far as this side knows."""
        if self._eof or self._closed or self._transport is None or self._transport.is_closing():
            return False
        answer = self._answer
        if answer is None:
            return True
        # The server may respond before it has read the whole request. The connection is then not reusable.
        return (
            answer.complete
            and answer.reusable
            and not self._paused
            and not self._transport.get_write_buffer_size()
        )

    def send(self, data: bytes, *, tunnel: bool = False) -> None:
        """Write a whole request to the socket, without an await. Only for a `usable` connection."""
        self._answer = AnswerParser(tunnel=tunnel)
        self._streaming = False
        self.requests += not tunnel
        if self._eof or self._closed:  # closed since it was dialed; no callback follows
            self._fail(Broken("the connection was closed without an answer"))
        else:
            self.transport.write(data)

    async def head(self) -> AnswerParser:
        """Return the response once its header is complete.

        Raises:
            Broken: the connection ended before that.
            BadResponse: the response is not valid HTTP.
        """
        answer = self._current_response()
        self._streaming = True
        while not answer.status:
            await self._wait_for_data()
        return answer

    async def whole(self) -> AnswerParser:
        """Return the complete response. Raises: as `head`."""
        answer = self._current_response()
        self._streaming = False
        self._resume_reading()
        while not answer.complete:
            await self._wait_for_data()
        return answer

    async def portion(self) -> bytes:
        """Return the next bytes of the body after `head`; empty at its end. Raises: as `head`."""
        answer = self._current_response()
        while not (data := answer.take()):
            if answer.complete:
                return b""
            self._resume_reading()
            await self._wait_for_data()
        self._resume_reading()
        return data

    def secured(self, transport: asyncio.Transport) -> None:
        """Switch to `transport`, which is TLS over the previous transport."""
        self._transport = transport
        if self._answer is not None and not self._answer.reusable:
            self.close()  # the proxy's tunnel sent data before the first request
        self._answer = None

    def close(self) -> None:
        """Close the connection now, also with a request in flight. Does not wait for the peer."""
        if not self._closed:
            self._closed = True
            if self._transport is not None and self._tcp is not None:
                self._transport.close()  # sends close_notify if there is TLS
                self._tcp.abort()

    # Callbacks of asyncio.Protocol.

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
        self._ended(_reason(exc) if exc is not None else "the connection was closed")
        self._closed = True
        self._on_lost(self)

    def _current_response(self) -> AnswerParser:
        assert self._answer is not None, "nothing was asked"
        return self._answer

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if not self._closed:
                self.transport.resume_reading()

    def _ended(self, how: str) -> None:
        self._eof = True
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

    async def _wait_for_data(self) -> None:
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


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return error.strerror or os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__
