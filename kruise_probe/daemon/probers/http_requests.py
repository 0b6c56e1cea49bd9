"""The requests of httpGet: headers, without socket or clock.

Source: Go net/http (Request.write, refererForURL).
Differs: our User-Agent; header names and the Host header are sent as written.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

from kruise_probe.api.core import HEADER_VALUE_CONTROL, HTTPHeader
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
            name = header.name.lower()
            defaults.pop(name, None)
            if name == "host":
                self._host = self._host or header.value
            self.problem = self.problem or _problem(header)
            is_omitted = not header.value and name in _WITH_DEFAULT
            if name not in _NOT_SENT and not is_omitted:
                lines.append(f"{header.name}: {header.value.strip()}")
        lines.extend(defaults.values())
        lines.append("Connection: close")
        self._lines = "\r\n".join(lines)

    def request(self, url: Url) -> bytes:
        """The first request, to `url`."""
        return self._request(url, self._host)

    def redirected(self, url: Url, previous: Url, location: str) -> bytes:
        """A request that follows a redirect. The configured Host is kept for a relative redirect only."""
        referer = f"Referer: {previous}\r\n"
        if previous.scheme == "https" and url.scheme == "http":
            referer = ""
        host = self._host
        if is_absolute(location):
            host = ""
        return self._request(url, host, referer)

    def _request(self, url: Url, host: str, referer: str = "") -> bytes:
        host = host or url.authority
        begin = f"GET {url.target} HTTP/1.1\r\nHost: {host}\r\n"
        text = f"{begin}{referer}{self._lines}\r\n\r\n"
        return text.encode(errors="surrogateescape")


def _problem(header: HTTPHeader) -> str | None:
    name = json.dumps(header.name)
    if not _TOKEN.fullmatch(header.name):
        return f"net/http: invalid header field name {name}"
    if HEADER_VALUE_CONTROL.search(header.value):
        return f"net/http: invalid header field value for {name}"
    return None
