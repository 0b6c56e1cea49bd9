"""HTTP requests and responses, parsing and serialization; no I/O, no clock.

Source: RFC 9112; Go net/http server.go (readRequest) for which requests are refused, and with which status.
Differs: a handler gets the complete request, so a body needs a Content-Length and has a maximum size. llhttp parses
the head in strict mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote

import httptools

MAX_HEAD_BYTES: Final = 32 * 1024
"""Maximum size of the request line and header fields."""
END_OF_HEAD: Final = b"\r\n\r\n"
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. `path` is unquoted; header names are lower-case; repeated header fields are joined by a comma."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


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
        return cls.of_text(f"{status}: {HTTPStatus(status).phrase}", status=status, **headers)

    def head(self, *, now: datetime, close: bool) -> bytes:
        """Serialize the status line and header fields."""
        fields = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Date": format_datetime(now, usegmt=True),
            "Connection": "close" if close else "keep-alive",
            **self.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{lines}\r\n".encode()


class RefusedRequest(Exception):
    """The request is refused with `status`, and its connection is closed."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}: {HTTPStatus(status).phrase}")
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body.

    Attributes:
        body_bytes: how many bytes follow.
        close: the server closes the connection after the response.
        expects_continue: the client waits for `100 Continue` before it sends the body.
    """

    request: HttpRequest
    body_bytes: int
    close: bool
    expects_continue: bool

    def with_body(self, body: bytes) -> HttpRequest:
        return replace(self.request, body=body)


def parse_head(head: bytes, *, max_body_bytes: int) -> RequestHead:
    """Parse a request line and header fields, including `END_OF_HEAD`.

    Raises:
        RefusedRequest: the head is malformed, or the body is too large or has no length.
    """
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    upgrades = False
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        upgrades = True  # unsupported protocol: respond over HTTP/1.1, then close
    except httptools.HttpParserError as error:
        raise RefusedRequest(fields.refusal or 400) from error
    if fields.refusal or not fields.complete:
        raise RefusedRequest(fields.refusal or 400)
    version, headers = parser.get_http_version(), fields.headers
    if version not in ("1.0", "1.1"):
        raise RefusedRequest(505)
    if version == "1.1" and "host" not in headers:
        raise RefusedRequest(400)
    if "transfer-encoding" in headers:
        raise RefusedRequest(411)
    try:
        path, query = _split(fields.target.decode("latin-1"))
    except ValueError as error:
        raise RefusedRequest(400) from error
    return RequestHead(
        HttpRequest(parser.get_method().decode(), path, query, headers),
        body_bytes=_body_bytes(headers.get("content-length", "0"), max_body_bytes),
        close=upgrades or version == "1.0" or "close" in _tokens(headers.get("connection", "")),
        expects_continue=version == "1.1" and headers.get("expect", "").lower() == "100-continue",
    )


def _tokens(text: str) -> list[str]:
    return [each.strip() for each in text.lower().split(",")]


def _body_bytes(length: str, most: int) -> int:
    if len(length) > 12 or not length.isdigit() or int(length) > most:
        raise RefusedRequest(413)
    return int(length)


class _Fields:
    """Callbacks that collect what llhttp parses from a head."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: dict[str, str] = {}
        self.complete = False
        self.refusal = 0

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        before = self.headers.get(key)
        if before is not None and key == "host":
            self.refusal = 400
        self.headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        self.complete = True


def _split(target: str) -> tuple[str, Mapping[str, Sequence[str]]]:
    """Split a request target into path and query: `/path?query`, or an absolute URL as sent to proxies.

    Raises:
        ValueError: the target has no path, or more than 100 query parameters.
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
