"""TLS connections of probes. Certificates are not verified, as in kubelet.

Source: kubelet pkg/probe/http/http.go (InsecureSkipVerify).
"""

import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any

from kruise_probe.api.keys import HostPort
from kruise_probe.daemon.probers.dialing import (
    MAX_ATTEMPT_BYTES,
    READ_BYTES,
    Connection,
    ProbeConnectionFailed,
)


class TlsConnection(Connection):
    """TLS over a TCP connection. OpenSSL gets only bytes that were read within the limit.

    With its own socket, one call of OpenSSL would continue as long as a peer sends session tickets or key updates.
    No server name is sent, because the destination is an IP.
    """

    def __init__(
        self,
        tcp: socket.socket,
        address: HostPort,
        deadline: float,
        context: ssl.SSLContext,
        max_bytes: int,
    ) -> None:
        super().__init__(tcp, address, deadline, max_bytes)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)

    async def connect(self) -> None:
        """Connect and do the TLS handshake. Raises: ProbeConnectionFailed, CouldNotProbe."""
        await super().connect()
        if await self._until_done(self._tls.do_handshake) == b"":
            raise ProbeConnectionFailed(
                "tls: the server closed the connection during the handshake"
            )

    @property
    def protocol(self) -> str | None:
        """The protocol that ALPN selected."""
        return self._tls.selected_alpn_protocol()

    async def send(self, data: bytes) -> None:
        _ = await self._until_done(self._tls.write, data)

    async def receive(self) -> bytes:
        received: bytes = await self._until_done(self._tls.read, READ_BYTES)
        return received

    def close(self) -> None:
        with contextlib.suppress(OSError):  # an SSLError is one too
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            _ = self._socket.send(self._outgoing.read())
        super().close()

    async def _until_done(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Repeat `step` until it needs no more input; send its output. Empty bytes: the server closed the connection."""
        while True:
            try:
                done = step(*arguments)
            except ssl.SSLWantReadError:
                await super().send(self._outgoing.read())
            except ssl.SSLEOFError:
                return b""
            except ssl.SSLError as error:
                reason = (error.reason or str(error)).replace("_", " ").lower()
                raise ProbeConnectionFailed(f"tls: {reason}") from error
            else:
                await super().send(self._outgoing.read())
                return done
            if data := await super().receive():
                _ = self._incoming.write(data)
            else:
                self._incoming.write_eof()


def new_connection(
    tcp: socket.socket,
    address: HostPort,
    deadline: float,
    *,
    alpn: str | None,
    max_bytes: int = MAX_ATTEMPT_BYTES,
) -> Connection:
    """A connection that is not yet connected; with `alpn`, it uses TLS and offers this protocol."""
    if alpn is None:
        return Connection(tcp, address, deadline, max_bytes)
    return TlsConnection(tcp, address, deadline, unverified_tls(alpn), max_bytes)


@cache
def unverified_tls(*protocols: str) -> ssl.SSLContext:
    """A cached context: TLS 1.2 or newer, any certificate, any key that OpenSSL can read; ALPN offers `protocols`.

    As in Go, without renegotiation and finite-field Diffie-Hellman. A server could choose a group so large that one
    handshake takes a second.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:!kDHE:@SECLEVEL=0")
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(list(protocols))
    return context
