"""URLs of requests, as Go reads and writes them.

Source: kubelet pkg/probe/http/request.go (formatURL); Go net/url (parse, parseAuthority, parseHost, ResolveReference,
EscapedPath).
Differs: messages omit the credentials of a URL; Go hides only the password, and not in all messages.
"""

import re
from base64 import b64encode
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from kruise_probe.api.meta import HostPort

# Without a scheme, Go finds no host after three slashes.
_PARTS = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]*)?|//(?!/)[^/?#]*)?(?P<path>[^?#]*)(?P<query>\?[^#]*)?",
    re.DOTALL,
)
_REFERENCE = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?P<rest>[^?#]*)(?P<query>\?[^#]*)?(?:#(?P<fragment>.*))?",
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SENT_AS_WRITTEN = re.compile(r"[A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]*")
_NOT_ESCAPED: Final = "$&+,/:;=@-_.~"
_HOST = re.compile(r"(?P<name>\[[^\]]*\]|[^:\[]*)(?::(?P<port>[0-9]*))?")
_HOST_OF_ANOTHER_SCHEME = re.compile(
    r"(?P<name>\[[^\]]*\]|[^\[]*(?=:[0-9]*\Z)|[^:\[]*)(?::(?P<port>[0-9]*))?"
)
_HOST_NAME = re.compile(
    r"(?:[A-Za-z0-9\-_.~!\"$&'()*+,:;<=>\]]|[^\x00-\x7f]|%[89A-Fa-f][0-9A-Fa-f]|%25)*"
)
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT_DIGITS: Final = 5


class Url(NamedTuple):
    """The URL of a request.

    Attributes:
        address: the port may be out of range.
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


def is_absolute(location: str) -> bool:
    """Whether a valid URL has a scheme."""
    reference = _REFERENCE.fullmatch(location)
    return reference is not None and reference["scheme"] is not None


@lru_cache(maxsize=1)  # An attempt calls it again for each piece of the body.
def url_of_redirect(url: Url, location: str) -> Url:
    """The URL of a Location header, relative to `url`. Its host is empty if the Location has a scheme, but no host.

    Raises:
        ValueError: the Location is not a URL.
    """
    parts = _REFERENCE.fullmatch(location)
    if parts is None or _CONTROL.search(location.partition("#")[0]) or location.startswith(":"):
        raise ValueError("invalid URL")
    scheme = (parts["scheme"] or "").lower()
    rest = parts["rest"]
    query = parts["query"]
    if _BROKEN_ESCAPE.search(parts["fragment"] or ""):
        raise ValueError("invalid URL escape")
    if scheme and not rest.startswith("/"):
        return Url(scheme, HostPort("", 0), "", rest)
    if ":" in rest.partition("/")[0]:
        raise ValueError("first path segment in URL cannot contain colon")
    path = rest
    authority = ""
    credentials = None
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
        user, at, authority = authority.rpartition("@")
        if at:
            credentials = _checked_credentials(user)
    name, port = _host(scheme, authority)
    if _BROKEN_ESCAPE.search(path):
        raise ValueError("invalid URL escape")
    if scheme or authority or credentials is not None:
        scheme = scheme or url.scheme
        address = HostPort(name, _port(port, scheme))
        authorization = "" if credentials is None else _basic(credentials)
        target = _target(_resolved("", _escaped(path)), query or "")
        return Url(scheme, address, authority, target, authorization)
    base, mark, base_query = url.target.partition("?")
    if not path and query is None:
        query = mark + base_query
    target = _target(_resolved(base, _escaped(path)), query or "")
    return url._replace(target=target)


def _host(scheme: str, authority: str) -> tuple[str, str]:
    """Host without brackets, and port; empty if absent. Raises: ValueError."""
    pattern = _HOST if scheme in _DEFAULT_PORTS else _HOST_OF_ANOTHER_SCHEME
    parts = pattern.fullmatch(authority)
    if parts is None:
        raise ValueError("invalid host or port")
    name = parts["name"]
    if name.startswith("["):
        name = name[1:-1]
        _ = IPv6Address(name.replace("%25", "%"))
    elif not _HOST_NAME.fullmatch(name):
        raise ValueError("invalid character in host name")
    return name, parts["port"] or ""


def _port(digits: str, scheme: str) -> int:
    if not digits:
        return _DEFAULT_PORTS.get(scheme, 0)
    return int(digits.lstrip("0")[: _MAX_PORT_DIGITS + 1] or "0")


def _checked_credentials(text: str) -> str:
    if not _USER.fullmatch(text) or _BROKEN_ESCAPE.search(text):
        raise ValueError("net/url: invalid userinfo")
    return text


def _basic(credentials: str) -> str:
    name, _, password = credentials.partition(":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    return f"Basic {b64encode(pair).decode()}"


def _target(path: str, query: str) -> str:
    path = _escaped(path)
    return f"/{path.removeprefix('/')}{query}"


def _escaped(path: str) -> str:
    if path == "*" or _SENT_AS_WRITTEN.fullmatch(path):
        return path
    return quote(unquote_to_bytes(path.encode(errors="surrogateescape")), safe=_NOT_ESCAPED)


def _resolved(base: str, reference: str) -> str:
    """The path of a reference, without `.` and `..`."""
    if not reference.startswith("/"):
        reference = base[: base.rfind("/") + 1] + reference if reference else base
    if not reference:
        return ""
    elements: list[str] = []
    parts = reference.split("/")
    if not parts[0]:
        parts = parts[1:]
    for part in parts:
        if part == ".." and elements:
            elements.pop()
        elif part not in (".", ".."):
            elements.append(part)
    if parts[-1] in (".", ".."):
        elements.append("")
    return "/" + "/".join(elements)
