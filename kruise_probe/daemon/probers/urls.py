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
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
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
    query = ""
    parts = _PARTS.match(text)
    if parts is None or _BROKEN_ESCAPE.search(parts["path"]):
        text = text.replace("%", "%25")
        text = text.replace("?", "%3F")
    else:
        text = parts["path"]
        query = parts["query"] or ""
    scheme = scheme or "http"
    return Url(scheme.lower(), address, str(address), _target(text, query))


def is_absolute(location: str) -> bool:
    """Whether a valid URL has a scheme."""
    return _SCHEME.match(location) is not None


class _Reference(NamedTuple):
    """A valid reference to a URL. Of an opaque one (`mailto:x`) only the scheme is kept; `query` has its question mark."""

    scheme: str
    credentials: str | None
    authority: str
    path: str
    query: str | None

    def is_relative(self) -> bool:
        """Whether it has the host of the URL that it is relative to."""
        has_host = bool(self.authority) or self.credentials is not None
        return not self.scheme and not has_host


def _parse(location: str) -> _Reference:
    """Raises: ValueError, if the Location is not a URL."""
    text, fragment = _split_fragment(location)
    if _CONTROL.search(text) or text.startswith(":"):
        raise ValueError("invalid URL")
    scheme = ""
    found = _SCHEME.match(text)
    if found is not None:
        scheme = found[1].lower()
        text = text[found.end() :]
    path, mark, rest = text.partition("?")
    query = mark + rest if mark else None
    if scheme and not path.startswith("/"):
        _check_escapes(fragment)
        return _Reference(scheme, None, "", "", query)
    first_segment = path.partition("/")[0]
    if ":" in first_segment:
        raise ValueError("first path segment in URL cannot contain colon")

    authority = ""
    credentials = None
    has_authority = path.startswith("//") and not path.startswith("///")
    if has_authority or (scheme and path.startswith("//")):
        authority, slash, path = path[2:].partition("/")
        path = slash + path
        user, at, authority = authority.rpartition("@")
        if at:
            credentials = user
            _check_credentials(user)
    _check_escapes(path)
    _check_escapes(fragment)
    return _Reference(scheme, credentials, authority, path, query)


def _split_fragment(location: str) -> tuple[str, str]:
    mark = location.find("#")
    if mark < 0:
        return location, ""
    return location[:mark], location[mark + 1 :]


def _check_escapes(text: str) -> None:
    if _BROKEN_ESCAPE.search(text):
        raise ValueError("invalid URL escape")


def _check_credentials(text: str) -> None:
    if not _USER.fullmatch(text):
        raise ValueError("net/url: invalid userinfo")
    _check_escapes(text)


@lru_cache(maxsize=1)  # An attempt calls it again for each piece of the body.
def url_of_redirect(url: Url, location: str) -> Url:
    """The URL of a Location header, relative to `url`. Its host is empty if the Location has a scheme, but no host.

    Raises:
        ValueError: the Location is not a URL.
    """
    reference = _parse(location)
    name, port = _host(reference.scheme, reference.authority)
    if not reference.is_relative():
        return _absolute(reference, name, port, reference.scheme or url.scheme)
    base, mark, base_query = url.target.partition("?")
    query = reference.query
    if query is None:
        query = ""
        if not reference.path:
            query = mark + base_query
    path = _resolved(base, _escaped(reference.path))
    return url._replace(target=_target(path, query))


def _absolute(reference: _Reference, name: str, port: str, scheme: str) -> Url:
    address = HostPort(name, _port(port, scheme))
    authorization = ""
    if reference.credentials is not None:
        authorization = _basic(reference.credentials)
    path = _resolved("", _escaped(reference.path))
    target = _target(path, reference.query or "")
    return Url(scheme, address, reference.authority, target, authorization)


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
    digits = digits.lstrip("0") or "0"
    return int(digits[: _MAX_PORT_DIGITS + 1])


def _basic(credentials: str) -> str:
    name, _, password = credentials.partition(":")
    pair = b":".join((unquote_to_bytes(name), unquote_to_bytes(password)))
    encoded = b64encode(pair).decode()
    return f"Basic {encoded}"


def _target(path: str, query: str) -> str:
    escaped = _escaped(path)
    escaped = escaped.removeprefix("/")
    return f"/{escaped}{query}"


def _escaped(path: str) -> str:
    if path == "*" or _SENT_AS_WRITTEN.fullmatch(path):
        return path
    unescaped = unquote_to_bytes(path.encode(errors="surrogateescape"))
    return quote(unescaped, safe=_NOT_ESCAPED)


def _resolved(base: str, reference: str) -> str:
    """The path of a reference, without `.` and `..`."""
    if not reference:
        reference = base
    elif not reference.startswith("/"):
        folder, slash, _ = base.rpartition("/")
        reference = folder + slash + reference
    if not reference:
        return ""
    elements: list[str] = []
    parts = reference.removeprefix("/").split("/")
    for part in parts:
        if part == "..":
            del elements[-1:]
        elif part != ".":
            elements.append(part)
    if parts[-1] in (".", ".."):
        elements.append("")
    return "/" + "/".join(elements)
