"""Requests and responses as values, and both as bytes: no I/O, no clock.

Source: RFC 9112; Go net/http server.go (readRequest) for what is refused and how.
Differs: a request is handed on when it is there as a whole, so its body has a bound; llhttp does the parsing, strictly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote

import httptools

MAX_HEAD_BYTES: Final = 32 * 1024
"""Of a request's line and header fields, and of what surrounds the chunks of a body."""
MAX_WAITING: Final = 16
"""How many requests one connection may send ahead of their answers."""

TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is unquoted, `headers` has lower-case names; a field that comes twice is joined by a comma."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_text(cls, text: str, *, status: int = 200) -> "Response":
        return cls(status, text.encode())

    @classmethod
    def of_status(cls, status: int, **headers: str) -> "Response":
        """Says its status in words: `404: Not Found`."""
        return cls(status, f"{status}: {HTTPStatus(status).phrase}".encode(), headers=headers)

    def encoded(self, *, now: datetime, close: bool, with_body: bool = True) -> bytes:
        """The response on the wire; without its body it still says how long that would be."""
        fields = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Date": format_datetime(now, usegmt=True),
            "Connection": "close" if close else "keep-alive",
            **self.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{lines}\r\n".encode()
        return head + self.body if with_body else head


@dataclass(frozen=True, slots=True)
class Received:
    """A request, and whether its connection ends with the answer."""

    request: Request
    close: bool


class BadRequest(Exception):
    """What came cannot be answered as it was meant, nor anything after it; `status` is what to say."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}: {HTTPStatus(status).phrase}")
        self.status = status


class RequestParser:
    """The requests of one connection, fed in whatever portions they arrive.

    Attributes:
        busy: True from the first byte of a request to its last.
        wants_to_go_on: True while a client asks whether it may send its body (Expect); whoever says so sets it back.
    """

    def __init__(self, *, max_body_bytes: int) -> None:
        self.busy = False
        self.wants_to_go_on = False
        self._max_body_bytes = max_body_bytes
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._received: list[Received] = []
        self._refusal = 0
        self._last = False
        self._framing_bytes = 0
        self._start()

    def feed(self, data: bytes) -> list[Received]:
        """The requests that `data` completes. After one that closes, the rest is ignored.

        Raises:
            BadRequest: at the next call after the requests before it were returned, or now if there are none.
        """
        if self._parser is None:
            return []
        if self._refusal:
            self.close()
            raise BadRequest(self._refusal)
        self.busy = True
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # its request is there, and known to be the last
        except httptools.HttpParserError:
            self._refuse(400)
        if self.busy and self._framing_bytes > MAX_HEAD_BYTES:
            self._refuse(431)
        received, self._received = self._received, []
        if self._refusal and not received:
            self.close()
            raise BadRequest(self._refusal)
        if self._last:
            self.close()
        return received

    @property
    def refuses(self) -> bool:
        """Whether what follows the requests that were returned is already known to be bad."""
        return self._parser is not None and self._refusal > 0

    def close(self) -> None:
        """Takes nothing any more."""
        self._parser = None  # the two hold each other
        self.busy = False

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.busy = True
        self._start()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)
        else:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_ended:
            return  # a trailer
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        before = self._headers.get(key)
        if before is not None and key == "host":
            self._refuse(400)
        self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._head_ended = True
        self._keep_alive = self._parser.should_keep_alive()
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            self._refuse(505)
        elif version == "1.1" and "host" not in self._headers:
            self._refuse(400)
        elif self._too_large(self._headers.get("content-length", "0")):
            self._refuse(413)
        elif version == "1.1" and self._headers.get("expect", "").lower() == "100-continue":
            self.wants_to_go_on = True

    def on_body(self, data: bytes) -> None:
        self._framing_bytes = 0
        self._body_bytes += len(data)
        if self._body_bytes > self._max_body_bytes:
            self._refuse(413)
        elif not self._refusal:
            self._body.append(data)

    def on_message_complete(self) -> None:
        self.busy = self.wants_to_go_on = False
        self._framing_bytes = 0
        if self._refusal or self._last or self._parser is None:
            return
        try:
            path, query = _split(self._target.decode("latin-1"))
        except ValueError:
            self._refuse(400)
            return
        if len(self._received) >= MAX_WAITING:
            self._refuse(400)
            return
        # After an upgrade comes a protocol that we do not speak.
        self._last = not self._keep_alive or self._parser.should_upgrade()
        request = Request(
            self._parser.get_method().decode(),
            path,
            query,
            self._headers,
            b"".join(self._body),
        )
        self._received.append(Received(request, close=self._last))

    def _start(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._head_ended = False
        self._keep_alive = False
        self._body: list[bytes] = []
        self._body_bytes = 0

    def _refuse(self, status: int) -> None:
        if not self._last:
            self._refusal = self._refusal or status

    def _too_large(self, length: str) -> bool:
        return len(length) > 12 or not length.isdigit() or int(length) > self._max_body_bytes


def _split(target: str) -> tuple[str, Mapping[str, Sequence[str]]]:
    """Path and query of a target: `/path?query`, or a whole URL as it is sent to proxies.

    Raises:
        ValueError: it has neither, or more parameters than anybody means.
    """
    if not target.startswith("/"):
        scheme, separator, rest = target.partition("://")
        if not separator or scheme.lower() not in ("http", "https"):
            if target == "*":
                return "*", {}
            raise ValueError("no path")
        target = "/" + rest.partition("/")[2]
    path, _, query = target.partition("?")
    if not query:
        return unquote(path), {}
    return unquote(path), parse_qs(query, keep_blank_values=True, max_num_fields=100)
