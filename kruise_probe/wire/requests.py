"""Requests that an HTTP/1.1 server reads, and the responses that it sends; no I/O, no clock.

Source: RFC 9112; Go net/http server.go (readRequest).
Differs: llhttp parses the head in strict mode. A body needs a Content-Length. A request without Host is accepted.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import httptools

END_OF_HEAD: Final = b"\r\n\r\n"
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. `path` is unquoted; header names are lower-case; repeated header fields are joined by a comma."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = True
    """Whether the client may send another request on this connection."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_text(cls, text: str, *, status: int = 200, **headers: str) -> "HttpResponse":
        return cls(status, text.encode(), headers=headers)

    @classmethod
    def of_status(cls, status: int, **headers: str) -> "HttpResponse":
        """A response with the status phrase as text: `404: Not Found`."""
        return cls.of_text(
            f"{status}: {HTTPStatus(status).phrase}",
            status=status,
            **headers,
        )

    def head(self, *, now: datetime, keep_alive: bool) -> bytes:
        """Serialize the status line and header fields."""
        fields = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Date": format_datetime(now, usegmt=True),
            "Connection": "keep-alive" if keep_alive else "close",
            **self.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{lines}\r\n".encode()


class RefusedRequest(Exception):
    """The request is refused with `status`, and its connection is closed."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}: {HTTPStatus(status).phrase}")
        self.status = status


def parse_head(head: bytes, *, max_body_bytes: int) -> tuple[HttpRequest, int]:
    """Parse a request line and header fields, including `END_OF_HEAD`. Return the request and the size of its body.

    Raises:
        RefusedRequest: the head is malformed, or the body is too large or has no length.
    """
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    try:
        with suppress(httptools.HttpParserUpgrade):  # respond over HTTP/1.1, then close
            parser.feed_data(head)
        target = httptools.parse_url(fields.target)
    except httptools.HttpParserError as error:
        raise RefusedRequest(400) from error
    if "transfer-encoding" in fields.headers:
        raise RefusedRequest(411)
    options = fields.headers.get("connection", "").lower().split(",")
    connection = {option.strip() for option in options}
    length = fields.headers.get("content-length", "0")
    if not length.isdecimal():
        raise RefusedRequest(400)
    body_bytes = int(length)
    if body_bytes > max_body_bytes:
        raise RefusedRequest(413)
    request = HttpRequest(
        parser.get_method().decode(),
        unquote((target.path or b"/").decode("latin-1")),
        (target.query or b"").decode("latin-1"),
        fields.headers,
        keep_alive=parser.get_http_version() == "1.1" and not {"close", "upgrade"} & connection,
    )
    return request, body_bytes


class _Fields:
    """Callbacks that collect what llhttp parses from a head."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: dict[str, str] = {}

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1").strip()
        before = self.headers.get(key)
        self.headers[key] = text if before is None else f"{before}, {text}"
