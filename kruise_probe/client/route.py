"""The way to a server, made out of its URL and its proxy's: where to connect, and what is said on the way.

Source: Go net/http transport.go (connectMethod, persistConn.writeLoop).
Differs: one server and one proxy for the life of a client.
"""

import base64
import re
import ssl
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from kruise_probe.client.config import ClusterConfig, ConfigError

_HOST = re.compile(r"[0-9A-Za-z._:%-]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Route(NamedTuple):
    """Attributes:
    server: whom the requests are for.
    host: the header of that name.
    target_prefix: what stands before the target of each request.
    tls: None where the server speaks plain HTTP.
    server_name: whom the server's certificate must name.
    proxy: where to connect instead of to the server, or None.
    proxy_tls: None where the proxy speaks plain HTTP.
    proxy_authorization: empty without credentials in the proxy's URL.
    """

    server: Endpoint
    host: str
    target_prefix: str
    tls: ssl.SSLContext | None
    server_name: str
    proxy: Endpoint | None = None
    proxy_tls: ssl.SSLContext | None = None
    proxy_authorization: str = ""

    @property
    def first(self) -> Endpoint:
        """Whom a connection is made to."""
        return self.proxy or self.server

    @property
    def proxy_header(self) -> str:
        """The header field with which a request passes the proxy, or nothing."""
        if not self.proxy_authorization:
            return ""
        return f"Proxy-Authorization: {self.proxy_authorization}\r\n"

    @property
    def connect_request(self) -> bytes:
        """Asks the proxy for a tunnel."""
        return f"CONNECT {self.server} HTTP/1.1\r\nHost: {self.server}\r\n{self.proxy_header}\r\n".encode()

    @classmethod
    def of(cls, config: ClusterConfig) -> "Route":
        """Raises: ConfigError, when one of the URLs is none."""
        url = urlsplit(config.server)
        server = _endpoint(url)
        tls = config.tls
        if tls is None and url.scheme == "https":
            tls = ssl.create_default_context()
        host = _host_header(server, url.scheme)
        route = cls(
            server=server,
            host=host,
            target_prefix=quote(url.path, safe="/%:@!$&'()*+,;=~"),
            tls=tls,
            server_name=config.server_name or server.host.rstrip("."),
        )
        return _by_proxy(route, urlsplit(config.proxy)) if config.proxy else route


def _by_proxy(route: Route, url: SplitResult) -> Route:
    """Where there is TLS the proxy is asked for a tunnel; without it each request names the server."""
    authorization = ""
    if url.username is not None:
        credentials = f"{unquote(url.username)}:{unquote(url.password or '')}"
        authorization = "Basic " + base64.b64encode(credentials.encode()).decode()
    prefix = route.target_prefix
    return route._replace(
        target_prefix=prefix if route.tls is not None else f"http://{route.host}{prefix}",
        proxy=_endpoint(url),
        proxy_tls=(route.tls or ssl.create_default_context()) if url.scheme == "https" else None,
        proxy_authorization=authorization,
    )


def _endpoint(url: SplitResult) -> Endpoint:
    if url.scheme not in _DEFAULT_PORTS:
        raise ConfigError(
            f"{_without_password(url)}: only http and https are spoken; write http(s)://host:port"
        )
    try:
        host, port = url.hostname or "", url.port or _DEFAULT_PORTS[url.scheme]
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:
        raise ConfigError(
            f"{_without_password(url)}: is no URL of a server ({error}); write http(s)://host:port"
        ) from error
    if not _HOST.fullmatch(host):
        raise ConfigError(f"{_without_password(url)}: names no host; write http(s)://host:port")
    return Endpoint(host, port)


def _without_password(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def _host_header(server: Endpoint, scheme: str) -> str:
    if server.port != _DEFAULT_PORTS.get(scheme):
        return str(server)
    return f"[{server.host}]" if ":" in server.host else server.host
