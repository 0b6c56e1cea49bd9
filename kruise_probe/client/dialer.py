"""Connects to the API server: TCP, an optional proxy, then TLS.

Source: Go net.Dialer and net/http transport.go (connectMethod, dialConn), with client-go's timeouts.
Differs: a client has one server and at most one proxy. asyncio's Happy Eyeballs (RFC 8305) chooses between the
addresses of one name.
"""

import asyncio
import base64
import os
import re
import socket
import ssl
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.meta import HostPort
from kruise_probe.client.cluster_config import DEFAULT_PORTS, ClusterConfig
from kruise_probe.client.connection import HttpConnection, TlsRefused, reason_of
from kruise_probe.client.credentials import ConfigError

CONNECT_SECONDS = 5.0
"""Timeout of the TCP connection, including DNS."""
HANDSHAKE_SECONDS = 10
"""Timeout of the proxy's response, and of each TLS handshake; as in Go."""
NEXT_ADDRESS_SECONDS: Final = 0.25

_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""An unresponsive peer is detected after two minutes. Load balancers see traffic every 30 s."""

_HOST = re.compile(r"[0-9A-Za-z._:%-]+")
_USER = re.compile("//.*@")
"""In front of a host: never shown, as it may contain a password."""


class Dialer:
    """Connects to one server, directly or through a proxy.

    Attributes:
        host_header: value of the Host header.
        target_prefix: prefix of the target of each request. Without TLS there is no tunnel, so a proxy gets absolute
            URLs.
        tls: None for a plain HTTP server.
        proxy_authorization: the Proxy-Authorization header line, or empty.
    """

    def __init__(self, config: ClusterConfig) -> None:
        """Raises ConfigError: a URL is invalid."""
        url = urlsplit(config.server)
        self.server = _host_port(url, f"the server of {config.source}")
        self.host_header = _host_header(self.server, url.scheme)
        self.target_prefix = quote(url.path, safe="/%:@!$&'()*+,;=~")
        self.tls = config.tls
        if self.tls is None and url.scheme == "https":
            self.tls = ssl.create_default_context()
        self._server_name = config.server_name or self.server.host.rstrip(".")
        self.proxy_authorization = ""
        self._proxy: HostPort | None = None
        self._proxy_tls: ssl.SSLContext | None = None
        if config.proxy:
            self._use_proxy(urlsplit(config.proxy))

    def _use_proxy(self, url: SplitResult) -> None:
        self._proxy = _host_port(url, "the proxy of proxy-url or $HTTPS_PROXY")
        if url.scheme == "https":
            self._proxy_tls = self.tls or ssl.create_default_context()
        if self.tls is None:
            self.target_prefix = f"http://{self.host_header}{self.target_prefix}"
        if url.username is not None:
            credentials = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
            encoded = base64.b64encode(credentials).decode()
            self.proxy_authorization = f"Proxy-Authorization: Basic {encoded}\r\n"

    async def dial(self) -> HttpConnection:
        """Connect to the server. The caller must close the connection.

        Raises:
            TlsRefused: the certificate of the server or of this client is not trusted.
            ConnectionFailed: TCP, the proxy or TLS failed. The message contains the server or proxy, and the reason.
        """
        connection = HttpConnection()
        try:
            await _connect(connection, self._proxy or self.server)
            if self._proxy is not None:
                if self._proxy_tls is not None:
                    await _start_tls(connection, self._proxy, self._proxy_tls, self._proxy.host)
                if self.tls is not None:
                    await self._open_tunnel(connection, self._proxy)
            if self.tls is not None:
                await _start_tls(connection, self.server, self.tls, self._server_name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open_tunnel(self, connection: HttpConnection, proxy: HostPort) -> None:
        failed = f"cannot connect to {self.server} through the proxy {proxy}"
        request = f"CONNECT {self.server} HTTP/1.1\r\nHost: {self.server}\r\n{self.proxy_authorization}\r\n"
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                connection.send(request.encode(), tunnel=True)
                status = (await connection.read_header()).status
        except TimeoutError as error:
            raise ConnectionFailed(
                f"{failed}: the proxy did not respond within {HANDSHAKE_SECONDS:g} s"
            ) from error
        except ConnectionFailed as error:
            raise ConnectionFailed(f"{failed}: {error}") from error
        if not 200 <= status < 300:
            raise ConnectionFailed(f"{failed}: the proxy responded with status {status}")
        if not connection.usable:
            raise ConnectionFailed(f"{failed}: the proxy sent data before the TLS handshake")


async def _connect(connection: HttpConnection, to: HostPort) -> None:
    loop = asyncio.get_running_loop()
    # An IP address is the only one. With a delay, asyncio may leave the socket open when it is cancelled.
    delay = None if ":" in to.host or to.host.replace(".", "").isdigit() else NEXT_ADDRESS_SECONDS
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, _ = await loop.create_connection(
                lambda: connection, to.host, to.port, happy_eyeballs_delay=delay
            )
        for option in _KEEPALIVE:
            transport.get_extra_info("socket").setsockopt(*option)
    except TimeoutError as error:
        raise ConnectionFailed(
            f"cannot connect to {to}: no TCP connection within {CONNECT_SECONDS:g} s"
        ) from error
    except OSError as error:
        raise ConnectionFailed(f"cannot connect to {to}: {_refusals(error)}") from error


async def _start_tls(
    connection: HttpConnection, peer: HostPort, context: ssl.SSLContext, name: str
) -> None:
    """Do the TLS handshake and switch the connection to TLS."""
    failed = f"cannot connect to {peer}"
    closed = f"{failed}: the connection was closed during the TLS handshake"
    below = connection.transport
    if below is None:
        raise ConnectionFailed(closed)
    try:
        transport = await asyncio.get_running_loop().start_tls(
            below,
            connection,
            context,
            server_hostname=name,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )
    except ssl.SSLError as error:
        raise TlsRefused(f"{failed}: {reason_of(error)}") from error
    except ConnectionAbortedError as error:
        raise ConnectionFailed(
            f"{failed}: no TLS handshake within {HANDSHAKE_SECONDS:g} s"
        ) from error
    except ConnectionResetError as error:
        raise TlsRefused(closed) from error
    except OSError as error:
        raise ConnectionFailed(f"{failed}: {reason_of(error)}") from error
    if transport is None or connection.transport is None:  # lost right after the handshake
        raise TlsRefused(closed)
    connection.connection_made(transport)


def _refusals(error: OSError) -> str:
    """The reason; for several addresses, each reason once."""
    several = dict.fromkeys(re.findall(r"\[Errno (\d+)\]", str(error)))
    if isinstance(error, socket.gaierror) or not several:
        return error.strerror or reason_of(error)
    return ", ".join(os.strerror(int(number)) for number in several)


def _host_port(url: SplitResult, what: str) -> HostPort:
    shown = f"{what}: {_USER.sub('//', url.geturl())!r}"
    try:
        if url.scheme not in DEFAULT_PORTS:
            raise ValueError("its scheme is neither http nor https")
        host, port = url.hostname or "", url.port or DEFAULT_PORTS[url.scheme]
        if not _HOST.fullmatch(host):
            raise ValueError("it has no valid host")
    except ValueError as error:
        raise ConfigError(f"{shown} is not a URL ({error}); write http(s)://host:port") from error
    return HostPort(host, port)


def _host_header(server: HostPort, scheme: str) -> str:
    if server.port != DEFAULT_PORTS.get(scheme):
        return str(server)
    return f"[{server.host}]" if ":" in server.host else server.host
