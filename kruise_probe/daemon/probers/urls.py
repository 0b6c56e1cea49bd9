"""URLs of httpGet and of its redirects.

Source: kubelet pkg/probe/http/request.go (formatURL); Go net/url for what is escaped.
Differs: messages omit the credentials of a URL. Go hides only the password, and not in all messages.
"""

import re
from base64 import b64encode
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from kruise_probe.api.host_port import HostPort

_PARTS = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?(?P<path>[^?#]*)(?P<query>\?[^#]*)?", re.DOTALL
)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_ESCAPED: Final = "$&+,/:;=@-_.~!'()*[]%"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


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


def url_of_redirect(url: Url, location: str) -> Url:
    """The URL of a Location header, relative to `url`.

    Raises:
        ValueError: the Location is not a URL.
    """
    parts = urlsplit(urljoin(str(url), location))
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
