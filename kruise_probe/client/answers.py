"""From the bytes of a connection to one answer: no I/O, no clock.

Source: RFC 9112; Go net/http transfer.go and transport.go (interim answers, size of a head).
Differs: llhttp does the parsing, strictly; of the header fields only those are kept that somebody reads.
"""

import zlib
from typing import Final

import httptools

MAX_FRAMING_BYTES: Final = 256 * 1024
"""How much may come that is no body: a head, interim answers, trailers. Go allows a megabyte for an HTTP/1.1 head."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Of a body that waits to be taken: 500 pods in one page may have 128 KiB each."""

MAX_UNPACKED_BYTES: Final = 16 * 1024 * 1024
"""Of what is fed at a time. Unpacking takes longer than reading; what becomes a hundred times as large is made for that."""

_UNPACKED_AT_ONCE: Final = 256 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


class BadResponse(Exception):
    """What came is no HTTP answer, or one of a kind that was not asked for; the text says why."""


class BodyTooLarge(BadResponse):
    """The body, or what it unpacks to, has more bytes than are taken."""


class AnswerParser:
    """One answer, fed in whatever portions it arrives.

    With `tunnel` it is that of a proxy to CONNECT: on success it ends with its head.

    Attributes:
        status: 0 until the head is complete.
        retry_after: the header of that name.
        complete: True when there is nothing left to come.
        reusable: True when the connection may carry another request, once this answer is complete.
        pending_bytes: how much of the body waits to be taken.
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
        """Takes the next bytes; what comes after a complete answer makes the connection useless.

        Raises:
            BadResponse: they are no HTTP, or too much of it; nothing may be fed after that.
            BodyTooLarge: more than `MAX_BODY_BYTES` wait to be taken.
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
            self._parser = None  # the two hold each other
        elif self._framing_bytes > MAX_FRAMING_BYTES:
            self._problem = f"its head has more than {MAX_FRAMING_BYTES} bytes"
        if self._problem:
            self._parser = None
            self._pieces.clear()
            raise (BodyTooLarge if self._too_large else BadResponse)(self._problem)

    def end(self) -> bool:
        """Takes the end of the connection; False when the answer is cut off by it.

        Raises:
            BadResponse: the body cannot be unpacked.
        """
        self._parser = None
        self.reusable = False
        if not self.complete and self._head_ended and self._until_end:
            self._finish()
            if self._problem:
                raise BadResponse(self._problem)
        return self.complete

    def take(self) -> bytes:
        """What has come of the body since the last time."""
        pieces = self._pieces
        if not pieces:
            return b""
        self._pieces = []
        self.pending_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # What the parser calls; whatever follows a complete answer is only noticed.

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
                self._encoded(value.strip().lower())
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

    def _encoded(self, encoding: bytes) -> None:
        if encoding in (b"gzip", b"x-gzip"):
            self._packed = True
        elif encoding not in (b"", b"identity"):
            self._problem = (
                f"its body is packed as {encoding.decode('latin-1')!r}, which was not asked for"
            )

    def _unpack(self, data: bytes) -> None:
        """In portions, so that the largest thing at a time is the body itself; several members follow each other."""
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
