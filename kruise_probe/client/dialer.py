"""Connects to the API server: TCP, an optional proxy, then TLS.

Source: Go net.Dialer and net/http transport.go (connectMethod, dialConn), with client-go's timeouts.
Differs: a client has one server and at most one proxy. asyncio's Happy Eyeballs (RFC 8305) chooses between the
addresses of one name.
"""

import asyncio
import asyncio.sslproto
import base64
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from kruise_probe.api.host_port import HostPort
from kruise_probe.client.config import DEFAULT_PORTS, ClusterConfig, ConfigError
from kruise_probe.client.http1 import ConnectionLost, HttpConnection
from kruise_probe.client.response import ResponseError

CONNECT_SECONDS = 5.0
"""Timeout of the TCP connection, including DNS."""
HANDSHAKE_SECONDS = 10
"""Timeout of the proxy's response, and of each TLS handshake; as in Go."""
NEXT_ADDRESS_SECONDS: Final = 0.25

TCP_KEEPALIVE_IDLE_SECONDS = 30
TCP_KEEPALIVE_INTERVAL_SECONDS = 30
TCP_KEEPALIVE_PROBES = 3
"""With the two values above, an unresponsive peer is detected after two minutes.

Load balancers see traffic every 30 s.
"""

_HOST = re.compile(r"[0-9A-Za-z._:%-]+")


class DialFailed(Exception):
    """The connection failed. The message contains the server or proxy, and the reason."""


class UntrustedServer(DialFailed):
    """The server's certificate is not trusted; no request was sent."""


class _TlsProtocol(asyncio.sslproto.SSLProtocol):
    """asyncio's TLS with a smaller buffer.

    asyncio reserves 256 KiB for each connection, 12 MB for fifty, and allocates as much for each read, which takes 6 %
    of a request's CPU time. A TLS record has at most 16 KiB.
    """

    max_size = 32 * 1024


@dataclass(frozen=True, kw_only=True)
class Dialer:
    """Connects to one server, directly or through a proxy.

    Attributes:
        server: address of the API server.
        host_header: value of the Host header.
        target_prefix: prefix of the target of each request.
        tls: None for a plain HTTP server.
        server_name: name expected in the server's certificate.
        proxy: address of the proxy, or None.
        proxy_tls: None for a plain HTTP proxy.
        proxy_authorization: the Proxy-Authorization header line, or empty.
    """

    server: HostPort
    host_header: str
    target_prefix: str
    tls: ssl.SSLContext | None
    server_name: str
    proxy: HostPort | None = None
    proxy_tls: ssl.SSLContext | None = None
    proxy_authorization: str = ""

    @classmethod
    def for_config(cls, config: ClusterConfig) -> "Dialer":
        """Create the dialer for `config`.

        Raises:
            ConfigError: a URL is invalid.
        """
        url = urlsplit(config.server)
        server = _host_port(url)
        tls = config.tls
        if tls is None and url.scheme == "https":
            tls = ssl.create_default_context()
        dialer = cls(
            server=server,
            host_header=_host_header(server, url.scheme),
            target_prefix=quote(url.path, safe="/%:@!$&'()*+,;=~"),
            tls=tls,
            server_name=config.server_name or server.host.rstrip("."),
        )
        return dialer._through(urlsplit(config.proxy)) if config.proxy else dialer

    def _through(self, url: SplitResult) -> "Dialer":
        """Add a proxy. Without TLS there is no tunnel, so each target is an absolute URL."""
        authorization = ""
        if url.username is not None:
            credentials = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
            authorization = (
                f"Proxy-Authorization: Basic {base64.b64encode(credentials).decode()}\r\n"
            )
        origin = "" if self.tls is not None else f"http://{self.host_header}"
        return replace(
            self,
            target_prefix=origin + self.target_prefix,
            proxy=_host_port(url),
            proxy_tls=(self.tls or ssl.create_default_context()) if url.scheme == "https" else None,
            proxy_authorization=authorization,
        )

    @property
    def connect_request(self) -> bytes:
        """The CONNECT request for the proxy."""
        return f"CONNECT {self.server} HTTP/1.1\r\nHost: {self.server}\r\n{self.proxy_authorization}\r\n".encode()

    async def dial(self, on_lost: Callable[[HttpConnection], None]) -> HttpConnection:
        """Connect to the server. The caller must close the connection.

        Raises:
            DialFailed: TCP, the proxy or TLS failed.
        """
        connection = HttpConnection(on_lost)
        try:
            await _connect(connection, self.proxy or self.server)
            if self.proxy is not None:
                if self.proxy_tls is not None:
                    await _start_tls(connection, self.proxy, self.proxy_tls, self.proxy.host)
                if self.tls is not None:
                    await self._open_tunnel(connection)
            if self.tls is not None:
                await _start_tls(connection, self.server, self.tls, self.server_name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open_tunnel(self, connection: HttpConnection) -> None:
        failed = f"cannot connect to {self.server} through the proxy {self.proxy}"
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                connection.send(self.connect_request, tunnel=True)
                response = await connection.read_response()
        except TimeoutError as error:
            raise DialFailed(
                f"{failed}: the proxy did not respond within {HANDSHAKE_SECONDS:g} s"
            ) from error
        except (ConnectionLost, ResponseError) as error:
            raise DialFailed(f"{failed}: {error}") from error
        if not 200 <= response.status < 300:
            raise DialFailed(f"{failed}: the proxy responded with status {response.status}")
        if not connection.usable:
            raise DialFailed(f"{failed}: the proxy sent data before the TLS handshake")


async def _connect(connection: HttpConnection, to: HostPort) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.create_connection(
                lambda: connection,
                to.host,
                to.port,
                happy_eyeballs_delay=None if _is_ip(to.host) else NEXT_ADDRESS_SECONDS,
            )
        _enable_keepalive(connection.transport.get_extra_info("socket"))
    except TimeoutError as error:
        raise DialFailed(
            f"cannot connect to {to}: no TCP connection within {CONNECT_SECONDS:g} s"
        ) from error
    except OSError as error:
        raise DialFailed(f"cannot connect to {to}: {_reason(error)}") from error


def _is_ip(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _enable_keepalive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, TCP_KEEPALIVE_IDLE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, TCP_KEEPALIVE_INTERVAL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TCP_KEEPALIVE_PROBES)


async def _start_tls(
    connection: HttpConnection, peer: HostPort, context: ssl.SSLContext, name: str
) -> None:
    """Do the TLS handshake and switch the connection to TLS, as `loop.start_tls` does with its own protocol."""
    loop = asyncio.get_running_loop()
    below = connection.transport
    handshake = loop.create_future()
    tls = _TlsProtocol(
        loop,
        connection,
        context,
        handshake,
        server_hostname=name,
        ssl_handshake_timeout=HANDSHAKE_SECONDS,
    )
    below.set_protocol(tls)
    tls.connection_made(below)
    failed = f"cannot connect to {peer}"
    try:
        await handshake
    except ssl.SSLCertVerificationError as error:
        raise UntrustedServer(f"{failed}: {_reason(error)}") from error
    except ConnectionAbortedError as error:
        raise DialFailed(f"{failed}: no TLS handshake within {HANDSHAKE_SECONDS:g} s") from error
    except ConnectionResetError as error:
        raise DialFailed(f"{failed}: the connection was closed during the TLS handshake") from error
    except OSError as error:
        raise DialFailed(f"{failed}: {_reason(error)}") from error
    if connection.transport is below:
        raise DialFailed(f"{failed}: the connection was closed during the TLS handshake")


def _reason(error: OSError) -> str:
    """Return the reason without Python's prefix; for several addresses, each reason once."""
    if isinstance(error, (ssl.SSLError, socket.gaierror)):
        return " ".join((error.strerror or str(error)).split())
    if error.errno:
        return os.strerror(error.errno)
    several = dict.fromkeys(re.findall(r"\[Errno (\d+)\]", str(error)))
    return ", ".join(os.strerror(int(each)) for each in several) or " ".join(str(error).split())


def _host_port(url: SplitResult) -> HostPort:
    shown = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"  # without the password
    if url.scheme not in DEFAULT_PORTS:
        raise ConfigError(f"{shown}: the scheme is not supported; write http(s)://host:port")
    try:
        host, port = url.hostname or "", url.port or DEFAULT_PORTS[url.scheme]
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:
        raise ConfigError(
            f"{shown}: is not the URL of a server ({error}); write http(s)://host:port"
        ) from error
    if not _HOST.fullmatch(host):
        raise ConfigError(f"{shown}: has no valid host; write http(s)://host:port")
    return HostPort(host, port)


def _host_header(server: HostPort, scheme: str) -> str:
    if server.port != DEFAULT_PORTS.get(scheme):
        return str(server)
    return f"[{server.host}]" if ":" in server.host else server.host
