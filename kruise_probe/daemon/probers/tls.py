"""TLS for the connections of probes. Certificates are not verified, as in kubelet.

OpenSSL decodes every certificate that the server sends, also without verification. The public key of one certificate of
500 bytes can need 0.2 s (a prime field made for slow square roots), so a chain of 32 KiB needs 10 s; a finite-field group
of 8,192 bits needs 0.1 s. Python offers no setting that refuses them. So the answers of a server are processed in the
threads of `Resources.compute`, where OpenSSL does not hold the GIL.

Source: kubelet pkg/probe/http/http.go (InsecureSkipVerify).
Differs: a handshake has at most 32 KiB.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Final

from kruise_probe.api.meta import HostPort
from kruise_probe.daemon.probers.dialing import (
    READ_BYTES,
    Connection,
    Intake,
    ProbeConnectionFailed,
)
from kruise_probe.daemon.probers.prober import TLS_BYTES
from kruise_probe.wire.tls import TlsStream

MAX_HANDSHAKE_BYTES: Final = 32 * 1024
"""How much a server may send until its handshake has ended. Chains have 2 to 8 KiB."""


class TlsConnection(Connection):
    """TLS over a TCP connection. No server name is sent, because the destination is an IP."""

    def __init__(
        self,
        tcp: socket.socket,
        address: HostPort,
        deadline: float,
        intake: Intake,
        context: ssl.SSLContext,
    ) -> None:
        super().__init__(tcp, address, deadline, intake)
        self._tls = TlsStream(context, self._receive_tls, super().send)
        self._in_handshake = True
        self._handshake_bytes = 0
        self._in_thread = False

    @property
    def protocol(self) -> str | None:
        """The protocol that ALPN selected."""
        return self._tls.protocol

    async def connect(self) -> None:
        """Connect and do the TLS handshake. Raises: ProbeConnectionFailed, CouldNotProbe, BytesQueued."""
        self._intake.tls_bytes = TLS_BYTES
        self._intake.make_room()
        await super().connect()
        try:
            await self._tls.handshake(self._step)
        except ssl.SSLError as error:
            self._in_thread = False
            raise _tls_error(error) from error
        self._in_handshake = False

    async def _step(self, step: Callable[[], bool]) -> bool:
        if not self._handshake_bytes:
            return step()
        self._in_thread = True
        done = await self._intake.resources.compute(step, self._deadline)
        self._in_thread = False
        return done

    async def _receive_tls(self) -> bytes:
        data = await super().receive()
        if not self._in_handshake:
            return data
        if not data:
            raise ProbeConnectionFailed(
                "tls: the server closed the connection during the handshake"
            )
        self._handshake_bytes += len(data)
        if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
            raise ProbeConnectionFailed(
                f"tls: the server's handshake has more than {MAX_HANDSHAKE_BYTES} bytes; shorten its certificate chain"
            )
        return data

    async def send(self, data: bytes) -> None:
        try:
            await self._tls.write(data)
        except ssl.SSLError as error:
            raise _tls_error(error) from error

    async def receive(self) -> bytes:
        try:
            return await self._tls.read(READ_BYTES)
        except ssl.SSLError as error:
            raise _tls_error(error) from error

    def close(self) -> None:
        if not self._in_thread:  # A step in a thread outlives its attempt.
            with contextlib.suppress(OSError):
                _ = self._socket.send(self._tls.end())
        del self._tls  # It refers to this connection, and OpenSSL would keep its buffers until a garbage collection.
        super().close()


def _tls_error(error: ssl.SSLError) -> ProbeConnectionFailed:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return ProbeConnectionFailed(f"tls: {reason}")


@cache
def unverified_tls(*protocols: str) -> ssl.SSLContext:
    """A cached context: TLS 1.2 or newer, any certificate, any key that OpenSSL can read; ALPN offers `protocols`.

    As in Go, without renegotiation, and before TLS 1.3 without finite-field Diffie-Hellman.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:!kDHE:@SECLEVEL=0")
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(list(protocols))
    return context


def new_connection(
    tcp: socket.socket, address: HostPort, deadline: float, intake: Intake, *, alpn: str | None
) -> Connection:
    """A connection that is not yet connected; with `alpn`, it uses TLS and offers this protocol."""
    if alpn is None:
        return Connection(tcp, address, deadline, intake)
    return TlsConnection(tcp, address, deadline, intake, unverified_tls(alpn))
