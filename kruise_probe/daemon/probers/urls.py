"""URLs of requests.

Source: kubelet pkg/probe/http/request.go (formatURL); Go net/url (EscapedPath).
Differs: Python's urllib parses the Location of a redirect. Its credentials are neither sent nor shown.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from kruise_probe.api.meta import HostPort

MAX_LOCATION: Final = 8 * 1024
"""Longest Location that is followed, because urllib remembers some."""

# Without a scheme, Go finds no host after three slashes.
_PARTS = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]*)?|//(?!/)[^/?#]*)?(?P<path>[^?#]*)(?P<query>\?[^#]*)?",
    re.DOTALL,
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SENT_AS_WRITTEN = re.compile(r"[A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]*")
_NOT_ESCAPED: Final = "$&+,/:;=@-_.~"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Url(NamedTuple):
    """The URL of a request.

    Attributes:
        authority: host and port as written.
        target: path and query as sent.
    """

    scheme: str
    address: HostPort
    authority: str
    target: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def url_of_action(scheme: str | None, address: HostPort, path: str | None) -> Url:
    """The pod's address with path and query of `path`; a host in `path` is dropped.

    As in kubelet, a path with a broken escape is escaped as a whole.
    """
    scheme = (scheme or "http").lower()
    text = path or ""
    parts = _PARTS.match(text)
    if parts is None or _BROKEN_ESCAPE.search(parts["path"]):
        text = text.replace("%", "%25")
        text = text.replace("?", "%3F")
        target = _target(text, "")
    else:
        query = parts["query"] or ""
        target = _target(parts["path"], query)
    authority = str(address)
    return Url(scheme, address, authority, target)


def is_absolute(location: str) -> bool:
    """Whether a valid URL has a scheme."""
    return _SCHEME.match(location) is not None


@lru_cache(maxsize=1)  # An attempt calls it again for each piece of the body.
def url_of_redirect(url: Url, location: str) -> Url:
    """The URL of a Location header, relative to `url`. Its host is empty if the Location has a scheme, but no host.

    Raises:
        ValueError: the Location is not a URL, or is too long.
    """
    if len(location) > MAX_LOCATION:
        raise ValueError(f"it has more than {MAX_LOCATION} characters")
    if _CONTROL.search(location):
        raise ValueError("it has a control character")
    path = location.partition("?")[0]
    if _BROKEN_ESCAPE.search(path):
        raise ValueError("it has an incomplete escape")
    absolute = urljoin(str(url), location)
    parts = urlsplit(absolute)
    port = parts.port
    if port is None:
        port = _DEFAULT_PORTS.get(parts.scheme, 0)
    query = ""
    if parts.query:
        query = f"?{parts.query}"
    target = _target(parts.path, query)
    _, _, authority = parts.netloc.rpartition("@")
    address = HostPort(parts.hostname or "", port)
    return Url(parts.scheme, address, authority, target)


def _target(path: str, query: str) -> str:
    escaped = _escaped(path)
    escaped = escaped.removeprefix("/")
    return f"/{escaped}{query}"


def _escaped(path: str) -> str:
    if path == "*" or _SENT_AS_WRITTEN.fullmatch(path):
        return path
    encoded = path.encode(errors="surrogateescape")
    unescaped = unquote_to_bytes(encoded)
    return quote(unescaped, safe=_NOT_ESCAPED)
