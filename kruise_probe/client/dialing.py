"""Dialing: TCP, an optional proxy, then TLS.

Source: Go net.Dialer and net/http transport.go (dialConn), with client-go's timeouts.
Differs: asyncio's Happy Eyeballs (RFC 8305) chooses between the addresses of one name.
"""

import asyncio
import asyncio.sslproto
import os
import re
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from kruise_probe.client.answers import BadResponse
from kruise_probe.client.http1 import Broken, HttpConnection
from kruise_probe.client.route import Endpoint, Route

CONNECT_SECONDS = 5.0
"""Timeout of the TCP connection, including DNS."""
SECURE_SECONDS = 10.0
"""Timeout of each later step, the proxy's response and TLS; as in Go."""
NEXT_ADDRESS_SECONDS: Final = 0.25

TCP_KEEPALIVE_IDLE_SECONDS = 30
TCP_KEEPALIVE_INTERVAL_SECONDS = 30
TCP_KEEPALIVE_PROBES = 3
"""With the two values above, an unresponsive peer is detected after two minutes.

Load balancers see traffic every 30 s.
"""

TLS_BUFFER_BYTES = 32 * 1024
"""Per connection. asyncio's default of 256 KiB uses 13 MB with fifty connections, and its allocation for each read
takes time. A TLS record has at most 16 KiB."""

asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


class DialFailed(Exception):
    """The connection could not be made; the message says where to, and why."""


class Untrusted(DialFailed):
    """The server's certificate is not trusted; no request was sent."""


async def dial(route: Route, on_lost: Callable[[HttpConnection], None]) -> HttpConnection:
    """Connect to the server. The caller must close the connection.

    Raises:
        DialFailed: TCP, the proxy or TLS failed.
    """
    connection = HttpConnection(on_lost)
    try:
        await _connect(connection, route.first)
        if route.proxy is not None:
            if route.proxy_tls is not None:
                await _secure(connection, route.proxy, route.proxy_tls, route.proxy.host)
            if route.tls is not None:
                await _tunnel(connection, route)
        if route.tls is not None:
            await _secure(connection, route.server, route.tls, route.server_name)
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect(connection: HttpConnection, to: Endpoint) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.create_connection(
                lambda: connection,
                to.host,
                to.port,
                happy_eyeballs_delay=None if _is_address(to.host) else NEXT_ADDRESS_SECONDS,
            )
        _enable_keepalive(connection.transport.get_extra_info("socket"))
    except TimeoutError as error:
        raise DialFailed(
            f"cannot connect to {to}: no answer within {CONNECT_SECONDS:g} s"
        ) from error
    except OSError as error:
        raise DialFailed(f"cannot connect to {to}: {_reason(error)}") from error


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _enable_keepalive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, TCP_KEEPALIVE_IDLE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, TCP_KEEPALIVE_INTERVAL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TCP_KEEPALIVE_PROBES)


async def _tunnel(connection: HttpConnection, route: Route) -> None:
    failed = f"cannot connect to {route.server} through the proxy {route.proxy}"
    try:
        async with asyncio.timeout(SECURE_SECONDS):
            connection.send(route.connect_request, tunnel=True)
            answer = await connection.whole()
    except TimeoutError as error:
        raise DialFailed(f"{failed}: no answer within {SECURE_SECONDS:g} s") from error
    except (Broken, BadResponse) as error:
        raise DialFailed(f"{failed}: {error}") from error
    if not 200 <= answer.status < 300:
        raise DialFailed(f"{failed}: it answers {answer.status}")
    if not connection.usable:
        raise DialFailed(f"{failed}: it speaks before it is asked")


async def _secure(
    connection: HttpConnection, peer: Endpoint, context: ssl.SSLContext, name: str
) -> None:
    failed = f"cannot connect to {peer}"
    try:
        tls_transport = await asyncio.get_running_loop().start_tls(
            connection.transport,
            connection,
            context,
            server_hostname=name,
            ssl_handshake_timeout=SECURE_SECONDS,
        )
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(f"{failed}: {_reason(error)}") from error
    except ConnectionAbortedError as error:
        raise DialFailed(f"{failed}: no TLS within {SECURE_SECONDS:g} s") from error
    except ConnectionResetError as error:
        raise DialFailed(f"{failed}: the connection was closed during the TLS handshake") from error
    except OSError as error:
        raise DialFailed(f"{failed}: {_reason(error)}") from error
    if tls_transport is None:  # asyncio returns None if the connection was lost in the last step
        raise DialFailed(f"{failed}: the connection was closed during the TLS handshake")
    connection.secured(tls_transport)


def _reason(error: OSError) -> str:
    """Return the reason without Python's prefix; for several addresses, each reason once."""
    if isinstance(error, (ssl.SSLError, socket.gaierror)):
        return " ".join((error.strerror or str(error)).split())
    if error.errno:
        return os.strerror(error.errno)
    several = dict.fromkeys(re.findall(r"\[Errno (\d+)\]", str(error)))
    return ", ".join(os.strerror(int(each)) for each in several) or " ".join(str(error).split())
