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
_NOT_SENT: Final = frozenset({"host", "content-length", "transfer-encoding", "trailer"})


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
        referer = f"Referer: {previous}\r\n"
        if (previous.scheme, url.scheme) == ("https", "http"):
            referer = ""
        host = "" if is_absolute(location) else self._host
        return self._request(url, host, referer)

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
