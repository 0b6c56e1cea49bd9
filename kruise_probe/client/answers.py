"""Parser of one HTTP response from the bytes of a connection: no I/O, no clock.

Source: RFC 9112; Go net/http transfer.go and transport.go (1xx responses, size limit of the header).
Differs: llhttp parses, in strict mode. Only the header fields that the client uses are kept.
"""

import zlib
from typing import Final

import httptools

MAX_FRAMING_BYTES: Final = 256 * 1024
"""Maximum of all bytes outside a body: header, 1xx responses, trailers. Go allows 1 MB for an HTTP/1.1 header."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Maximum of body bytes before `take`: a page of 500 pods may have 128 KiB per pod."""

MAX_UNPACKED_BYTES: Final = 16 * 1024 * 1024
"""Maximum of bytes decompressed from one `feed`. A body that grows a hundredfold is a decompression bomb."""

_UNPACKED_AT_ONCE: Final = 256 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


class BadResponse(Exception):
    """The response is not valid HTTP, or not of a kind that was requested; the message says why."""


class BodyTooLarge(BadResponse):
    """The body exceeds the size limit, before or after decompression."""


class AnswerParser:
    """Incremental parser of one response.

    With `tunnel`, it parses a proxy's response to CONNECT: on success, that ends with its header.

    Attributes:
        status: HTTP status; 0 until the header is complete.
        retry_after: the Retry-After header.
        complete: True when the whole response was received.
        reusable: True if the connection can carry another request once this response is complete.
        pending_bytes: body bytes that were received and not yet taken.
    """

    __slots__ = (
        "_framing_bytes",
        "_head_ended",
        "_interim",
        "_packed",
        "_parser",
        "_pieces",
        "_problem",
        "_too_large",
        "_tunnel",
        "_unpacker",
        "_until_end",
        "complete",
        "pending_bytes",
        "retry_after",
        "reusable",
        "status",
    )

    def __init__(self, *, tunnel: bool = False) -> None:
        self.status = 0
        self.retry_after: str | None = None
        self.complete = False
        self.reusable = False
        self.pending_bytes = 0
        self._tunnel = tunnel
        self._pieces: list[bytes] = []
        self._framing_bytes = 0
        self._head_ended = False
        self._interim = False
        self._until_end = True
        self._packed = False
        self._unpacker: zlib._Decompress | None = None
        self._problem = ""
        self._too_large = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. Bytes after a complete response make the connection not reusable.

        Raises:
            BadResponse: the bytes are not valid HTTP, or exceed a limit. Feed no more bytes after it.
            BodyTooLarge: the body exceeds `MAX_BODY_BYTES` or `MAX_UNPACKED_BYTES`.
        """
        if self._parser is None:
            self.reusable = False
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._problem = "it changes to a protocol that was not asked for"
        except httptools.HttpParserError as error:
            self.reusable = False
            if not self.complete:
                self._problem = self._problem or f"this is no HTTP: {error}"
        if self.complete:
            self._parser = None  # breaks the reference cycle
        elif self._framing_bytes > MAX_FRAMING_BYTES:
            self._problem = f"its head has more than {MAX_FRAMING_BYTES} bytes"
        if self._problem:
            self._parser = None
            self._pieces.clear()
            raise (BodyTooLarge if self._too_large else BadResponse)(self._problem)

    def end(self) -> bool:
        """Handle the end of the connection. Return False if the response is incomplete.

        Raises:
            BadResponse: the compressed body is incomplete.
        """
        self._parser = None
        self.reusable = False
        if not self.complete and self._head_ended and self._until_end:
            self._finish()
            if self._problem:
                raise BadResponse(self._problem)
        return self.complete

    def take(self) -> bytes:
        """Return the body bytes received since the last call."""
        pieces = self._pieces
        if not pieces:
            return b""
        self._pieces = []
        self.pending_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # Callbacks of httptools. Data after a complete response only makes the connection not reusable.

    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_ended:
            return
        match name.lower():
            case b"content-length":
                self._until_end = False
            case b"transfer-encoding":
                self._until_end = self._until_end and b"chunked" not in value.lower()
            case b"retry-after":
                self.retry_after = value.decode("latin-1")
            case b"content-encoding":
                self._set_encoding(value.strip().lower())
            case _:
                pass

    def on_headers_complete(self) -> None:
        if self.complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            if not 100 <= status <= 199:
                self._problem = f"{status} is no status"
            self._interim = True
            return
        self._head_ended = True
        self.status = status
        self.reusable = self._parser.should_keep_alive()
        if self._tunnel and status < 300:
            self.complete = self.reusable = True

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False
            return
        self._framing_bytes = 0
        if self._problem:
            return
        if self._packed:
            self._unpack(data)
        else:
            self._keep(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._forget_interim()
        elif not self.complete:
            self._finish()

    def _forget_interim(self) -> None:
        self._interim = self._packed = False
        self._until_end = True
        self.retry_after = None

    def _finish(self) -> None:
        if self._packed and self._unpacker is not None and not self._unpacker.eof:
            self._problem = self._problem or "its packed body is cut off"
        self.complete = not self._problem

    def _set_encoding(self, encoding: bytes) -> None:
        if encoding in (b"gzip", b"x-gzip"):
            self._packed = True
        elif encoding not in (b"", b"identity"):
            self._problem = (
                f"its body is packed as {encoding.decode('latin-1')!r}, which was not asked for"
            )

    def _unpack(self, data: bytes) -> None:
        """Decompress in small pieces to limit memory. A gzip body may have several members."""
        unpacked = self.pending_bytes
        try:
            while data and not self._problem:
                if self.pending_bytes - unpacked > MAX_UNPACKED_BYTES:
                    self._refuse_size(
                        f"{MAX_UNPACKED_BYTES} bytes unpacked from one read of the socket"
                    )
                    return
                if self._unpacker is None or self._unpacker.eof:
                    self._unpacker = zlib.decompressobj(_GZIP)
                self._keep(self._unpacker.decompress(data, _UNPACKED_AT_ONCE))
                data = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        except zlib.error as error:
            self._problem = f"its body cannot be unpacked: {error}"

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self.pending_bytes += len(piece)
            if self.pending_bytes > MAX_BODY_BYTES:
                self._refuse_size(f"{MAX_BODY_BYTES} bytes")

    def _refuse_size(self, limit: str) -> None:
        self._too_large = True
        self._problem = f"its body has more than {limit}"
