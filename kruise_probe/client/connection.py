"""An HTTP/1.1 connection with one request at a time.

Source: Go net/http transport.go (persistConn).
Differs: no goroutines; received data is parsed in the callback that reads it.
"""

import asyncio
import os
import ssl
import sys
import zlib
from array import array
from typing import Final, cast

from kruise_probe.api.errors import ConnectionFailed, ResponseTooLarge
from kruise_probe.wire.responses import InvalidResponse, ResponseParser

if sys.platform == "linux":
    import fcntl
    import termios

MAX_FRAMING_BYTES: Final = 256 * 1024
"""Maximum of all bytes outside the body: header, 1xx responses, trailers. Go allows 1 MB for an HTTP/1.1 header."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Maximum of a body, and of one event of a watch: a page of 500 pods may have 128 KiB per pod."""

UNREAD_BYTES: Final = 256 * 1024
"""Unread bytes of a body at which reading from the socket is paused."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_TOO_LARGE: Final = f"the body exceeds {MAX_BODY_BYTES} bytes"

Address = tuple[str, int]


class TlsRefused(ConnectionFailed):
    """The TLS handshake failed; usually one side does not trust the other. No request was processed."""


class ConnectionBroken(ConnectionFailed):
    """The connection ended before a complete response; the request may or may not have taken effect.

    `was_new`: the connection was made for this request.
    """

    def __init__(self, message: str, *, was_new: bool = False) -> None:
        super().__init__(message)
        self.was_new = was_new


class HttpConnection(asyncio.Protocol):
    """A connection. Its user sends one request after the other, and reads each response.

    Attributes:
        requests: number of requests sent, without CONNECT.
        address: IP address and port of the peer, once it is connected.
        worked: True once a response was not a 5xx.
        received_bytes: number of bytes from the peer.

    Attributes for its pool:
        version: of the credentials of the handshake.
        idle_since: loop time.
        streams: a stream uses it.
        retired: it is not used again.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.address: Address | None = None
        self.worked = False
        self.received_bytes = 0
        self.version = 0
        self.idle_since = 0.0
        self.streams = False
        self.retired = False
        self._transport: asyncio.Transport | None = None
        self._response: ResponseParser | None = None
        self._problem: ConnectionFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport: TCP first, then TLS over it. None once the connection has ended."""
        return self._transport

    @property
    def usable(self) -> bool:
        """True if a request can be sent now, as far as this side knows."""
        if self._transport is None or self._transport.is_closing():
            return False
        response = self._response
        if response is None:
            return True
        if self._paused or not response.complete or not response.reusable:
            return False
        # The server may respond before it has read the whole request. The connection is then not reusable.
        unwritten = self._transport.get_write_buffer_size()
        return unwritten == 0

    @property
    def responding(self) -> bool:
        """True if the server has begun to respond to the last request."""
        response = self._response
        if response is None:
            return False
        return response.status > 0

    def unsent_bytes(self) -> int:
        """Bytes that the peer has not acknowledged. Linux counts those that the kernel has."""
        transport = self._transport
        if transport is None:
            return 0
        buffered = transport.get_write_buffer_size()
        tcp = transport.get_extra_info("socket")
        if tcp is None or sys.platform != "linux":
            return buffered
        in_kernel = array("i", [0])
        fcntl.ioctl(tcp.fileno(), termios.TIOCOUTQ, in_kernel)
        return buffered + in_kernel[0]

    def send(self, data: bytes, *, tunnel: bool = False, upgrade: bool = False) -> None:
        """Write a whole request to the socket, without an await. Only for a `usable` connection."""
        self._response = ResponseParser(
            max_framing_bytes=MAX_FRAMING_BYTES, tunnel=tunnel, upgrade=upgrade
        )
        if not tunnel:
            self.requests += 1
        if self._transport is not None:
            self._transport.write(data)
            return
        was_new = self.requests == 1
        self._problem = ConnectionBroken(
            "the connection was closed before the request was sent", was_new=was_new
        )

    def write(self, data: bytes) -> None:
        """Write bytes of the protocol that a 101 switched to. Nothing is written to a connection that has ended."""
        if self._transport is not None:
            self._transport.write(data)

    async def read_header(self) -> ResponseParser:
        """Return the response once its header is complete.

        Raises:
            TlsRefused, ConnectionBroken: the connection ended before that.
            InvalidResponse: the response is not valid HTTP.
        """
        assert self._response is not None, "no request was sent"
        while not self._response.status:
            await self._data()
        return self._response

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body, after the header; empty at its end. Raises: as `read_header`."""
        response = self._response
        assert response is not None, "no request was sent"
        while not response.body and not response.complete:
            await self._data()
        if self._paused:
            self._paused = False
            if self._transport is not None:
                self._transport.resume_reading()
        data = bytes(response.body)
        response.body.clear()
        return data

    async def read_body(self, *, compressed: bool = False) -> bytes:
        """Return the whole body. `compressed`: it may have the encoding gzip.

        Raises:
            ResponseTooLarge: the body exceeds `MAX_BODY_BYTES`, before or after decompression.
            TlsRefused, ConnectionBroken, InvalidResponse: as `read_header`.
        """
        header = await self.read_header()
        encoding = header.headers.get("content-encoding", "identity").lower()
        if encoding == "gzip" and compressed:
            return await self._read_gzip()
        if encoding != "identity":
            shown = encoding[:40]
            raise InvalidResponse(f"Content-Encoding {shown!r} was not requested")
        pieces: list[bytes] = []
        size = 0
        while chunk := await self.read_chunk():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise ResponseTooLarge(_TOO_LARGE)
            pieces.append(chunk)
        return b"".join(pieces)

    async def _read_gzip(self) -> bytes:
        gzip = zlib.decompressobj(_GZIP)
        pieces: list[bytes] = []
        size = 0
        while chunk := await self.read_chunk():
            try:
                piece = gzip.decompress(chunk, MAX_BODY_BYTES)
            except zlib.error as error:
                raise InvalidResponse(f"the gzip body is invalid: {error}") from error
            size += len(piece)
            if size > MAX_BODY_BYTES or gzip.unconsumed_tail:
                raise ResponseTooLarge(_TOO_LARGE)
            pieces.append(piece)
        if pieces and not gzip.eof:
            raise InvalidResponse("the gzip body is truncated")
        return b"".join(pieces)

    def close(self) -> None:
        """Close the connection now, also with a request in flight. Does not wait for the peer."""
        transport = self._transport
        self._transport = None
        if transport is not None:
            transport.abort()

    # Callbacks of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._response = None

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        response = self._response
        transport = self._transport
        if transport is None:
            return
        if response is None:
            self.close()
            return
        try:
            response.feed(data)
        except InvalidResponse as error:
            self._problem = InvalidResponse(f"{error}; is this the address of an API server?")
            self.close()
        else:
            unread = len(response.body)
            if unread > UNREAD_BYTES and not self._paused:
                self._paused = True
                transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended("the server closed the connection", refused_tls=False)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the connection was closed"
        if exc is not None:
            reason = reason_of(exc)
        refused_tls = isinstance(exc, ssl.SSLError)
        self._ended(reason, refused_tls=refused_tls)

    def _ended(self, reason: str, *, refused_tls: bool) -> None:
        response = self._response
        if response is not None and self._problem is None and not response.end():
            has_begun = response.status > 0
            was_new = self.requests == 1
            # A server may reject the client certificate after the handshake.
            if has_begun:
                message = f"{reason} in the middle of the response"
                self._problem = ConnectionBroken(message, was_new=was_new)
            elif refused_tls and was_new:
                self._problem = TlsRefused(f"{reason} before a response")
            else:
                message = f"{reason} before a response"
                self._problem = ConnectionBroken(message, was_new=was_new)
        self.close()
        self._wake()

    def _data(self) -> asyncio.Future[None]:
        """Return a future that is done with the next data or problem. Raises a problem that is there already."""
        if self._problem is not None:
            raise self._problem
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def reason_of(error: Exception) -> str:
    """The reason without Python's prefix."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    elif isinstance(error, OSError) and error.errno:
        text = os.strerror(error.errno)
    words = text.split()
    if not words:
        return type(error).__name__
    return " ".join(words)
