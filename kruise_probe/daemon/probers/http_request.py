"""The request of an httpGet, as bytes: which path, which headers, in kubelet's and Go's way.

Source: kubelet pkg/probe/http/request.go; Go net/http (Request.write, Header.Add), net/url (EscapedPath).
Differs: credentials in a URL are dropped; everything else is as kubelet sends it, with our User-Agent.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Self
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from kruise_probe.api.core import HTTPHeader
from kruise_probe.daemon.probers import messages
from kruise_probe.daemon.probers.dialing import Address

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_IN_A_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ENCODED_PATH = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@\[\]/%]*")
_HOST_HEADER = re.compile(r"[A-Za-z0-9!$%&()*+,\-.:;=\[\]'_~]*")
_BLANKS: Final = " \t"
_NOT_QUOTED: Final = "$&+,/:;=@-_.~"
_WRITTEN_ELSEWHERE: Final = frozenset(
    {"Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"}
)


class InvalidRequest(Exception):
    """The request cannot be written; the text is the one that Go would give."""


class Url(NamedTuple):
    """Where a request goes: `target` is path and query as they are sent."""

    scheme: str
    host: str
    port: int
    target: str
    text: str

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    @classmethod
    def of_action(cls, scheme: str | None, address: Address, path: str | None) -> Self:
        """The pod's address with the path and query of `path`; a host in `path` is dropped."""
        scheme = (scheme or "HTTP").lower()
        target = _target(path or "")
        return cls(scheme, *address, target, f"{scheme}://{address}{target}")

    def join(self, location: str) -> "Url":
        """Where a Location header leads to.

        Raises:
            InvalidRequest: it is no URL.
        """
        if problem := _url_problem(location):
            raise InvalidRequest(
                f'Get "{self.text}": failed to parse Location header {messages.quote(location)}: '
                f"parse {messages.quote(location)}: {problem}"
            )
        text = location if urlsplit(location).scheme else urljoin(self.text, location)
        parts = urlsplit(text)
        scheme = parts.scheme.lower()
        default_port = 443 if scheme == "https" else 80
        target = _target(parts.path + (f"?{parts.query}" if parts.query else ""))
        host = parts.hostname or ""
        port = default_port if parts.port is None else parts.port
        shown = f"{scheme}://{parts.netloc.rpartition('@')[2]}{target if parts.path else ''}"
        return Url(scheme, host, port, target, shown)


def _url_problem(text: str) -> str | None:
    if _CONTROL.search(text):
        return "net/url: invalid control character in URL"
    if broken := _BROKEN_ESCAPE.search(text.partition("?")[0]):
        return f"invalid URL escape {messages.quote(broken[0])}"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        return str(error)
    return None


def _target(path: str) -> str:
    if _CONTROL.search(path) or _BROKEN_ESCAPE.search(path.partition("?")[0]):
        return quote(path if path.startswith("/") else f"/{path}", safe=_NOT_QUOTED)
    try:
        parts = urlsplit(path)
    except ValueError:
        return quote(path if path.startswith("/") else f"/{path}", safe=_NOT_QUOTED)
    path = parts.path
    if not _ENCODED_PATH.fullmatch(path):
        path = quote(unquote_to_bytes(path.encode(errors="surrogateescape")), safe=_NOT_QUOTED)
    if not path.startswith("/"):
        path = f"/{path}"
    return f"{path}?{parts.query}" if parts.query else path


class Headers:
    """The headers of all requests of one probe, checked once.

    A header `Host` is sent as given and changes nothing else. An empty `User-Agent` or `Accept` is
    left out; absent ones get defaults.
    """

    def __init__(self, given: Sequence[HTTPHeader], *, user_agent: str) -> None:
        collected: dict[str, list[str]] = {}
        for header in given:
            collected.setdefault(_canonical(header.name), []).append(header.value)
        collected.setdefault("User-Agent", [user_agent])
        accept = collected.setdefault("Accept", ["*/*"])
        if not accept[0]:
            del collected["Accept"]
        self.problem = _problem(collected)
        self._host = collected.get("Host", [""])[0]
        self._user_agent = collected["User-Agent"][0]
        self._referer = collected.get("Referer", [""])[0]
        self._lines = "".join(
            f"{name}: {value.strip(_BLANKS)}\r\n"
            for name in sorted(collected)
            if name not in _WRITTEN_ELSEWHERE
            for value in collected[name]
        )
        self._end = "\r\n" if _closes(collected) else "Connection: close\r\n\r\n"

    def request(self, url: Url) -> bytes:
        """The first request, to `url`."""
        return self._written(url, self._host or str(url.address), "")

    def redirected(self, url: Url, *, previous: Url, relative: bool) -> bytes:
        """A request that follows a redirect; the given Host goes only along a relative one."""
        host = self._host if relative else ""
        referer = ""
        if not self._referer and (previous.scheme, url.scheme) != ("https", "http"):
            referer = f"Referer: {previous.text}\r\n"
        return self._written(url, host or _authority(url), referer)

    def _written(self, url: Url, host: str, referer: str) -> bytes:
        agent = self._user_agent.strip(_BLANKS)
        agent_line = f"User-Agent: {agent}\r\n" if agent else ""
        return (
            f"GET {url.target} HTTP/1.1\r\nHost: {_host_value(host)}\r\n"
            f"{agent_line}{self._lines}{referer}{self._end}"
        ).encode(errors="surrogateescape")


def _authority(url: Url) -> str:
    """Host and port as the URL of a redirect wrote them."""
    return urlsplit(url.text).netloc


def _canonical(name: str) -> str:
    """`x-foo` → `X-Foo`, as Go; a name with anything unusual in it stays."""
    if not _TOKEN.fullmatch(name):
        return name
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def _problem(headers: dict[str, list[str]]) -> str | None:
    for name, values in headers.items():
        if not _TOKEN.fullmatch(name):
            return f"net/http: invalid header field name {messages.quote(name)}"
        if any(_NOT_IN_A_VALUE.search(value) for value in values):
            return f"net/http: invalid header field value for {messages.quote(name)}"
    return None


def _closes(headers: dict[str, list[str]]) -> bool:
    """The given headers already say that the connection ends, or that it becomes something else."""
    words = {
        word.strip().lower() for value in headers.get("Connection", ()) for word in value.split(",")
    }
    return "close" in words or ("upgrade" in words and "Upgrade" in headers)


def _host_value(host: str) -> str:
    """What is no host at all is sent as nothing, so that no server reads anything else into it."""
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return ""
    return host if _HOST_HEADER.fullmatch(host) else ""
