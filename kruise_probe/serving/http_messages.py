"""Requests and responses as values, and both as bytes: no I/O, no clock.

Source: RFC 9112; Go net/http server.go (readRequest) for what is refused and how.
Differs: a request is complete when it is handed on, so its body has a bound and a length; llhttp parses the head, strictly.
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
"""Of a request's line and header fields."""
END_OF_HEAD: Final = b"\r\n\r\n"
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
    def of_text(cls, text: str, *, status: int = 200, **headers: str) -> "Response":
        return cls(status, text.encode(), headers=headers)

    @classmethod
    def of_status(cls, status: int, **headers: str) -> "Response":
        """The status in words: `404: Not Found`."""
        return cls.of_text(f"{status}: {HTTPStatus(status).phrase}", status=status, **headers)

    def head(self, *, now: datetime, close: bool) -> bytes:
        """What precedes the body on the wire."""
        fields = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Date": format_datetime(now, usegmt=True),
            "Connection": "close" if close else "keep-alive",
            **self.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{lines}\r\n".encode()


class BadRequest(Exception):
    """The request cannot be answered, nor anything after it on its connection; `status` is the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}: {HTTPStatus(status).phrase}")
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body.

    Attributes:
        body_bytes: how many bytes follow.
        close: the connection ends with the answer.
        expects_continue: the client waits for `100 Continue` before it sends the body.
    """

    request: Request
    body_bytes: int
    close: bool
    expects_continue: bool

    def with_body(self, body: bytes) -> Request:
        return replace(self.request, body=body)


def parse_head(head: bytes, *, max_body_bytes: int) -> RequestHead:
    """Parses a request's line and fields, `END_OF_HEAD` included.

    Raises:
        BadRequest: it is malformed, or its body is too large or has no length.
    """
    fields = _Fields()
    parser = httptools.HttpRequestParser(fields)
    upgrades = False
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        upgrades = True  # to a protocol that this server does not speak: it answers, and closes
    except httptools.HttpParserError as error:
        raise BadRequest(fields.refusal or 400) from error
    if fields.refusal or not fields.complete:
        raise BadRequest(fields.refusal or 400)
    version, headers = parser.get_http_version(), fields.headers
    if version not in ("1.0", "1.1"):
        raise BadRequest(505)
    if version == "1.1" and "host" not in headers:
        raise BadRequest(400)
    if "transfer-encoding" in headers:
        raise BadRequest(411)
    try:
        path, query = _split(fields.target.decode("latin-1"))
    except ValueError as error:
        raise BadRequest(400) from error
    return RequestHead(
        Request(parser.get_method().decode(), path, query, headers),
        body_bytes=_body_bytes(headers.get("content-length", "0"), max_body_bytes),
        close=upgrades or version == "1.0" or "close" in _tokens(headers.get("connection", "")),
        expects_continue=version == "1.1" and headers.get("expect", "").lower() == "100-continue",
    )


def _tokens(text: str) -> list[str]:
    return [each.strip() for each in text.lower().split(",")]


def _body_bytes(length: str, most: int) -> int:
    if len(length) > 12 or not length.isdigit() or int(length) > most:
        raise BadRequest(413)
    return int(length)


class _Fields:
    """What llhttp finds in a head."""

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
    """Path and query of a target: `/path?query`, or a whole URL as it is sent to proxies.

    Raises:
        ValueError: it has no path, or more than a hundred parameters.
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
