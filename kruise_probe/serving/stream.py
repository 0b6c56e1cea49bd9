"""Byte stream of one accepted connection, plain or TLS.

TLS uses memory buffers (`ssl.MemoryBIO`). A connection without a ClientHello has no TLS state, and one with it has
only OpenSSL's buffers; asyncio's own streams hold more than 256 KiB for each TLS connection. Each read takes at most
one chunk and yields to the event loop first, so a client that always has bytes ready does not block others.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Final

PORTION_BYTES: Final = 16 * 1024
"""Maximum size of one read or write."""


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
