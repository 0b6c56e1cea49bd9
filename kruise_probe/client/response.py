"""Parser of one HTTP response from the bytes of a connection: no I/O, no clock.

Source: RFC 9112; Go net/http transfer.go and transport.go (1xx responses, size limit of the header).
Differs: llhttp parses, in strict mode. Only the header fields that the client uses are kept.
"""

import zlib
from typing import Final

import httptools

MAX_FRAMING_BYTES: Final = 256 * 1024
"""Maximum of all bytes outside the body: header, 1xx responses, trailers. Go allows 1 MB for an HTTP/1.1 header."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Maximum of body bytes before `take`: a page of 500 pods may have 128 KiB per pod."""

MAX_DECOMPRESSED_BYTES: Final = 16 * 1024 * 1024
"""Maximum of bytes decompressed from one `feed`, against decompression bombs."""

SWITCHING_PROTOCOLS: Final = 101

_DECOMPRESSED_AT_ONCE: Final = 256 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


class ResponseError(Exception):
    """The response is not valid HTTP, or its encoding was not requested. The message contains the reason."""


class BodyTooLarge(ResponseError):
    """The body exceeds the size limit, before or after decompression."""


class ResponseParser:
    """Incremental parser of one response.

    With `tunnel`, it parses a proxy's response to CONNECT: on success, that ends with its header. With `upgrade`, it
    accepts 101: the bytes of the other protocol are the body, until the connection ends.

    Attributes:
        status: HTTP status; 0 until the header is complete.
        retry_after: the Retry-After header.
        date: the Date header, or empty.
        complete: True when the whole response was received.
        reusable: True if the connection can carry another request once this response is complete.
        pending_bytes: body bytes that were received and not yet taken.
        upgrade_fields: header fields of a 101 that begin with `sec-websocket-`, with names in lower case.
    """

    __slots__ = (
        "_decompressor",
        "_ends_with_connection",
        "_framing_bytes",
        "_header_ended",
        "_interim",
        "_is_gzip",
        "_parser",
        "_pieces",
        "_problem",
        "_too_large",
        "_tunnel",
        "_upgrade",
        "complete",
        "date",
        "pending_bytes",
        "retry_after",
        "reusable",
        "status",
        "upgrade_fields",
    )

    def __init__(self, *, tunnel: bool = False, upgrade: bool = False) -> None:
        self.status = 0
        self.retry_after: str | None = None
        self.date = ""
        self.complete = False
        self.reusable = False
        self.pending_bytes = 0
        self.upgrade_fields: dict[str, str] = {}
        self._tunnel = tunnel
        self._upgrade = upgrade
        self._pieces: list[bytes] = []
        self._framing_bytes = 0
        self._header_ended = False
        self._interim = False
        self._ends_with_connection = True
        self._is_gzip = False
        self._decompressor: zlib._Decompress | None = None
        self._problem = ""
        self._too_large = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. Bytes after a complete response make the connection not reusable.

        Raises:
            ResponseError: the bytes are not valid HTTP, or exceed a limit. Feed no more bytes after it.
            BodyTooLarge: the body exceeds `MAX_BODY_BYTES` or `MAX_DECOMPRESSED_BYTES`.
        """
        if self._parser is None:
            self.reusable = False
            if self.status == SWITCHING_PROTOCOLS:
                self._add(data)
                self._raise_problem()
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            if self.status == SWITCHING_PROTOCOLS:
                self._parser = None
                self._add(data[switched.args[0] :])
            else:
                self._problem = "the server switched to another protocol"
        except httptools.HttpParserError as error:
            self.reusable = False
            if not self.complete:
                self._problem = (
                    self._problem
                    or f"the response is not valid HTTP ({error}); is this the address of an API server?"
                )
        if self.complete:
            self._parser = None  # breaks the reference cycle
        elif self._framing_bytes > MAX_FRAMING_BYTES:
            self._problem = f"the header exceeds {MAX_FRAMING_BYTES} bytes"
        self._raise_problem()

    def _raise_problem(self) -> None:
        if self._problem:
            self._parser = None
            self._pieces.clear()
            raise (BodyTooLarge if self._too_large else ResponseError)(self._problem)

    def end(self) -> bool:
        """Handle the end of the connection. Return False if the response is incomplete.

        Raises:
            ResponseError: the compressed body is incomplete.
        """
        self._parser = None
        if not self.complete and self._header_ended and self._ends_with_connection:
            self._finish()
            if self._problem:
                raise ResponseError(self._problem)
        return self.complete

    def take(self) -> bytes:
        """Return the body bytes received since the last call."""
        pieces = self._pieces
        if not pieces:
            return b""
        self._pieces = []
        self.pending_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # Callbacks of httptools. They ignore data after a complete response, except that its connection is not reusable.

    def on_message_begin(self) -> None:
        self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._header_ended:
            return
        match name.lower():
            case b"content-length":
                self._ends_with_connection = False
            case b"transfer-encoding":
                self._ends_with_connection = (
                    self._ends_with_connection and b"chunked" not in value.lower()
                )
            case b"retry-after":
                self.retry_after = value.decode("latin-1")
            case b"date":
                self.date = value.decode("latin-1")
            case b"content-encoding":
                self._set_encoding(value.strip().lower())
            case field if self._upgrade and field.startswith(b"sec-websocket-"):
                self.upgrade_fields[field.decode("latin-1")] = value.decode("latin-1").strip()
            case _:
                pass

    def on_headers_complete(self) -> None:
        if self.complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200 and not (self._upgrade and status == SWITCHING_PROTOCOLS):
            if not 100 <= status <= 199:
                self._problem = f"{status} is not an HTTP status"
            self._interim = True
            return
        self._header_ended = True
        self.status = status
        self.reusable = self._parser.should_keep_alive() and status != SWITCHING_PROTOCOLS
        if self._tunnel and status < 300:
            self.complete = self.reusable = True

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False
            return
        self._framing_bytes = 0
        if self._problem:
            return
        if self._is_gzip:
            self._decompress(data)
        else:
            self._add(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._drop_interim()
        elif not self.complete and self.status != SWITCHING_PROTOCOLS:
            self._finish()

    def _drop_interim(self) -> None:
        self._interim = self._is_gzip = False
        self._ends_with_connection = True
        self.retry_after = None

    def _finish(self) -> None:
        if self._is_gzip and self._decompressor is not None and not self._decompressor.eof:
            self._problem = self._problem or "the gzip body is truncated"
        self.complete = not self._problem

    def _set_encoding(self, encoding: bytes) -> None:
        if encoding in (b"gzip", b"x-gzip"):
            self._is_gzip = True
        elif encoding not in (b"", b"identity"):
            self._problem = f"Content-Encoding {encoding[:40].decode('latin-1')!r} is not supported"

    def _decompress(self, data: bytes) -> None:
        """Decompress in small pieces to limit memory."""
        before = self.pending_bytes
        try:
            if self._decompressor is None:
                self._decompressor = zlib.decompressobj(_GZIP)
            while data and not self._problem:
                if self.pending_bytes - before > MAX_DECOMPRESSED_BYTES:
                    self._refuse_size(
                        f"one read decompresses to more than {MAX_DECOMPRESSED_BYTES} bytes"
                    )
                    return
                self._add(self._decompressor.decompress(data, _DECOMPRESSED_AT_ONCE))
                data = self._decompressor.unconsumed_tail
        except zlib.error as error:
            self._problem = f"the gzip body is invalid: {error}"

    def _add(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self.pending_bytes += len(piece)
            if self.pending_bytes > MAX_BODY_BYTES:
                self._refuse_size(f"the body exceeds {MAX_BODY_BYTES} bytes")

    def _refuse_size(self, problem: str) -> None:
        self._too_large = True
        self._problem = problem
