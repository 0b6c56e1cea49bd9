"""Reads HTTP/1 responses with llhttp, without socket or clock.

llhttp's lenient flags accept what Go accepts: bare line feeds, folded headers, Content-Length beside chunks, any version.

Source: Go net/http (ReadResponse, transfer.go); kubelet pkg/probe/http/http.go for the length of a body.
Differs: a blank before the colon of a header, and Content-Length given twice or on a folded line, are errors; Go accepts
them. The head is limited to 64 KiB, in Go to 10 MiB.
"""

import re
from typing import Final

import httptools

MAX_BODY_BYTES: Final = 10 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
"""Limit of the head of a response, with informational responses (1xx) before it."""

_LINE = re.compile(rb"(\S[^\r\n]*)([\r\n]?)")


class MalformedResponse(Exception):
    """The bytes are not a valid HTTP/1 response, or end too early."""


class ResponseReader:
    """Reads one response and skips informational responses (1xx) before it.

    Attributes:
        status: None until the head is complete.
        location: the Location header; empty without one.
        body: its first `MAX_BODY_BYTES`.
        complete: the body has ended or has reached `MAX_BODY_BYTES`.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.location = ""
        self.body = b""
        self.complete = False
        self._head_bytes = 0
        self._ends_with_connection = True
        self._has_encoding = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_version=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    def first_line(self) -> tuple[bytes, bool]:
        """The received part of the first line of the body that is not blank, and whether it has ended."""
        found = _LINE.search(self.body)
        if found is None:
            return b"", self.complete
        return found[1], self.complete or bool(found[2])

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection.

        Raises:
            MalformedResponse: no HTTP, a head that is too long, or an unexpected end.
        """
        if not data:
            if self.status is None or not self._ends_with_connection:
                raise MalformedResponse("unexpected EOF" if self._head_bytes else "EOF")
            self.complete = True
            return
        if self.status is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                reason = error.__context__ or error
                raise MalformedResponse(f"malformed HTTP response: {reason}") from error
        if self.status is None and self._head_bytes > MAX_HEAD_BYTES:
            raise MalformedResponse(f"server response headers exceeded {MAX_HEAD_BYTES} bytes")

    # Callbacks of llhttp.

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"location" if not (self.location or self.complete):
                self.location = value.decode(errors="surrogateescape")
            case b"content-length":
                self._ends_with_connection = False
            case b"transfer-encoding" if self.status is None:
                if self._has_encoding or value.lower() != b"chunked":
                    raise MalformedResponse("unsupported transfer encoding")
                self._has_encoding = True
                self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.complete:
            return
        if status == 101 or not 100 <= status < 200:
            self.status = status
        else:
            self.location, self._has_encoding, self._ends_with_connection = "", False, True

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self.body = (self.body + data)[:MAX_BODY_BYTES]
            self.complete = len(self.body) == MAX_BODY_BYTES

    def on_message_complete(self) -> None:
        self.complete = self.complete or self.status is not None
