"""The messages of httpGet, without socket or clock: URLs and headers of requests, and responses, read with llhttp.

llhttp's lenient flags accept what Go accepts: bare line feeds, folded headers, Content-Length beside chunks, any version.

Source: kubelet pkg/probe/http/request.go (formatURL), http.go for the length of a body; Go net/url for what is escaped,
net/http (Request.write, ReadResponse), transfer.go.
Differs: our User-Agent; header names and the Host header are sent as written. Messages omit the credentials of a URL; Go
hides only the password, and not in all messages. A blank before the colon of a header, and Content-Length given twice or
on a folded line, are errors; Go accepts them. The head is limited to 64 KiB, in Go to 10 MiB.
"""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

import httptools

from kruise_probe.api.core import HEADER_VALUE_CONTROL, HTTPHeader
from kruise_probe.api.meta import HostPort

MAX_BODY_BYTES: Final = 10 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
"""Limit of the head of a response, with informational responses (1xx) before it."""

# Without a scheme, Go finds no host after three slashes.
_PARTS = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]*)?|//(?!/)[^/?#]*)?(?P<path>[^?#]*)(?P<query>\?[^#]*)?",
    re.DOTALL,
)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_ESCAPED: Final = "$&+,/:;=@-_.~!'()*[]%"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_SENT: Final = frozenset({"host", "content-length", "transfer-encoding", "trailer"})
_LINE = re.compile(rb"(\S[^\r\n]*)([\r\n]?)")


class Url(NamedTuple):
    """The URL of a request.

    Attributes:
        authority: host and port as written, without credentials.
        target: path and query as sent.
        authorization: the Authorization header for the credentials; empty without credentials.
    """

    scheme: str
    address: HostPort
    authority: str
    target: str
    authorization: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def url_of_action(scheme: str | None, address: HostPort, path: str | None) -> Url:
    """The pod's address with path and query of `path`; a host in `path` is dropped.

    As in kubelet, a path with a broken escape is escaped as a whole.
    """
    text = path or ""
    parts = _PARTS.match(text)
    if parts is None or _BROKEN_ESCAPE.search(parts["path"]):
        target = _target(text.replace("%", "%25").replace("?", "%3F"), "")
    else:
        target = _target(parts["path"], parts["query"] or "")
    return Url((scheme or "HTTP").lower(), address, str(address), target)


@lru_cache(maxsize=1)  # An attempt calls it again for each piece of the body.
def url_of_redirect(url: Url, location: str) -> Url:
    """The URL of a Location header, relative to `url`.

    Raises:
        ValueError: the Location is not a URL.
    """
    parts = urlsplit(urljoin(str(url), location))
    urlsplit.cache_clear()  # type: ignore[attr-defined]  # an lru_cache: it would keep 128 URLs of 64 KiB
    if _BROKEN_ESCAPE.search(parts.path):
        raise ValueError("invalid URL escape")
    port = parts.port
    address = HostPort(
        parts.hostname or "", _DEFAULT_PORTS.get(parts.scheme, 0) if port is None else port
    )
    credentials, at, authority = parts.netloc.rpartition("@")
    if not at and authority == url.authority:
        authorization = url.authorization
    else:
        authorization = _basic(credentials) if at else ""
    query = f"?{parts.query}" if parts.query else ""
    return Url(parts.scheme, address, authority, _target(parts.path, query), authorization)


def _basic(credentials: str) -> str:
    name, _, password = map(unquote_to_bytes, credentials.partition(":"))
    return f"Basic {b64encode(name + b':' + password).decode()}"


def _target(path: str, query: str) -> str:
    path = quote(path, safe=_NOT_ESCAPED, errors="surrogateescape")
    return f"/{path.removeprefix('/')}{query}"


class Headers:
    """The headers of all requests of one probe, validated once.

    A `Host` header is sent as written and does not change the destination. An empty `User-Agent` or `Accept` is omitted;
    a missing one gets its default.

    Attributes:
        problem: why the headers cannot be sent, or None.
    """

    def __init__(self, configured: Sequence[HTTPHeader], *, user_agent: str) -> None:
        values = {header.name.lower(): header.value for header in reversed(configured)}
        self.problem = next(filter(None, map(_problem, configured)), None)
        self._host = values.get("host", "")
        self._authorized = bool(values.get("authorization"))
        lines = [
            f"{header.name}: {header.value.strip()}"
            for header in configured
            if header.name.lower() not in _NOT_SENT
            and (header.value or header.name.lower() not in ("user-agent", "accept"))
        ]
        defaults = {"User-Agent": user_agent, "Accept": "*/*"}
        lines += [
            f"{name}: {text}" for name, text in defaults.items() if name.lower() not in values
        ]
        self._lines = "\r\n".join([*lines, "Connection: close"])

    def request(self, url: Url) -> bytes:
        """The first request, to `url`."""
        return self._request(url, self._host)

    def redirected(self, url: Url, previous: Url, location: str) -> bytes:
        """A request that follows a redirect. The configured Host is kept for a relative redirect only."""
        referer = f"Referer: {previous}\r\n" if previous.scheme == url.scheme else ""
        return self._request(url, "" if urlsplit(location).scheme else self._host, referer)

    def _request(self, url: Url, host: str, more: str = "") -> bytes:
        if url.authorization and not self._authorized:
            more += f"Authorization: {url.authorization}\r\n"
        text = f"GET {url.target} HTTP/1.1\r\nHost: {host or url.authority}\r\n{more}{self._lines}\r\n\r\n"
        return text.encode(errors="surrogateescape")


def _problem(header: HTTPHeader) -> str | None:
    if not _TOKEN.fullmatch(header.name):
        return f"net/http: invalid header field name {json.dumps(header.name)}"
    if HEADER_VALUE_CONTROL.search(header.value):
        return f"net/http: invalid header field value for {json.dumps(header.name)}"
    return None


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
