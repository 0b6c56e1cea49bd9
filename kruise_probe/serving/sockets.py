"""Sockets of our servers: addresses to listen on in Go's notation, and the byte stream of an accepted connection.

A connection without a ClientHello has no TLS state, and one with it has only OpenSSL's buffers; asyncio's own streams hold
more than 256 KiB for each TLS connection. Each read takes at most one chunk and yields to the event loop
first, so a client that always has bytes ready does not block others.

Source: controller-runtime's `:8080`, `127.0.0.1:0` and `0` for off.
Differs: the error for a port in use is one line and names the flag to change.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final

from kruise_probe.api.errors import FatalError
from kruise_probe.api.meta import HostPort
from kruise_probe.wire.tls import TlsStream

PORTION_BYTES: Final = 16 * 1024
"""Maximum size of one read or write."""
BACKLOG: Final = 512


class BindError(FatalError):
    """Cannot listen on the address. The message is one line with the flag, the address, the reason and a remedy."""


class BindAddress(HostPort):
    """Host and port to listen on; an empty `host` means every interface."""

    @classmethod
    def parse(cls, text: str) -> "BindAddress | None":
        """Parse `:8080`, `127.0.0.1:0` or `[::1]:80`; None if `text` turns the server off.

        Raises:
            ValueError: `text` is not a valid address; the message names the notation.
        """
        if text in ("", "0"):
            return None
        host, separator, port = text.rpartition(":")
        is_port = port.isascii() and port.isdigit() and int(port) <= 65535
        is_valid = bool(separator) and is_port
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            is_valid = False
        if not is_valid:
            raise ValueError(
                f"{text!r} is not an address to listen on; write :8080, 127.0.0.1:8080, [::1]:8080, or 0 for none"
            )
        return cls(host, int(port))


def listen(address: BindAddress, *, flag: str) -> socket.socket:
    """Open a listening socket; an empty host means all interfaces, IPv4 and IPv6.

    Raises:
        BindError: the address is in use, not local, not permitted, or its host is not a valid name.
    """
    try:
        if not address.host and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", address.port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        family, *_, target = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(
            target[:2],
            family=family,
            backlog=BACKLOG,
        )
    except UnicodeError as error:  # the host cannot be encoded as a domain name
        reason = "the host is not a valid name"
        raise BindError(f"{flag}={address}: {reason}; set another address with {flag}") from error
    except OSError as error:
        reason, *_ = str(error.strerror).partition(" (while attempting to bind")
        advice = f"set another address with {flag}"
        if error.errno == errno.EADDRINUSE and address.port == 10221:
            advice = f"stop OpenKruise's daemon, which uses this port too, or set another port with {flag}"
        raise BindError(f"{flag}={address}: {reason}; {advice}") from error


class ConnectionStream:
    """Owns `connection`, a non-blocking socket. The caller sets timeouts."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._tls: TlsStream | None = None

    async def start_tls(
        self,
        context: ssl.SSLContext,
        turn: asyncio.Lock,
    ) -> None:
        """Do the TLS handshake. Its cryptography holds `turn`, so one loop step runs at most one handshake.

        Raises:
            OSError: the client does not speak TLS, or shares no TLS version with us.
        """

        async def run(step: Callable[[], bool]) -> bool:
            async with turn:
                done = step()
                await asyncio.sleep(0)
                return done

        first = await self._read()
        self._tls = TlsStream(context, self._read, self._send, server_side=True)
        self._tls.feed(first)
        await self._tls.handshake(run)

    async def receive(self) -> bytes:
        """Return the next chunk; empty after the client has closed its side."""
        if self._tls is None:
            return await self._read()
        return await self._tls.read(PORTION_BYTES)

    async def send(self, data: bytes) -> None:
        """Send `data`; at most one chunk at a time is buffered in this process."""
        write = self._send if self._tls is None else self._tls.write
        view = memoryview(data)
        for start in range(0, len(data), PORTION_BYTES):
            await write(view[start : start + PORTION_BYTES])
            await asyncio.sleep(0)

    def end_sending(self) -> None:
        """Shut down the sending side; the client may still send."""
        with contextlib.suppress(OSError):
            if self._tls is not None:
                self._socket.send(self._tls.end())
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()
        self._tls = None  # it refers to this stream

    async def _send(self, data: bytes | memoryview) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def _read(self) -> bytes:
        await asyncio.sleep(0)
        return await self._loop.sock_recv(self._socket, PORTION_BYTES)
