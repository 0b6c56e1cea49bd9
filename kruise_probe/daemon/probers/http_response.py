"""An incremental parser of HTTP/1 responses, without socket or clock.

Feed received bytes to `ResponseReader` and read its attributes. It keeps at most `MAX_HEAD_BYTES` of heads and
`MAX_BODY_BYTES` of a body. Its time is linear in the number of bytes.

Source: Go net/http (ReadResponse, transfer.go, internal/chunked.go) and net/textproto; kubelet
pkg/probe/http/http.go for the length of a body.
Differs: all heads of an attempt together are limited to 64 KiB, in Go each to 10 MiB. What follows the last chunk, a
trailer and the empty line, is not read.
llhttp (httptools) cannot replace it: the rows `line-feeds-only` and `folded` of the contract with kubelet's prober are
errors there. So are a blank before a colon, two equal Content-Lengths, Content-Length beside chunks, `HTTP/1.7` and an
end after 101. And a failure has the text of Go's error (rows `garbage` to `another-encoding`), which llhttp cannot give.
"""

import re
from typing import Final, NamedTuple

from kruise_probe.api.messages import quote

MAX_BODY_BYTES: Final = 10 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
"""Limit over all responses of one attempt: informational responses, redirects and the last response."""

_MAX_CHUNK_LINE_BYTES: Final = 4096
_FREE_BYTES_PER_CHUNK: Final = 16
_MAX_EXCESS_BYTES: Final = 16 * 1024
_INFORMATIONAL: Final = frozenset(range(100, 200)) - {101}
_WITHOUT_BODY: Final = frozenset({204, 304})

_HEAD_END = re.compile(rb"\n\r?\n")
_VERSION = re.compile(rb"HTTP/\d\.\d")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z ]+):([\t\x20-\x7e\x80-\xff]*)")
_LINE = re.compile(rb"(\S[^\r\n]*)([\r\n]?)")
_DIGITS = re.compile(rb"\d{1,19}")
_HEX = re.compile(rb"[0-9A-Fa-f]+")


class MalformedResponse(Exception):
    """The bytes are not a valid HTTP/1 response; the text is Go's."""


class Head(NamedTuple):
    """Status line and the headers that a probe reads. `length` is None if the body ends with the connection."""

    status: int
    location: str = ""
    length: int | None = None
    chunked: bool = False


class ResponseReader:
    """Reads one response and skips informational responses (1xx) before it.

    Call `read_body` after the head if the body is needed; otherwise the body is not parsed.

    Attributes:
        head: None until it is complete.
        head_bytes_left: how many bytes the heads of later responses may have.
        reads_body: `read_body` was called.
        complete: the body has ended or has reached `MAX_BODY_BYTES`.
    """

    def __init__(self, *, max_head_bytes: int = MAX_HEAD_BYTES) -> None:
        self.head: Head | None = None
        self.head_bytes_left = max_head_bytes
        self.reads_body = False
        self.complete = False
        self._buffer = bytearray()
        self._skipped_informational = False
        self._line_was_checked = False
        self._body = bytearray()
        self._chunks: _Chunks | None = None

    @property
    def body(self) -> bytes:
        return bytes(self._body)

    def first_line(self) -> tuple[bytes, bool]:
        """The received part of the first line of the body that is not blank, and whether it has ended."""
        found = _LINE.search(self._body)
        if found is None:
            return b"", self.complete
        return found[1], self.complete or bool(found[2])

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection.

        Raises:
            MalformedResponse: no HTTP, a head that is too long, or an unexpected end.
        """
        if not data:
            self._end()
            return
        seen = len(self._buffer)
        self._buffer += data
        if self.head is None:
            self._read_head(seen)
        else:
            self.read_body()

    def _end(self) -> None:
        if self.head is None:
            if not (self._buffer or self._skipped_informational):
                raise MalformedResponse("EOF")
            if self._buffer and not self._line_was_checked:
                _status(self._buffer)
            raise MalformedResponse(_transport_error("unexpected EOF"))
        if self.head.length is not None or self.head.chunked:
            raise MalformedResponse("unexpected EOF")
        self.complete = True

    def _read_head(self, seen: int) -> None:
        """Parse the head. The first `seen` bytes were searched before, so a slow head takes no more CPU."""
        while self.head is None:
            end = _HEAD_END.search(self._buffer, max(seen - 2, 0))
            if not end and not self._line_was_checked:
                self._check_line(seen)
            size = end.end() if end else len(self._buffer)
            if size > self.head_bytes_left:
                raise MalformedResponse(
                    _transport_error(
                        f"net/http: server response headers exceeded {MAX_HEAD_BYTES} bytes; aborted"
                    )
                )
            if not end:
                return
            head = parse_head(bytes(self._buffer[: end.start()]))
            del self._buffer[: end.end()]
            self.head_bytes_left -= size
            self._line_was_checked = False
            seen = 0
            if head.status in _INFORMATIONAL:
                self._skipped_informational = True
            else:
                self.head = head

    def _check_line(self, seen: int) -> None:
        """Fail early if the first line is not a status line."""
        line_end = self._buffer.find(b"\n", seen)
        if line_end >= 0:
            _status(self._buffer[:line_end].rstrip(b"\r"))
            self._line_was_checked = True

    def read_body(self) -> None:
        """Parse the received part of the body; `feed` parses the rest.

        Raises:
            MalformedResponse: the body does not match the head.
        """
        self.reads_body = True
        head = self.head
        if head is None or self.complete:
            return
        if head.chunked:
            if self._chunks is None:
                self._chunks = _Chunks()
            self._chunks.decode(self._buffer, self._body)
            ended = self._chunks.ended
        else:
            self._body += self._buffer
            self._buffer.clear()
            ended = head.length is not None and len(self._body) >= head.length
            if ended:
                del self._body[head.length :]
        del self._body[MAX_BODY_BYTES:]
        self.complete = ended or len(self._body) >= MAX_BODY_BYTES


class _Chunks:
    """Decodes a chunked body from a growing buffer."""

    def __init__(self) -> None:
        self.ended = False
        self._excess_bytes = 0
        self._left = 0
        self._data_ended = False

    def decode(self, buffer: bytearray, body: bytearray) -> None:
        """Move the data of the received chunks to `body`; ignore what follows its first `MAX_BODY_BYTES`."""
        while not self.ended and len(body) < MAX_BODY_BYTES:
            if self._left:
                part = buffer[: self._left]
                if not part:
                    break
                del buffer[: len(part)]
                body += part
                self._left -= len(part)
                self._data_ended = not self._left
            elif self._data_ended:
                if len(buffer) < 2:
                    break
                if buffer[:2] != b"\r\n":
                    raise MalformedResponse("malformed chunked encoding")
                del buffer[:2]
                self._data_ended = False
            elif not self._read_length(buffer):
                break

    def _read_length(self, buffer: bytearray) -> bool:
        end = buffer.find(b"\n", 0, _MAX_CHUNK_LINE_BYTES)
        if end < 0:
            if len(buffer) >= _MAX_CHUNK_LINE_BYTES:
                raise MalformedResponse("header line too long")
            return False
        if buffer[end - 1 : end] != b"\r":
            raise MalformedResponse("chunked line ends with bare LF")
        digits = bytes(buffer[:end]).partition(b";")[0].rstrip()
        del buffer[: end + 1]
        if not digits:
            raise MalformedResponse("empty hex number for chunk length")
        if not _HEX.fullmatch(digits):
            raise MalformedResponse("invalid byte in chunk length")
        if len(digits) > 16:
            raise MalformedResponse("http chunk length too large")
        self._left = int(digits, 16)
        self.ended = not self._left
        # As in Go: limit the bytes of chunk extensions in proportion to the data.
        excess = self._excess_bytes + end + 1 - _FREE_BYTES_PER_CHUNK - 2 * self._left
        self._excess_bytes = max(excess, 0)
        if excess > _MAX_EXCESS_BYTES:
            raise MalformedResponse("chunked encoding contains too much non-data")
        return True


def parse_head(head: bytes) -> Head:
    """Parse status line and headers. `head` excludes the empty line at its end.

    Raises:
        MalformedResponse: this is not an HTTP/1 head.
    """
    first, *rest = head.split(b"\n")
    version, status = _status(first.rstrip(b"\r"))
    lengths: list[bytes] = []
    encodings: list[bytes] = []
    location = b""
    for name, value in _fields(rest):
        if name == b"content-length":
            lengths.append(value.rstrip(b" \t"))
        elif name == b"transfer-encoding":
            encodings.append(value)
        elif name == b"location":
            location = location or value
    chunked = version != b"HTTP/1.0" and _is_chunked(encodings)
    length = _length(lengths)
    if status < 200 or status in _WITHOUT_BODY:
        return Head(status, length=0)
    known_length = None if chunked else length
    return Head(status, location.decode(errors="surrogateescape"), known_length, chunked)


def _status(line: bytes | bytearray) -> tuple[bytes, int]:
    version, blank, rest = bytes(line).partition(b" ")
    if not blank:
        raise MalformedResponse(_transport_error(f"malformed HTTP response {quote(bytes(line))}"))
    code = rest.lstrip(b" ").partition(b" ")[0]
    if len(code) != 3 or not code.isdigit():
        raise MalformedResponse(_transport_error(f"malformed HTTP status code {quote(code)}"))
    if not _VERSION.fullmatch(version):
        raise MalformedResponse(_transport_error(f"malformed HTTP version {quote(version)}"))
    return version, int(code)


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Lower-case name and value of each header; folded lines are joined."""
    fields: list[tuple[bytes, bytes]] = []
    folded: list[bytes] = []
    for raw in lines:
        line = raw.rstrip(b"\r\t ")
        if raw[:1] in (b" ", b"\t"):
            if not fields:
                raise MalformedResponse(
                    _transport_error(f"malformed MIME header initial line: {quote(line)}")
                )
            folded.append(line.strip())
            continue
        if folded:
            _unfold(fields, folded)
        matched = _FIELD.fullmatch(line)
        if matched is None:
            if b":" not in line:
                raise MalformedResponse(
                    _transport_error(f"malformed MIME header: missing colon: {quote(line)}")
                )
            raise MalformedResponse(_transport_error(f"malformed MIME header line: {quote(line)}"))
        fields.append((matched[1].lower(), matched[2].strip(b" \t")))
    if folded:
        _unfold(fields, folded)
    return fields


def _unfold(fields: list[tuple[bytes, bytes]], folded: list[bytes]) -> None:
    """Append the folded lines to the last field in one step, so that the value is copied once."""
    name, value = fields[-1]
    fields[-1] = (name, b" ".join((value, *folded)).lstrip(b" \t"))
    folded.clear()


def _is_chunked(encodings: list[bytes]) -> bool:
    if not encodings:
        return False
    if len(encodings) > 1:
        listed = " ".join(map(quote, encodings))
        raise MalformedResponse(_transport_error(f"too many transfer encodings: [{listed}]"))
    if encodings[0].lower() != b"chunked":
        raise MalformedResponse(
            _transport_error(f"unsupported transfer encoding: {quote(encodings[0])}")
        )
    return True


def _length(lengths: list[bytes]) -> int | None:
    if not lengths:
        return None
    if len(set(lengths)) > 1:
        listed = " ".join(map(quote, lengths))
        raise MalformedResponse(
            _transport_error(
                f"http: message cannot contain multiple Content-Length headers; got [{listed}]"
            )
        )
    if not lengths[0]:
        raise MalformedResponse(_transport_error('invalid empty Content-Length ""'))
    digits = lengths[0].lstrip(b"0") or b"0"
    if not _DIGITS.fullmatch(digits) or int(digits) >= 2**63:
        raise MalformedResponse(_transport_error(f"bad Content-Length {quote(lengths[0])}"))
    return int(digits)


def _transport_error(problem: str) -> str:
    return f"net/http: HTTP/1.x transport connection broken: {problem}"
