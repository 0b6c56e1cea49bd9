"""The route to a server, from its URL and the proxy's URL: endpoints, TLS and headers.

Source: Go net/http transport.go (connectMethod, persistConn.writeLoop).
Differs: a client has one server and at most one proxy.
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
    """The route to one server.

    Attributes:
        server: endpoint of the API server.
        host: value of the Host header.
        target_prefix: prefix of the target of each request.
        tls: None for a plain HTTP server.
        server_name: name expected in the server's certificate.
        proxy: endpoint of the proxy, or None.
        proxy_tls: None for a plain HTTP proxy.
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
        """Endpoint of the TCP connection."""
        return self.proxy or self.server

    @property
    def proxy_header(self) -> str:
        """The Proxy-Authorization header line, or an empty string."""
        if not self.proxy_authorization:
            return ""
        return f"Proxy-Authorization: {self.proxy_authorization}\r\n"

    @property
    def connect_request(self) -> bytes:
        """The CONNECT request for the proxy."""
        return f"CONNECT {self.server} HTTP/1.1\r\nHost: {self.server}\r\n{self.proxy_header}\r\n".encode()

    @classmethod
    def of(cls, config: ClusterConfig) -> "Route":
        """Build the route of `config`.

        Raises:
            ConfigError: a URL is invalid.
        """
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
    """Add the proxy to the route. Without TLS there is no tunnel, so each target is an absolute URL."""
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
