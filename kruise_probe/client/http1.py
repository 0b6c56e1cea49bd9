"""An HTTP/1.1 connection with one request at a time.

Source: Go net/http transport.go (persistConn).
Differs: no goroutines; received data is parsed in the callback that reads it. Closing sends the TLS close_notify and
does not wait for the peer.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final, cast

from kruise_probe.client.response import ResponseError, ResponseParser

UNREAD_BYTES: Final = 256 * 1024
"""Unread bytes of a stream at which reading from the socket is paused."""


class ConnectionLost(Exception):
    """The connection ended before the response was complete. The message contains the reason."""


class HttpConnection(asyncio.Protocol):
    """A connection of a `Pool`. Its user sends one request after the other.

    `on_lost` is called once, right before the socket is closed. The pool sets and reads
    `certificate_version`, the version of the client certificate of the handshake.
    `requests` is the number of requests sent, without CONNECT.
    """

    def __init__(self, on_lost: Callable[["HttpConnection"], None]) -> None:
        self.certificate_version = 0
        self.requests = 0
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._tcp: asyncio.Transport | None = None
        self._response: ResponseParser | None = None
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
        response = self._response
        if response is None:
            return True
        # The server may respond before it has read the whole request. The connection is then not reusable.
        return (
            response.complete
            and response.reusable
            and not self._paused
            and not self._transport.get_write_buffer_size()
        )

    @property
    def responding(self) -> bool:
        """True if the server has begun to respond to the last request."""
        return self._response is not None and self._response.status > 0

    def send(self, data: bytes, *, tunnel: bool = False, upgrade: bool = False) -> None:
        """Write a whole request to the socket, without an await. Only for a `usable` connection."""
        self._response = ResponseParser(tunnel=tunnel, upgrade=upgrade)
        self.requests += not tunnel
        if self._eof or self._closed:  # closed since it was dialed; no callback follows
            self._fail(ConnectionLost("the connection was closed before the request was sent"))
        else:
            self.transport.write(data)

    def write(self, data: bytes) -> None:
        """Write bytes of the protocol that a 101 switched to. Nothing is written to a connection that has ended."""
        if not (self._eof or self._closed):
            self.transport.write(data)

    async def read_header(self) -> ResponseParser:
        """Return the response once its header is complete. `read_chunk` then reads its body.

        Raises:
            ConnectionLost: the connection ended before that.
            ResponseError: the response is not valid HTTP.
        """
        response = self._current_response()
        self._streaming = True
        while not response.status:
            await self._wait_for_data()
        return response

    async def read_response(self) -> ResponseParser:
        """Return the complete response. Raises: as `read_header`."""
        response = self._current_response()
        self._streaming = False
        self._resume_reading()
        while not response.complete:
            await self._wait_for_data()
        return response

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body; empty at its end. Raises: as `read_header`."""
        response = self._current_response()
        while not (data := response.take()):
            if response.complete:
                return b""
            self._resume_reading()
            await self._wait_for_data()
        self._resume_reading()
        return data

    def close(self) -> None:
        """Close the connection now, also with a request in flight. Does not wait for the peer."""
        if not self._closed:
            self._closed = True
            if self._transport is not None and self._tcp is not None:
                self._transport.close()  # sends close_notify if there is TLS
                self._tcp.abort()

    # Callbacks of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Use `transport`: TCP first, then TLS over the previous transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._tcp = self._tcp or self._transport
        self._response = None

    def data_received(self, data: bytes) -> None:
        response = self._response
        if self._closed:
            return
        if response is None:
            self.close()
            return
        try:
            response.feed(data)
        except ResponseError as error:
            self._fail(error)
            return
        if response.complete:
            self._wake()
        elif self._streaming and response.status:
            if response.pending_bytes > UNREAD_BYTES and not self._paused:
                self._paused = True
                self.transport.pause_reading()
            self._wake()

    def eof_received(self) -> None:
        self._ended("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(_reason(exc) if exc is not None else "the connection was closed")
        self._on_lost(self)

    def _current_response(self) -> ResponseParser:
        assert self._response is not None, "no request was sent"
        return self._response

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if not self._closed:
                self.transport.resume_reading()

    def _ended(self, reason: str) -> None:
        self._eof = True
        response = self._response
        if response is None or response.complete or self._problem is not None:
            return
        try:
            complete = response.end()
        except ResponseError as error:
            self._fail(error)
            return
        if complete:
            self._wake()
        elif response.status:
            self._fail(ConnectionLost(f"{reason} in the middle of the response"))
        else:
            self._fail(ConnectionLost(f"{reason} before a response"))

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
