"""Connects to the API server: TCP, an optional proxy, then TLS.

A name may have several addresses, and somebody may accept connections at one of them without ever serving one. So the
next address is tried after a while, as in Happy Eyeballs (RFC 8305), but until TLS is complete. An address that failed
is the last one to be tried next time.

Source: Go net.Dialer and net/http transport.go (connectMethod, dialConn), with client-go's timeouts.
Differs: a client has one server and at most one proxy.
"""

import asyncio
import base64
import math
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.meta import HostPort
from kruise_probe.api.times import loop_time
from kruise_probe.client.cluster_config import DEFAULT_PORTS, ClusterConfig
from kruise_probe.client.connection import Address, HttpConnection, TlsRefused, reason_of
from kruise_probe.client.credentials import ConfigError

CONNECT_SECONDS = 5.0
"""Timeout of the TCP connection, including DNS."""
HANDSHAKE_SECONDS = 10
"""Timeout of the proxy's response, and of each TLS handshake; as in Go."""
NEXT_ADDRESS_SECONDS: Final = 0.25
"""Delay of the next address while there is no TCP connection."""
NEXT_HANDSHAKE_SECONDS: Final = 2.0
"""Delay of the next address while the handshakes are not complete."""

_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""An unresponsive peer is detected after two minutes. Load balancers see traffic every 30 s."""

_Attempt = asyncio.Task[HttpConnection]

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
        what = f"the server of {config.source}"
        self.server = _host_port(url, what)
        is_https = url.scheme == "https"
        self.host_header = _host_header(self.server, url.scheme)
        self.target_prefix = quote(url.path, safe="/%:@!$&'()*+,;=~")
        tls = config.tls
        if tls is None and is_https:
            tls = ssl.create_default_context()
        self.tls = tls
        host = self.server.host.rstrip(".")
        self._server_name = config.server_name or host
        self.proxy_authorization = ""
        self._proxy: HostPort | None = None
        self._proxy_tls: ssl.SSLContext | None = None
        self._failed_at: dict[Address, float] = {}
        """Loop times of the last failures, of the addresses that the name has now."""
        if config.proxy:
            proxy = urlsplit(config.proxy)
            self._use_proxy(proxy)

    def _use_proxy(self, url: SplitResult) -> None:
        self._proxy = _host_port(url, "the proxy of proxy-url or $HTTPS_PROXY")
        tls = self.tls
        if url.scheme == "https":
            self._proxy_tls = tls or ssl.create_default_context()
        if tls is None:
            self.target_prefix = f"http://{self.host_header}{self.target_prefix}"
        if url.username is None:
            return
        user = unquote(url.username)
        password = unquote(url.password or "")
        pair = f"{user}:{password}".encode()
        encoded = base64.b64encode(pair)
        text = encoded.decode()
        self.proxy_authorization = f"Proxy-Authorization: Basic {text}\r\n"

    async def dial(self) -> HttpConnection:
        """Connect to the server. The caller must close the connection.

        Raises:
            TlsRefused: the certificate of the server or of this client is not trusted.
            ConnectionFailed: TCP, the proxy or TLS failed. The message contains the server or proxy, and the reason.
        """
        peer = self._proxy or self.server
        addresses = await _resolve(peer)
        forgotten = self._failed_at.keys() - addresses
        for gone in forgotten:
            del self._failed_at[gone]
        if len(addresses) == 1:
            connection = HttpConnection()
            return await self._open(connection, peer, addresses[0])
        in_order = in_turns(addresses, self._failed_at)
        return await self._race(peer, in_order)

    def avoid(self, connection: HttpConnection) -> None:
        """Try the address of this connection after all others of the name."""
        address = connection.address
        if address is not None:
            self._failed_at[address] = loop_time()

    async def _race(self, peer: HostPort, addresses: Sequence[Address]) -> HttpConnection:
        """Connect to the first address that is served: each is tried a while after the one before it."""
        waiting = deque(addresses)
        attempts: dict[_Attempt, HttpConnection] = {}
        failures: list[ConnectionFailed] = []
        try:
            while True:
                if waiting:
                    connection = HttpConnection()
                    address = waiting.popleft()
                    opening = self._open(connection, peer, address)
                    attempt = asyncio.create_task(opening, name="dial address")
                    attempts[attempt] = connection
                finished = await _finished(attempts, may_wait=not waiting)
                for attempt in finished:
                    del attempts[attempt]
                    failure = attempt.exception()
                    if failure is None:
                        for slower in attempts.values():
                            self.avoid(slower)
                        return attempt.result()
                    if not isinstance(failure, ConnectionFailed):
                        raise failure
                    failures.append(failure)
                if not attempts and not waiting:
                    raise _merged(failures)
        finally:
            for attempt, connection in attempts.items():
                attempt.cancel()
                connection.close()

    async def _open(
        self, connection: HttpConnection, peer: HostPort, address: Address
    ) -> HttpConnection:
        """Connect to one address, and do all handshakes. Close the connection if that fails."""
        try:
            await _connect(connection, peer, address)
            proxy = self._proxy
            if proxy is not None and self._proxy_tls is not None:
                await _start_tls(connection, proxy, self._proxy_tls, proxy.host)
            if proxy is not None and self.tls is not None:
                await self._open_tunnel(connection, proxy)
            if self.tls is not None:
                await _start_tls(connection, self.server, self.tls, self._server_name)
        except BaseException:
            connection.close()
            self._failed_at[address] = loop_time()
            raise
        return connection

    async def _open_tunnel(self, connection: HttpConnection, proxy: HostPort) -> None:
        server = self.server
        failed = f"cannot connect to {server} through the proxy {proxy}"
        request = f"CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n{self.proxy_authorization}\r\n"
        data = request.encode()
        async with _step(failed, "the proxy did not respond", HANDSHAKE_SECONDS):
            connection.send(data, tunnel=True)
            response = await connection.read_header()
        status = response.status
        if not 200 <= status < 300:
            raise ConnectionFailed(f"{failed}: the proxy responded with status {status}")
        if not connection.usable:
            raise ConnectionFailed(f"{failed}: the proxy sent data before the TLS handshake")


def in_turns(addresses: Sequence[Address], failed_at: Mapping[Address, float]) -> list[Address]:
    """The order in which addresses are tried: that of DNS, but the last one to fail is the last."""
    return sorted(addresses, key=lambda address: failed_at.get(address, -math.inf))


@asynccontextmanager
async def _step(failed: str, late: str, seconds: float) -> AsyncIterator[None]:
    """A step of dialing, with its deadline. `failed` and `late` are texts for errors.

    Raises:
        TlsRefused, ConnectionFailed: the step failed, or was late.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ConnectionFailed(f"{failed}: {late} within {seconds:g} s") from error
    except ssl.SSLError as error:
        reason = reason_of(error)
        raise TlsRefused(f"{failed}: {reason}") from error
    except (OSError, ConnectionFailed) as error:
        reason = reason_of(error)
        code = getattr(error, "errno", None)
        if code and code > 0:
            reason = os.strerror(code)  # asyncio's own text has the address
        raise ConnectionFailed(f"{failed}: {reason}") from error


async def _resolve(peer: HostPort) -> list[Address]:
    """The addresses of a name, or the IP address itself."""
    host, port = peer
    without_dots = host.replace(".", "")
    if ":" in host or without_dots.isdigit():
        return [(host, port)]
    loop = asyncio.get_running_loop()
    failed = f"cannot connect to {peer}"
    async with _step(failed, "no response of DNS", CONNECT_SECONDS):
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses: dict[Address, None] = {}
    for info in found:
        address = info[4]
        key = (str(address[0]), int(address[1]))
        addresses[key] = None
    return list(addresses)


async def _finished(
    attempts: Mapping[_Attempt, HttpConnection], *, may_wait: bool
) -> set[_Attempt]:
    """The attempts that have ended; none when the next address is to be tried."""
    delays: tuple[float | None, ...] = (NEXT_ADDRESS_SECONDS, NEXT_HANDSHAKE_SECONDS)
    if may_wait:
        delays = (None,)
    connections = list(attempts.values())
    newest = connections[-1]
    for delay in delays:
        done, _ = await asyncio.wait(attempts, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
        if done or newest.address is None:
            return done
    return set()


def _merged(failures: Sequence[ConnectionFailed]) -> ConnectionFailed:
    """One failure of several addresses, with each reason once."""
    texts: dict[str, None] = {}
    refused_tls = False
    for failure in failures:
        texts[str(failure)] = None
        if isinstance(failure, TlsRefused):
            refused_tls = True
    text = "; ".join(texts)
    if refused_tls:
        return TlsRefused(text)
    return ConnectionFailed(text)


async def _connect(connection: HttpConnection, peer: HostPort, address: Address) -> None:
    host, port = address
    loop = asyncio.get_running_loop()
    failed = f"cannot connect to {peer}"
    async with _step(failed, "no TCP connection", CONNECT_SECONDS):
        transport, _ = await loop.create_connection(lambda: connection, host, port)
        tcp = transport.get_extra_info("socket")
        for option in _KEEPALIVE:
            tcp.setsockopt(*option)
    connection.address = address


async def _start_tls(
    connection: HttpConnection, peer: HostPort, context: ssl.SSLContext, name: str
) -> None:
    """Do the TLS handshake and switch the connection to TLS."""
    failed = f"cannot connect to {peer}"
    loop = asyncio.get_running_loop()
    transport = None
    async with _step(failed, "no TLS handshake", HANDSHAKE_SECONDS):
        if connection.transport is not None:
            with suppress(ConnectionResetError):
                transport = await loop.start_tls(
                    connection.transport, connection, context, server_hostname=name
                )
    if transport is None or connection.transport is None:  # perhaps lost right after the handshake
        raise TlsRefused(f"{failed}: the connection was closed during the TLS handshake")
    connection.connection_made(transport)


def _host_port(url: SplitResult, what: str) -> HostPort:
    address = _USER.sub("//", url.geturl())
    shown = f"{what}: {address!r}"
    try:
        if url.scheme not in DEFAULT_PORTS:
            raise ValueError("its scheme is neither http nor https")
        host = url.hostname or ""
        port = url.port or DEFAULT_PORTS[url.scheme]
        if not _HOST.fullmatch(host):
            raise ValueError("it has no valid host")
    except ValueError as error:
        raise ConfigError(f"{shown} is not a URL ({error}); write http(s)://host:port") from error
    return HostPort(host, port)


def _host_header(server: HostPort, scheme: str) -> str:
    host, port = server
    if port != DEFAULT_PORTS.get(scheme):
        return str(server)
    if ":" in host:
        return f"[{host}]"
    return host
