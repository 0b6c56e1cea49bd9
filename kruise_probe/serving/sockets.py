"""Sockets of our servers: addresses to listen on in Go's notation, and the byte stream of an accepted connection.

TLS uses memory buffers (`ssl.MemoryBIO`). A connection without a ClientHello has no TLS state, and one with it has
only OpenSSL's buffers; asyncio's own streams hold more than 256 KiB for each TLS connection. Each read takes at most
one chunk and yields to the event loop first, so a client that always has bytes ready does not block others.

Source: controller-runtime's `:8080`, `127.0.0.1:0` and `0` for off.
Differs: the error for a port in use is one line and names the flag to change.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
from typing import Final

from kruise_probe.api.errors import FatalError
from kruise_probe.api.host_port import HostPort

PORTION_BYTES: Final = 16 * 1024
"""Maximum size of one read or write."""
BACKLOG: Final = 512

_REASONS: Final = {
    errno.EADDRINUSE: "the port is already in use",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this user may not listen on this port",
}


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
        bracketed = host.startswith("[") and host.endswith("]")
        is_port = port.isascii() and port.isdigit() and int(port) <= 65535
        if not separator or not is_port or (":" in host and not bracketed):
            raise ValueError(
                f"{text!r} is not an address to listen on; write :8080, 127.0.0.1:8080, [::1]:8080, or 0 for none"
            )
        return cls(host[1:-1] if bracketed else host, int(port))


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
        return socket.create_server(target[:2], family=family, backlog=BACKLOG)
    except UnicodeError as error:  # the host cannot be encoded as a domain name
        reason = "the host is not a valid name"
        raise BindError(f"{flag}={address}: {reason}; set another address with {flag}") from error
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        advice = f"set another address with {flag}"
        if error.errno == errno.EADDRINUSE and address.port == 10221:
            advice = f"stop OpenKruise's daemon, which uses this port too, or set another port with {flag}"
        raise BindError(f"{flag}={address}: {reason}; {advice}") from error


class ConnectionStream:
    """Owns `connection`, a non-blocking socket. The caller sets timeouts."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()

    async def start_tls(self, context: ssl.SSLContext, turn: asyncio.Lock) -> None:
        """Do the TLS handshake. Its cryptography holds `turn`, so one loop step runs at most one handshake.

        Raises:
            OSError: the client does not speak TLS, or shares no TLS version with us.
        """
        await self._feed()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        done = False
        while not done:
            async with turn:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._tls.do_handshake()
                    done = True
                await asyncio.sleep(0)
            await self._flush()
            if not done:
                await self._feed()

    async def receive(self) -> bytes:
        """Return the next chunk; empty after the client has closed its side."""
        if self._tls is None:
            return await self._read()
        while True:
            data = None
            try:
                data = self._tls.read(PORTION_BYTES)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLWantReadError:
                pass
            await self._flush()
            if data is not None:
                return data
            await self._feed()

    async def send(self, data: bytes) -> None:
        """Send `data`; at most one chunk at a time is buffered in this process."""
        view = memoryview(data)
        for start in range(0, len(data), PORTION_BYTES):
            chunk = view[start : start + PORTION_BYTES]
            if self._tls is None:
                await self._loop.sock_sendall(self._socket, chunk)
            else:
                self._tls.write(chunk)
                await self._flush()
            await asyncio.sleep(0)

    def end_sending(self) -> None:
        """Shut down the sending side; the client may still send."""
        with contextlib.suppress(OSError):
            if self._tls is not None:
                with contextlib.suppress(ssl.SSLError):
                    self._tls.unwrap()
                self._socket.send(self._outgoing.read())
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    async def _feed(self) -> None:
        data = await self._read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._loop.sock_sendall(self._socket, self._outgoing.read())

    async def _read(self) -> bytes:
        await asyncio.sleep(0)
        return await self._loop.sock_recv(self._socket, PORTION_BYTES)
