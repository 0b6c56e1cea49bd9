"""Parses and formats URLs as Go does, for httpGet and its redirects.

Python's `urllib.parse` strips spaces, slashes and a lone question mark, and reads a path that begins with `//` as a
host. That would change the request.

Source: Go net/url (Parse, ResolveReference, EscapedPath); kubelet pkg/probe/http/request.go (formatURL).
Differs: messages omit the credentials of a URL. Go hides only the password, and not in all messages.
"""

import re
from base64 import b64encode
from typing import Final, NamedTuple, Self
from urllib.parse import quote, unquote_to_bytes

from kruise_probe.api import messages
from kruise_probe.api.host_port import HostPort

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+\-.]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_USER = re.compile(r"(?:[A-Za-z0-9\-._:~!$&'()*+,;=@]++|%[0-9A-Fa-f]{2})*+")
_CREDENTIALS = re.compile(r"\A([^/?#]*//)[^/?#]*@")
_PORT = re.compile(r"(?::([0-9]*))?")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_NOT_IN_A_HOST = re.compile(
    r"(?P<escape>%(?!25|[89A-Fa-f][0-9A-Fa-f]).{0,2})|[^A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]"
)
_ENCODED_PATH = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@\[\]/%]*")
_NOT_QUOTED: Final = "$&+,/:;=@-_.~"


class InvalidRequest(Exception):
    """The request cannot be built; the text is Go's."""


class _InvalidUrl(ValueError):
    """The text is not a URL; the message has the reason."""


class _Parts(NamedTuple):
    """Parts of a URL. `authority` has no credentials; `query` is None without a question mark."""

    scheme: str
    is_absolute: bool
    authorization: str
    authority: str
    path: str
    query: str | None
    is_opaque: bool


class Url(NamedTuple):
    """The URL of a request.

    Attributes:
        authority: host and port as written.
        target: path and query as sent.
        text: for messages and the Referer header, without credentials.
        authorization: the Authorization header for the credentials; empty without credentials.
    """

    scheme: str
    host: str
    port: int
    authority: str
    target: str
    text: str
    authorization: str = ""

    @property
    def address(self) -> HostPort:
        return HostPort(self.host, self.port)

    @classmethod
    def of_action(cls, scheme: str | None, address: HostPort, path: str | None) -> Self:
        """The pod's address with the path and query of `path`; a host in `path` is dropped.

        Raises:
            InvalidRequest: `path` has a scheme without a path (`a:b`).
        """
        scheme = (scheme or "HTTP").lower()
        try:
            parts = _parse(path or "")
        except _InvalidUrl:
            # As in kubelet: an invalid path is escaped as a whole, without a query.
            authorization = ""
            target = f"/{quote(path or '', safe=_NOT_QUOTED).removeprefix('/')}"
        else:
            if parts.is_opaque:
                text = messages.quote(f"{scheme}:{parts.path}")
                raise InvalidRequest(f"Get {text}: http: no Host in request URL")
            authorization = parts.authorization
            target = _target(parts.path, parts.query)
        text = f"{scheme}://{address}{target}"
        return cls(scheme, *address, str(address), target, text, authorization)

    def join(self, location: str) -> "Url":
        """The URL of a Location header, relative to this one.

        Raises:
            InvalidRequest: the Location is not a URL.
        """
        try:
            parts = _parse(location)
        except _InvalidUrl as problem:
            shown = messages.quote(without_credentials(location))
            raise InvalidRequest(
                f'Get "{self.text}": failed to parse Location header {shown}: '
                f"parse {shown}: {problem}"
            ) from problem
        scheme = parts.scheme or self.scheme
        if parts.is_absolute:
            authority, path = parts.authority, _resolved("", _encoded(parts.path))
            authorization = parts.authorization
        else:
            authority, authorization = self.authority, self.authorization
            path = _resolved(self.target.partition("?")[0], _encoded(parts.path))
        query = parts.query
        if query is None and not (parts.path or parts.is_absolute):
            query = self.target.partition("?")[2] or None
        target = _target(path, query)
        host, port = _host_and_port(authority, 443 if scheme == "https" else 80)
        shown = f"{scheme}://{authority}{target if path else target[1:]}"
        return Url(scheme, host, port, authority, target, shown, authorization)


def has_scheme(text: str) -> bool:
    return bool(_SCHEME.match(text))


def without_credentials(text: str) -> str:
    """A Location header as a message shows it."""
    return _CREDENTIALS.sub(r"\1", text)


def _parse(text: str) -> _Parts:
    at = text.find("#")
    text, fragment = (text, "") if at < 0 else (text[:at], text[at:])
    if _CONTROL.search(text) or _CONTROL.search(fragment):
        raise _InvalidUrl("net/url: invalid control character in URL")
    if text.startswith(":"):
        raise _InvalidUrl("missing protocol scheme")
    matched = _SCHEME.match(text)
    scheme = matched[1].lower() if matched else ""
    rest, mark, query = text[matched.end() if matched else 0 :].partition("?")
    known_query = query if mark else None
    if not rest.startswith("/"):
        if scheme:
            return _Parts(scheme, True, "", "", rest, known_query, is_opaque=True)
        if ":" in rest.partition("/")[0]:
            raise _InvalidUrl("first path segment in URL cannot contain colon")
    authority = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    if broken := _BROKEN_ESCAPE.search(rest) or _BROKEN_ESCAPE.search(fragment):
        raise _InvalidUrl(f"invalid URL escape {messages.quote(broken[0])}")
    is_absolute = bool(scheme or authority)
    authorization, host = _validated(authority, scheme)
    return _Parts(scheme, is_absolute, authorization, host, rest, known_query, is_opaque=False)


def _validated(authority: str, scheme: str) -> tuple[str, str]:
    """Validate the authority. Return the Authorization header for its credentials, and its host and port."""
    user, at, host = authority.rpartition("@")
    if not _USER.fullmatch(user):
        raise _InvalidUrl("net/url: invalid userinfo")
    if host.startswith("["):
        if "]" not in host:
            raise _InvalidUrl("missing ']' in host")
        after = host.rpartition("]")[2]
    else:
        split = str.partition if scheme in ("http", "https") else str.rpartition
        after = ":" + split(host, ":")[2] if ":" in host else ""
    if not _PORT.fullmatch(after):
        raise _InvalidUrl(f"invalid port {messages.quote(after)} after host")
    if wrong := _NOT_IN_A_HOST.search(host):
        quoted = messages.quote(wrong[0])
        if wrong["escape"]:
            raise _InvalidUrl(f"invalid URL escape {quoted}")
        raise _InvalidUrl(f"invalid character {quoted} in host name")
    return _basic(user) if at else "", host


def _basic(credentials: str) -> str:
    name, _, password = map(unquote_to_bytes, credentials.partition(":"))
    return f"Basic {b64encode(name + b':' + password).decode()}"


def _host_and_port(authority: str, default_port: int) -> tuple[str, int]:
    """Split host and port. A port is cut to six digits, which is still out of range if it was."""
    host, colon, port = authority.rpartition(":")
    if not colon or "]" in port:
        host, port = authority, ""
    number = int(port.lstrip("0")[:6] or 0) if port else default_port
    return host.removeprefix("[").removesuffix("]"), number


def _encoded(path: str) -> str:
    """Escape the path as Go's EscapedPath."""
    if _ENCODED_PATH.fullmatch(path):
        return path
    return quote(unquote_to_bytes(path.encode(errors="surrogateescape")), safe=_NOT_QUOTED)


def _target(path: str, query: str | None) -> str:
    path = _encoded(path)
    if not path.startswith("/"):
        path = f"/{path}"
    return path if query is None else f"{path}?{query}"


def _resolved(base: str, reference: str) -> str:
    """Resolve `reference` against `base` and remove dot segments."""
    if not reference:
        full = base
    elif reference.startswith("/"):
        full = reference
    else:
        full = base[: base.rfind("/") + 1] + reference
    if not full:
        return ""
    kept: list[str] = []
    *_, last = elements = full.split("/")
    for element in elements:
        if element == "..":
            del kept[-1:]
        elif element != ".":
            kept.append(element)
    path = "/".join(kept) + ("/" if last in (".", "..") else "")
    return path if path.startswith("/") else f"/{path}"
