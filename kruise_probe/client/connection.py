"""An HTTP/1.1 connection with one request at a time, and the parser of its responses.

Source: RFC 9112; Go net/http transport.go (persistConn, 1xx responses, size limit of the header).
Differs: no goroutines; llhttp parses received data in the callback that reads it, in strict mode.
"""

import asyncio
import os
import ssl
import sys
import zlib
from array import array
from typing import Final, cast

import httptools

from kruise_probe.api.errors import ConnectionFailed, ResponseTooLarge

if sys.platform == "linux":
    import fcntl
    import termios

MAX_FRAMING_BYTES: Final = 256 * 1024
"""Maximum of all bytes outside the body: header, 1xx responses, trailers. Go allows 1 MB for an HTTP/1.1 header."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Maximum of a body, and of one event of a watch: a page of 500 pods may have 128 KiB per pod."""

UNREAD_BYTES: Final = 256 * 1024
"""Unread bytes of a body at which reading from the socket is paused."""

SWITCHING_PROTOCOLS: Final = 101

_GZIP: Final = 16 + zlib.MAX_WBITS

Address = tuple[str, int]


class InvalidResponse(ConnectionFailed):
    """The response is not valid HTTP, or its encoding was not requested."""


class TlsRefused(ConnectionFailed):
    """The TLS handshake failed; usually one side does not trust the other. No request was processed."""


class ConnectionBroken(ConnectionFailed):
    """The connection ended before a complete response; the request may or may not have taken effect.

    `was_new`: the connection was made for this request.
    """

    def __init__(self, message: str, *, was_new: bool = False) -> None:
        super().__init__(message)
        self.was_new = was_new


class ResponseParser:
    """Incremental parser of one response: no I/O, no clock.

    With `tunnel`, it parses a proxy's response to CONNECT: on success, that ends with its header. With `upgrade`, it
    accepts 101: the bytes of the other protocol are the body, until the connection ends.

    Attributes:
        status: HTTP status; 0 until the header is complete.
        headers: header fields by name in lower case.
        body: the bytes of the body that were received and not yet taken.
        complete: True when the whole response was received.
        reusable: True if the connection can carry another request once this response is complete.
    """

    def __init__(self, *, tunnel: bool = False, upgrade: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.complete = self.reusable = False
        self._tunnel = tunnel
        self._upgrade = upgrade
        self._framing_bytes = 0
        self._interim = False
        self._until_close = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. Bytes after a complete response make the connection not reusable.

        Raises:
            InvalidResponse: the bytes are not valid HTTP, or exceed a limit. Feed no more bytes after it.
        """
        if self._parser is None:
            self.reusable = False
            if not self.complete:
                self.body += data
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            if self.status != SWITCHING_PROTOCOLS:
                raise InvalidResponse("the server switched to another protocol") from None
            self._parser = None
            self.body += data[switched.args[0] :]
            return
        except httptools.HttpParserError as error:
            self.reusable = False
            if not self.complete:
                raise InvalidResponse(
                    f"the response is not valid HTTP ({error}); is this the address of an API server?"
                ) from error
        if self.complete:
            self._parser = None  # breaks the reference cycle
        elif self._framing_bytes > MAX_FRAMING_BYTES:
            raise InvalidResponse(f"the header exceeds {MAX_FRAMING_BYTES} bytes")

    def end(self) -> bool:
        """Handle the end of the connection. Return False if the response is incomplete."""
        self._parser = None
        self.complete = self.complete or self._until_close
        return self.complete

    # Callbacks of httptools. They ignore data after a complete response, except that its connection is not reusable.

    def on_message_begin(self) -> None:
        self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # not a trailer
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if self.complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200 and not (self._upgrade and status == SWITCHING_PROTOCOLS):
            self._interim = True
            return
        self.status = status
        chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self._until_close = not chunked and "content-length" not in self.headers
        self.reusable = self._parser.should_keep_alive() and status != SWITCHING_PROTOCOLS
        if self._tunnel and status < 300:
            self.complete = self.reusable = True

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False
            return
        self._framing_bytes = 0
        self.body += data

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self.headers.clear()
        elif self.status != SWITCHING_PROTOCOLS:
            self.complete = True


class HttpConnection(asyncio.Protocol):
    """A connection. Its user sends one request after the other, and reads each response.

    Attributes:
        requests: number of requests sent, without CONNECT.
        address: IP address and port of the peer, once it is connected.
        silent: True if nothing has shown yet that somebody serves the connection: neither a TLS handshake nor a
            response.
        worked: True once a response was not a 5xx.
        received_bytes: number of bytes from the peer.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.address: Address | None = None
        self.silent = False
        self.worked = False
        self.received_bytes = 0
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

    def unsent_bytes(self) -> int:
        """Bytes that the peer has not acknowledged. Linux counts those that the kernel has."""
        if self._transport is None:
            return 0
        kernel = self._transport.get_extra_info("socket")
        queued = array("i", [0])
        if kernel is not None and sys.platform == "linux":
            fcntl.ioctl(kernel.fileno(), termios.TIOCOUTQ, queued)
        return self._transport.get_write_buffer_size() + queued[0]

    def send(self, data: bytes, *, tunnel: bool = False, upgrade: bool = False) -> None:
        """Write a whole request to the socket, without an await. Only for a `usable` connection."""
        self._response = ResponseParser(tunnel=tunnel, upgrade=upgrade)
        self.requests += not tunnel
        if self._transport is None:
            self._problem = ConnectionBroken(
                "the connection was closed before the request was sent", was_new=self.requests == 1
            )
        else:
            self._transport.write(data)

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
        encoding = (await self.read_header()).headers.get("content-encoding", "identity").lower()
        if encoding != "identity" and not (compressed and encoding == "gzip"):
            raise InvalidResponse(f"Content-Encoding {encoding[:40]!r} was not requested")
        gzip = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        pieces, size = [], 0
        while chunk := await self.read_chunk():
            try:
                piece = gzip.decompress(chunk, MAX_BODY_BYTES) if gzip else chunk
            except zlib.error as error:
                raise InvalidResponse(f"the gzip body is invalid: {error}") from error
            size += len(piece)
            if size > MAX_BODY_BYTES or (gzip and gzip.unconsumed_tail):
                raise ResponseTooLarge(f"the body exceeds {MAX_BODY_BYTES} bytes")
            pieces.append(piece)
        if gzip and pieces and not gzip.eof:
            raise InvalidResponse("the gzip body is truncated")
        return b"".join(pieces)

    def close(self) -> None:
        """Close the connection now, also with a request in flight. Does not wait for the peer."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # Callbacks of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._response = None

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        response, transport = self._response, self._transport
        if transport is None:
            return
        if response is None:
            self.close()
            return
        try:
            response.feed(data)
        except InvalidResponse as error:
            self._problem = error
            self.close()
        else:
            if len(response.body) > UNREAD_BYTES and not self._paused:
                self._paused = True
                transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended("the server closed the connection", refused_tls=False)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = reason_of(exc) if exc is not None else "the connection was closed"
        self._ended(reason, refused_tls=isinstance(exc, ssl.SSLError))

    def _ended(self, reason: str, *, refused_tls: bool) -> None:
        response = self._response
        if response is not None and self._problem is None and not response.end():
            where = "in the middle of the response" if response.status else "before a response"
            was_new, message = self.requests == 1, f"{reason} {where}"
            # A server may reject the client certificate after the handshake.
            if refused_tls and was_new and not response.status:
                self._problem = TlsRefused(message)
            else:
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
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def reason_of(error: Exception) -> str:
    """The reason without Python's prefix."""
    if isinstance(error, ssl.SSLError):
        return " ".join((error.strerror or str(error)).split())
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return error.strerror or os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__
