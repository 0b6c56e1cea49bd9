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
from typing import Any, Final

from kruise_probe.api.meta import HostPort
from kruise_probe.daemon.probers.dialing import (
    READ_BYTES,
    Connection,
    Intake,
    ProbeConnectionFailed,
)
from kruise_probe.daemon.probers.prober import TLS_BYTES

MAX_HANDSHAKE_BYTES: Final = 32 * 1024
"""How much a server may send until its handshake has ended. Chains have 2 to 8 KiB."""


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
        intake: Intake,
        context: ssl.SSLContext,
    ) -> None:
        super().__init__(tcp, address, deadline, intake)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._in_use = False

    async def connect(self) -> None:
        """Connect and do the TLS handshake. Raises: ProbeConnectionFailed, CouldNotProbe, BytesQueued."""
        self._intake.tls_bytes = TLS_BYTES
        self._intake.make_room()
        await super().connect()
        before = self._intake.received
        done = self._handshake()
        while not done:
            await super().send(self._outgoing.read())
            self._incoming.write(await self._handshake_data(before))
            self._in_use = True
            done = await self._intake.resources.compute(self._handshake, self._deadline)
        await super().send(self._outgoing.read())

    async def _handshake_data(self, before: int) -> bytes:
        data = await super().receive()
        if not data:
            raise ProbeConnectionFailed(
                "tls: the server closed the connection during the handshake"
            )
        if self._intake.received - before > MAX_HANDSHAKE_BYTES:
            raise ProbeConnectionFailed(
                f"tls: the server's handshake has more than {MAX_HANDSHAKE_BYTES} bytes; shorten its certificate chain"
            )
        return data

    def _handshake(self) -> bool:
        """Continue with what has arrived. Return whether the handshake has ended."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise _tls_error(error) from error
        finally:
            self._in_use = False
        return True

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
        if not self._in_use:  # A step in a thread outlives its attempt.
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
                raise _tls_error(error) from error
            else:
                await super().send(self._outgoing.read())
                return done
            if data := await super().receive():
                _ = self._incoming.write(data)
            else:
                self._incoming.write_eof()


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
