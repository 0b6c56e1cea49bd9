"""TLS over any stream of bytes, in memory buffers (`ssl.MemoryBIO`).

With a socket of its own, one call of OpenSSL continues as long as a peer sends session tickets or key updates. Here OpenSSL
gets only bytes that were read within the limits of the caller.
"""

import contextlib
import os
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Final

Receive = Callable[[], Awaitable[bytes]]
"""Returns the next bytes of the peer; empty at their end."""
Send = Callable[[bytes], Awaitable[None]]
RunStep = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Runs a step of the handshake, which needs much CPU, and returns whether the handshake has ended."""


class TlsStream:
    """One side of a TLS connection. Its methods raise SSLError, and what `receive` and `send` raise."""

    def __init__(
        self, context: ssl.SSLContext, receive: Receive, send: Send, *, server_side: bool = False
    ) -> None:
        self._receive: Final = receive
        self._send: Final = send
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    @property
    def protocol(self) -> str | None:
        """The protocol that ALPN selected."""
        return self._tls.selected_alpn_protocol()

    async def handshake(self, run: RunStep) -> None:
        """Do the handshake."""
        while not await run(self._continue_handshake):
            await self._flush()
            self.feed(await self._receive())
        await self._flush()

    def _continue_handshake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty: the end of the peer's."""
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def read(self, max_bytes: int) -> bytes:
        """The next bytes; empty after the peer has closed its side, also without an alert."""
        while True:
            data = None
            try:
                data = self._tls.read(max_bytes)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLWantReadError:
                pass
            await self._flush()
            if data is not None:
                return data
            self.feed(await self._receive())

    async def write(self, data: bytes | memoryview) -> None:
        """Encrypt and send `data`, whole."""
        self._tls.write(data)
        await self._flush()

    def end(self) -> bytes:
        """Close this side. Return the last bytes to send."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._send(self._outgoing.read())


def load_certificate(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key; later handshakes use them.

    OpenSSL reads only files, and a container's root file system may be read-only. This file has no name, so that a
    signal leaves no key behind.

    Raises:
        ssl.SSLError: certificate and key do not match, or are malformed.
    """
    on_linux = sys.platform == "linux"
    with open(os.memfd_create("pem"), "wb") if on_linux else tempfile.TemporaryFile() as file:
        file.write(pem)
        file.flush()
        path = f"/dev/fd/{file.fileno()}"
        context.load_cert_chain(path)
