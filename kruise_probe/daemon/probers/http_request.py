"""The request bytes of an httpGet, with the headers that kubelet and Go send.

Source: kubelet pkg/probe/http/request.go; Go net/http (Request.write, Header.Add) and httpguts (PunycodeHostPort).
Differs: our User-Agent.
"""

import re
from collections.abc import Sequence
from typing import Final

from kruise_probe.api import messages
from kruise_probe.api.core import HTTPHeader
from kruise_probe.api.probe_validation import HEADER_VALUE_CONTROL_PATTERN
from kruise_probe.daemon.probers.urls import Url

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NOT_IN_A_VALUE = re.compile(HEADER_VALUE_CONTROL_PATTERN)
_HOST_HEADER = re.compile(r"[A-Za-z0-9!$%&()*+,\-.:;=\[\]'_~]*")
_ZONE = re.compile(r"%[^\]]*(?=\][^\]]*$)")
_BLANKS: Final = " \t"
_WRITTEN_ELSEWHERE: Final = frozenset(
    {"Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"}
)


class Headers:
    """The headers of all requests of one probe, validated once.

    A `Host` header is sent as written and does not change the destination. An empty `User-Agent` or `Accept` is omitted;
    a missing one gets its default.
    """

    def __init__(self, configured: Sequence[HTTPHeader], *, user_agent: str) -> None:
        collected: dict[str, list[str]] = {}
        for header in configured:
            collected.setdefault(_canonical(header.name), []).append(header.value)
        collected.setdefault("User-Agent", [user_agent])
        accept = collected.setdefault("Accept", ["*/*"])
        if not accept[0]:
            del collected["Accept"]
        self.problem = _problem(collected)
        self._headers = collected
        self._lines = _lines(collected)
        self._host = collected.get("Host", [""])[0]
        self._user_agent = collected["User-Agent"][0]
        self._end = "\r\n" if _closes(collected) else "Connection: close\r\n\r\n"

    def request(self, url: Url) -> bytes:
        """The first request, to `url`."""
        return self._written(url, self._host or str(url.address))

    def redirected(self, url: Url, *, previous: Url, relative: bool) -> bytes:
        """A request that follows a redirect. The configured Host is kept for a relative redirect only."""
        host = self._host if relative else ""
        downgraded = (previous.scheme, url.scheme) == ("https", "http")
        return self._written(url, host or url.authority, "" if downgraded else previous.text)

    def _written(self, url: Url, host: str, referer: str = "") -> bytes:
        # As in Go, the configured header wins unless it is empty.
        more = {
            name: [value]
            for name, value in (("Authorization", url.authorization), ("Referer", referer))
            if value and not self._headers.get(name, [""])[0]
        }
        lines = _lines(self._headers | more) if more else self._lines
        agent = self._user_agent
        agent_line = f"User-Agent: {agent.strip(_BLANKS)}\r\n" if agent else ""
        return (
            f"GET {url.target} HTTP/1.1\r\nHost: {_host_value(host)}\r\n"
            f"{agent_line}{lines}{self._end}"
        ).encode(errors="surrogateescape")


def _lines(headers: dict[str, list[str]]) -> str:
    return "".join(
        f"{name}: {value.strip(_BLANKS)}\r\n"
        for name in sorted(headers)
        if name not in _WRITTEN_ELSEWHERE
        for value in headers[name]
    )


def _canonical(name: str) -> str:
    """`x-foo` → `X-Foo`, as in Go. An invalid name is unchanged."""
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
    """Whether the configured headers already close or upgrade the connection."""
    words = {
        word.strip().lower() for value in headers.get("Connection", ()) for word in value.split(",")
    }
    return "close" in words or ("upgrade" in words and "Upgrade" in headers)


def _host_value(host: str) -> str:
    """The value of the Host header; empty for an invalid host, so that no server misreads it."""
    if not host.isascii():
        name, colon, port = host.rpartition(":")
        name, port = (host, "") if not colon or ":" in name else (name, colon + port)
        host = ".".join(map(_punycoded, name.split("."))) + port
    if host.startswith("["):
        host = _ZONE.sub("", host)
    return host if _HOST_HEADER.fullmatch(host) else ""


def _punycoded(label: str) -> str:
    return label if label.isascii() else f"xn--{label.encode('punycode').decode()}"
