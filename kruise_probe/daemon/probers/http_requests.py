"""The requests of httpGet: headers, without socket or clock.

Source: Go net/http (Request.write, refererForURL).
Differs: our User-Agent; header names and the Host header are sent as written.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

from kruise_probe.api.probe import HEADER_VALUE_CONTROL, HTTPHeader
from kruise_probe.daemon.probers.urls import Url, is_absolute

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_WITH_DEFAULT: Final = frozenset({"user-agent", "accept"})
_NOT_SENT: Final = frozenset({"host", "content-length", "transfer-encoding", "trailer"})


class Headers:
    """The headers of all requests of one probe, validated once.

    A `Host` header is sent as written and does not change the destination. An empty `User-Agent` or `Accept` is omitted;
    a missing one gets its default.

    Attributes:
        problem: why the headers cannot be sent, or None.
    """

    def __init__(self, configured: Sequence[HTTPHeader], *, user_agent: str) -> None:
        self.problem: str | None = None
        self._host = ""
        defaults = {"user-agent": f"User-Agent: {user_agent}", "accept": "Accept: */*"}
        lines: list[str] = []
        for header in configured:
            if self.problem is None:
                self.problem = _problem(header)
            name = header.name.lower()
            value = header.value
            defaults.pop(name, None)
            if name == "host" and not self._host:
                self._host = value
            if name in _NOT_SENT:
                continue
            if name in _WITH_DEFAULT and not value:
                continue
            sent = value.strip()
            lines.append(f"{header.name}: {sent}")
        lines.extend(defaults.values())
        lines.append("Connection: close")
        self._lines = "\r\n".join(lines)

    def request(self, url: Url) -> bytes:
        """The first request, to `url`."""
        return self._request(url, self._host)

    def redirected(self, url: Url, previous: Url, location: str) -> bytes:
        """A request that follows a redirect. The configured Host is kept for a relative redirect only."""
        leaves_tls = previous.scheme == "https" and url.scheme == "http"
        referer = ""
        if not leaves_tls:
            referer = f"Referer: {previous}\r\n"
        host = self._host
        if is_absolute(location):
            host = ""
        return self._request(url, host, referer)

    def _request(self, url: Url, host: str, referer: str = "") -> bytes:
        if not host:
            host = url.authority
        text = f"GET {url.target} HTTP/1.1\r\n"
        text += f"Host: {host}\r\n"
        text += referer
        text += self._lines
        text += "\r\n\r\n"
        return text.encode(errors="surrogateescape")


def _problem(header: HTTPHeader) -> str | None:
    name = json.dumps(header.name)
    if not _TOKEN.fullmatch(header.name):
        return f"net/http: invalid header field name {name}"
    if HEADER_VALUE_CONTROL.search(header.value):
        return f"net/http: invalid header field value for {name}"
    return None
