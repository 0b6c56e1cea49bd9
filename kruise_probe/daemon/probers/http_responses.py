"""Reads one HTTP/1 response, as Go does it, without socket or clock.

Source: Go net/http (ReadResponse, transfer.go, internal/chunked.go, persistConn.readResponse), net/textproto
(ReadMIMEHeader); kubelet pkg/probe/http/http.go for the length of a body.
Differs: heads are limited to 64 KiB, in Go to 10 MiB. Nothing after the first 10 KiB of a body is read.
"""

import re
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

MAX_BODY_BYTES: Final = 10 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
"""Limit of the head of a response, with informational responses (1xx) before it."""

_MAX_CHUNK_LINE_BYTES: Final = 4096
_MAX_CHUNK_OVERHEAD_BYTES: Final = 16 * 1024
_MAX_TRAILER_BYTES: Final = 4096
_MAX_LENGTH: Final = 2**63 - 1

_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS_CODE = re.compile(rb"\+[0-9]{2}|[0-9]{3}|-00")
_VERSION = re.compile(rb"HTTP/[0-9]\.[0-9]")
_BEFORE_1_1 = re.compile(rb"HTTP/(?:1\.0|0\.[1-9])")
"""Transfer-Encoding is ignored. Go reads version 0.0 as 1.1."""
_FIELDS = re.compile(
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z][!#$%&'*+\-.^_`|~0-9A-Za-z ]*:[\t\x20-\x7e\x80-\xff]*\r?\n)*"
)
"""Go accepts blanks in names, but such a header is none that it knows."""
_USED_FIELD = re.compile(
    rb"^(location|content-length|transfer-encoding|trailer):([^\r\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_LENGTH = re.compile(rb"0*[0-9]{1,19}")
_CHUNK_LENGTH = re.compile(rb"[0-9A-Fa-f]{1,16}")
_LINE = re.compile(rb"(\S[^\r\n]*)([\r\n]?)")
_BLANKS: Final = b" \t"
_SWITCHING_PROTOCOLS: Final = 101
_WITHOUT_BODY: Final = frozenset({_SWITCHING_PROTOCOLS, 204, 304})
_NOT_IN_A_TRAILER: Final = frozenset({b"transfer-encoding", b"trailer", b"content-length"})


class MalformedResponse(Exception):
    """The bytes are not a valid HTTP/1 response, or end too early."""


def _malformed(what: str, text: bytes) -> MalformedResponse:
    quoted = text[:80].decode(errors="backslashreplace")
    return MalformedResponse(f'malformed {what} "{quoted}"')


class _Head(NamedTuple):
    """What a response says before its body. `length` is None without Content-Length."""

    status: int
    location: str
    chunked: bool
    length: int | None


def _parse_head(text: bytes) -> _Head:
    """Status line and headers, each with its line end. Raises: MalformedResponse."""
    line, _, fields = text.partition(b"\n")
    version, status = _parse_status_line(line)
    values: dict[bytes, list[bytes]] = {}
    for name, value in _USED_FIELD.findall(_unfolded(fields)):
        values.setdefault(name.lower(), []).append(value.strip(_BLANKS))

    chunked = False
    encodings = values.get(b"transfer-encoding")
    if encodings and not _BEFORE_1_1.fullmatch(version):
        _check_encoding(encodings)
        _check_trailer_names(values.get(b"trailer", []))
        chunked = True
    length = None
    lengths = values.get(b"content-length")
    if lengths:
        length = _parse_length(lengths)
    location = ""
    locations = values.get(b"location")
    if locations:
        location = locations[0].decode(errors="surrogateescape")
    return _Head(status, location, chunked, length)


def _parse_status_line(line: bytes) -> tuple[bytes, int]:
    """Version and status code. Raises: MalformedResponse."""
    version, blank, rest = line.removesuffix(b"\r").partition(b" ")
    rest = rest.lstrip(b" ")
    status = rest.partition(b" ")[0]
    if not blank:
        raise _malformed("HTTP response", line)
    if not _VERSION.fullmatch(version):
        raise _malformed("HTTP version", version)
    if not _STATUS_CODE.fullmatch(status):
        raise _malformed("HTTP status code", status)
    return version, int(status)


def _unfolded(fields: bytes) -> bytes:
    """Valid headers; a line that begins with a blank continues the one before it. Raises: MalformedResponse."""
    if _FIELDS.fullmatch(fields):
        return fields
    unfolded: list[bytes] = []
    for ended in fields.split(b"\n")[:-1]:
        line = ended.removesuffix(b"\r")
        if line.startswith((b" ", b"\t")):
            separator = b" "
            valid = bool(unfolded)
        else:
            separator = b"\n"
            valid = b":" in line
        if not valid or b"\r" in line:
            raise _malformed("MIME header line:", line)
        unfolded.append(separator)
        unfolded.append(line.strip(_BLANKS))
    unfolded.append(b"\n")
    joined = b"".join(unfolded[1:])
    if not _FIELDS.fullmatch(joined):
        raise _malformed("MIME header", fields)
    return joined


def _check_encoding(encodings: list[bytes]) -> None:
    """Raises: MalformedResponse, if it is not chunked."""
    if len(encodings) > 1 or encodings[0].lower() != b"chunked":
        raise MalformedResponse("unsupported transfer encoding")


def _check_trailer_names(trailers: list[bytes]) -> None:
    """Raises: MalformedResponse, if a header must not be in a trailer."""
    for trailer in trailers:
        for written in trailer.split(b","):
            name = written.strip(_BLANKS).lower()
            if name in _NOT_IN_A_TRAILER:
                raise _malformed("trailer key", name)


def _parse_length(lengths: list[bytes]) -> int:
    """The value of Content-Length. Raises: MalformedResponse."""
    text = lengths[0]
    if len(set(lengths)) > 1:
        raise MalformedResponse("several values of Content-Length")
    if not _LENGTH.fullmatch(text):
        raise _malformed("Content-Length", text)
    length = int(text.lstrip(b"0") or b"0")
    if length > _MAX_LENGTH:
        raise _malformed("Content-Length", text)
    return length


class ResponseReader:
    """Reads one response and skips informational responses (1xx) before it.

    Attributes:
        status: None until the head is complete.
        location: the first Location header; empty without one.
        body: its first `MAX_BODY_BYTES`.
        complete: the body has ended or has reached `MAX_BODY_BYTES`.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.location = ""
        self.body = b""
        self.complete = False
        self._head = b""
        self._head_bytes = 0
        self._first_line_checked = False
        self._left: int | None = None
        self._chunks: _Chunks | None = None

    def first_line(self) -> tuple[bytes, bool]:
        """The received part of the first line of the body that is not blank, and whether it has ended."""
        found = _LINE.search(self.body)
        if found is None:
            return b"", self.complete
        line, end = found.groups()
        return line, self.complete or bool(end)

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection.

        Raises:
            MalformedResponse: no HTTP, a head that is too long, or an unexpected end.
        """
        if self.complete:
            return
        if not data:
            self._end()
        elif self.status is None:
            self._feed_head(data)
        else:
            self._feed_body(data)

    def _end(self) -> None:
        if not self._head_bytes:
            raise MalformedResponse("EOF")
        has_end = self._left is not None or self._chunks is not None
        if self.status is None or has_end:
            raise MalformedResponse("unexpected EOF")
        self.complete = True

    def _feed_head(self, data: bytes) -> None:
        self._head_bytes += len(data)
        searched = max(len(self._head) - 2, 0)
        self._head += data
        end = _HEAD_END.search(self._head, searched)
        while end is not None:
            last = end.start() + 1
            head = _parse_head(self._head[:last])
            self._head = self._head[end.end() :]
            self._first_line_checked = False
            if not _is_informational(head.status):
                self._begin_body(head)
                return
            end = _HEAD_END.search(self._head)
        self._check_first_line()
        if self._head_bytes > MAX_HEAD_BYTES:
            raise MalformedResponse(f"server response headers exceeded {MAX_HEAD_BYTES} bytes")

    def _check_first_line(self) -> None:
        """So that another protocol fails at once, although its head never ends."""
        line, end, _ = self._head.partition(b"\n")
        if end and not self._first_line_checked:
            self._first_line_checked = True
            _ = _parse_status_line(line)

    def _begin_body(self, head: _Head) -> None:
        self.status = head.status
        self.location = head.location
        data = self._head
        self._head = b""
        if head.status in _WITHOUT_BODY:
            self.complete = True
            return
        if head.chunked:
            self._chunks = _Chunks()
        else:
            self._left = head.length
        self._feed_body(data)

    def _feed_body(self, data: bytes) -> None:
        if self._chunks is not None:
            room = MAX_BODY_BYTES - len(self.body)
            data = self._chunks.decode(data, room)
            self.complete = self._chunks.ended
        elif self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            self.complete = self._left == 0
        room = MAX_BODY_BYTES - len(self.body)
        self.body += data[:room]
        if len(data) >= room:
            self.complete = True


def _is_informational(status: int) -> bool:
    return 100 <= status < 200 and status != _SWITCHING_PROTOCOLS


class _Chunks:
    """Decodes a chunked body.

    Attributes:
        ended: the last chunk and the trailer have been read.
    """

    def __init__(self) -> None:
        self.ended = False
        self._data = b""
        self._at = 0
        self._decoded: list[bytes] = []
        self._wanted = 0
        self._steps = self._read()

    def decode(self, data: bytes, wanted: int) -> bytes:
        """Add received bytes. Return what has become known of the body, at most `wanted` bytes. Raises: MalformedResponse."""
        self._data = self._data[self._at :] + data
        self._at = 0
        self._wanted = wanted
        self._decoded = []
        next(self._steps, None)
        return b"".join(self._decoded)

    def _read(self) -> Iterator[None]:
        """Yields when it needs more input."""
        overhead = 0
        while self._wanted:
            line = yield from self._until(b"\n", _MAX_CHUNK_LINE_BYTES)
            size = _chunk_length(line)
            overhead = max(overhead + len(line) - 16 - 2 * size, 0)
            if overhead > _MAX_CHUNK_OVERHEAD_BYTES:
                raise MalformedResponse("chunked encoding contains too much non-data")
            if not size:
                yield from self._read_trailer()
                self.ended = True
                return
            yield from self._read_chunk(size)

    def _read_chunk(self, size: int) -> Iterator[None]:
        while size and self._wanted:
            data = self._take(min(size, self._wanted))
            self._decoded.append(data)
            size -= len(data)
            self._wanted -= len(data)
            if not data:
                yield
        if self._wanted:
            end = yield from self._peek(2)
            if end != b"\r\n":
                raise MalformedResponse("malformed chunked encoding")
            _ = self._take(2)

    def _read_trailer(self) -> Iterator[None]:
        begin = yield from self._peek(2)
        if begin == b"\r\n":
            return
        trailer = yield from self._until(b"\r\n\r\n", _MAX_TRAILER_BYTES)
        blank = _HEAD_END.search(trailer)
        if blank is not None and not trailer.startswith(b"\n"):
            end = blank.start() + 1
            _ = _unfolded(trailer[:end])

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def _peek(self, size: int) -> Generator[None, None, bytes]:
        while True:
            end = self._at + size
            if len(self._data) >= end:
                return self._data[self._at : end]
            yield

    def _until(self, end: bytes, max_bytes: int) -> Generator[None, None, bytes]:
        """All that comes before `end`, and `end`. Raises: MalformedResponse, if it is longer than `max_bytes`."""
        while True:
            limit = self._at + max_bytes
            found = self._data.find(end, self._at, limit)
            if found >= 0:
                size = found - self._at
                return self._take(size + len(end))
            if len(self._data) >= limit:
                raise MalformedResponse("a line of a chunk or a trailer is too long")
            yield


def _chunk_length(line: bytes) -> int:
    """The length of a chunk; extensions are ignored. Raises: MalformedResponse."""
    text = line.removesuffix(b"\r\n")
    if b"\r" in text or b"\n" in text:
        raise MalformedResponse("a line of a chunk ends without CRLF, or has a CR")
    text = text.rstrip(_BLANKS)
    digits = text.partition(b";")[0]
    if not _CHUNK_LENGTH.fullmatch(digits):
        raise _malformed("chunk length", digits)
    return int(digits, 16)
