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
        self._failed_at: dict[Address, float] = {}
        """Loop times of the last failures, of the addresses that the name has now."""
        if config.proxy:
            self._use_proxy(urlsplit(config.proxy))

    def _use_proxy(self, url: SplitResult) -> None:
        self._proxy = _host_port(url, "the proxy of proxy-url or $HTTPS_PROXY")
        if url.scheme == "https":
            self._proxy_tls = self.tls or ssl.create_default_context()
        if self.tls is None:
            self.target_prefix = f"http://{self.host_header}{self.target_prefix}"
        if url.username is not None:
            user = unquote(url.username)
            password = unquote(url.password or "")
            pair = f"{user}:{password}"
            encoded = base64.b64encode(pair.encode()).decode()
            self.proxy_authorization = f"Proxy-Authorization: Basic {encoded}\r\n"

    async def dial(self) -> HttpConnection:
        """Connect to the server. The caller must close the connection.

        Raises:
            TlsRefused: the certificate of the server or of this client is not trusted.
            ConnectionFailed: TCP, the proxy or TLS failed. The message contains the server or proxy, and the reason.
        """
        peer = self._proxy or self.server
        addresses = await _resolve(peer)
        for gone in self._failed_at.keys() - addresses:
            del self._failed_at[gone]
        if len(addresses) == 1:
            return await self._open(HttpConnection(), peer, addresses[0])
        return await self._race(peer, in_turns(addresses, self._failed_at))

    def avoid(self, connection: HttpConnection) -> None:
        """Try the address of this connection after all others of the name."""
        if connection.address is not None:
            self._failed_at[connection.address] = asyncio.get_running_loop().time()

    async def _race(self, peer: HostPort, addresses: Sequence[Address]) -> HttpConnection:
        """Connect to the first address that is served: each is tried a while after the one before it."""
        waiting = deque(addresses)
        attempts: dict[asyncio.Task[HttpConnection], HttpConnection] = {}
        failures: list[ConnectionFailed] = []
        try:
            while True:
                if waiting:
                    connection = HttpConnection()
                    opening = self._open(connection, peer, waiting.popleft())
                    attempts[asyncio.create_task(opening, name="dial address")] = connection
                for attempt in await _finished(attempts, may_wait=not waiting):
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
            if self._proxy is not None:
                if self._proxy_tls is not None:
                    await _start_tls(connection, self._proxy, self._proxy_tls, self._proxy.host)
                if self.tls is not None:
                    await self._open_tunnel(connection, self._proxy)
            if self.tls is not None:
                await _start_tls(connection, self.server, self.tls, self._server_name)
        except BaseException:
            connection.close()
            self._failed_at[address] = asyncio.get_running_loop().time()
            raise
        return connection

    async def _open_tunnel(self, connection: HttpConnection, proxy: HostPort) -> None:
        failed = f"cannot connect to {self.server} through the proxy {proxy}"
        request = f"CONNECT {self.server} HTTP/1.1\r\nHost: {self.server}\r\n{self.proxy_authorization}\r\n"
        async with _step(failed, "the proxy did not respond", HANDSHAKE_SECONDS):
            connection.send(request.encode(), tunnel=True)
            status = (await connection.read_header()).status
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
        raise TlsRefused(f"{failed}: {reason_of(error)}") from error
    except (OSError, ConnectionFailed) as error:
        reason = reason_of(error)
        code = getattr(error, "errno", None) or 0
        if code > 0:
            reason = os.strerror(code)  # asyncio's own text has the address
        raise ConnectionFailed(f"{failed}: {reason}") from error


async def _resolve(peer: HostPort) -> list[Address]:
    """The addresses of a name, or the IP address itself."""
    if ":" in peer.host or peer.host.replace(".", "").isdigit():
        return [(peer.host, peer.port)]
    async with _step(f"cannot connect to {peer}", "no response of DNS", CONNECT_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(
            peer.host, peer.port, type=socket.SOCK_STREAM
        )
    addresses: dict[Address, None] = {}
    for info in found:
        host, port = info[4][:2]
        addresses[str(host), int(port)] = None
    return list(addresses)


async def _finished(
    attempts: Mapping[asyncio.Task[HttpConnection], HttpConnection], *, may_wait: bool
) -> set[asyncio.Task[HttpConnection]]:
    """The attempts that have ended; none when the next address is to be tried."""
    delays: tuple[float | None, ...] = (NEXT_ADDRESS_SECONDS, NEXT_HANDSHAKE_SECONDS)
    if may_wait:
        delays = (None,)
    newest = list(attempts.values())[-1]
    for delay in delays:
        done, _ = await asyncio.wait(attempts, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
        if done or newest.address is None:
            return done
    return set()


def _merged(failures: Sequence[ConnectionFailed]) -> ConnectionFailed:
    """One failure of several addresses, with each reason once."""
    text = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    if any(isinstance(failure, TlsRefused) for failure in failures):
        return TlsRefused(text)
    return ConnectionFailed(text)


async def _connect(connection: HttpConnection, peer: HostPort, address: Address) -> None:
    host, port = address
    async with _step(f"cannot connect to {peer}", "no TCP connection", CONNECT_SECONDS):
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: connection, host, port
        )
        for option in _KEEPALIVE:
            transport.get_extra_info("socket").setsockopt(*option)
    connection.address = address


async def _start_tls(
    connection: HttpConnection, peer: HostPort, context: ssl.SSLContext, name: str
) -> None:
    """Do the TLS handshake and switch the connection to TLS."""
    failed = f"cannot connect to {peer}"
    transport = None
    async with _step(failed, "no TLS handshake", HANDSHAKE_SECONDS):
        if connection.transport is not None:
            with suppress(ConnectionResetError):
                transport = await asyncio.get_running_loop().start_tls(
                    connection.transport, connection, context, server_hostname=name
                )
    if transport is None or connection.transport is None:  # perhaps lost right after the handshake
        raise TlsRefused(f"{failed}: the connection was closed during the TLS handshake")
    connection.connection_made(transport)


def _host_port(url: SplitResult, what: str) -> HostPort:
    shown = f"{what}: {_USER.sub('//', url.geturl())!r}"
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
    if server.port != DEFAULT_PORTS.get(scheme):
        return str(server)
    if ":" in server.host:
        return f"[{server.host}]"
    return server.host
