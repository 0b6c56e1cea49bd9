"""TLS connections of probes. Certificates are not verified, as in kubelet.

Source: kubelet pkg/probe/http/http.go (InsecureSkipVerify); Go crypto/tls for the error texts.
"""

import contextlib
import re
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kruise_probe.api.host_port import HostPort
from kruise_probe.daemon.probers.dialing import (
    BrokenConnection,
    Connection,
    OpenSocket,
    ProbeDialFailed,
)
from kruise_probe.daemon.probers.read_budget import READ_BYTES, ReadBudget

_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason for a response that is not TLS."""
_HTTP = re.compile(rb"HTTP/1\.[01] [1-5]\d\d")

_ALERTS: Final = {
    "bad record mac": "bad record MAC",
    "certificate revoked": "revoked certificate",
    "certificate expired": "expired certificate",
    "certificate unknown": "unknown certificate",
    "unknown ca": "unknown certificate authority",
    "decode error": "error decoding message",
    "decrypt error": "error decrypting message",
    "protocol version": "protocol version not supported",
    "insufficient security": "insufficient security level",
    "user cancelled": "user canceled",
}
"""OpenSSL's name of an alert to Go's name, where they differ."""

_ALERT = re.compile(r".* alert (.+)|tlsv1 (unrecognized name|unsupported extension)")


class TlsConnection(Connection):
    """TLS over a TCP connection. OpenSSL gets only bytes that were read within the budget.

    With its own socket, one call of OpenSSL would continue as long as a peer sends session tickets or key updates.
    """

    __slots__ = ("_first_bytes", "_incoming", "_outgoing", "_tls")

    def __init__(
        self, tcp: socket.socket, address: HostPort, budget: ReadBudget, context: ssl.SSLContext
    ) -> None:
        super().__init__(tcp, address, budget)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        self._first_bytes = b""

    async def connect(self) -> None:
        """Connect and do the TLS handshake. Raises: ProbeDialFailed."""
        await super().connect()
        try:
            await self._until_done(self._tls.do_handshake)
        except ssl.SSLError as error:
            if error.reason == _NO_TLS and _HTTP.match(self._first_bytes):
                raise ProbeDialFailed("http: server gave HTTP response to HTTPS client") from error
            raise ProbeDialFailed(_error_text(error)) from error
        except BrokenConnection as broken:
            raise ProbeDialFailed(str(broken)) from broken

    @property
    def protocol(self) -> str | None:
        """The protocol that ALPN selected."""
        return self._tls.selected_alpn_protocol()

    async def send(self, data: bytes) -> None:
        try:
            _ = await self._until_done(self._tls.write, data)
        except ssl.SSLError as error:
            raise BrokenConnection(_error_text(error)) from error
        except BrokenConnection as broken:
            raise self._last_alert() or broken from broken

    def _last_alert(self) -> BrokenConnection | None:
        """The alert that the server sent before it closed the connection, e.g. that it requires a certificate."""
        try:
            self._incoming.write(self.receive_nowait() or b"")
            _ = self._tls.read(1)
        except ssl.SSLError as error:
            if _ALERT.fullmatch(_reason(error)):
                return BrokenConnection(_error_text(error))
        except BrokenConnection:
            pass
        return None

    async def receive(self) -> bytes:
        try:
            received: bytes = await self._until_done(self._tls.read, READ_BYTES)
        except ssl.SSLEOFError:
            return b""
        except ssl.SSLError as error:
            raise BrokenConnection(_error_text(error)) from error
        return received

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._tls.unwrap()
        with contextlib.suppress(BrokenConnection):
            _ = self.send_nowait(self._outgoing.read())
        super().close()

    async def _until_done(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Repeat `step` until it needs no more input; send its output."""
        while True:
            try:
                done = step(*arguments)
            except ssl.SSLWantReadError:
                await self._write(self._outgoing.read())
            else:
                await self._write(self._outgoing.read())
                return done
            data = await super().receive()
            self._first_bytes = self._first_bytes or data
            if data:
                _ = self._incoming.write(data)
            else:
                self._incoming.write_eof()


async def dial_tls(
    address: HostPort, budget: ReadBudget, context: ssl.SSLContext, open_socket: OpenSocket
) -> TlsConnection:
    """Connect and do the TLS handshake. No server name is sent, because the destination is an IP.

    Raises:
        ProbeDialFailed: the connection or the handshake failed.
    """
    tls = TlsConnection(open_socket(address), address, budget, context)
    try:
        await tls.connect()
    except BaseException:
        tls.close()
        raise
    return tls


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


def _error_text(error: ssl.SSLError) -> str:
    if error.reason == _NO_TLS:
        return "tls: first record does not look like a TLS handshake"
    if isinstance(error, ssl.SSLEOFError):
        return "EOF"
    reason = _reason(error)
    if alert := _ALERT.fullmatch(reason):
        alert_name: str = alert[1] or alert[2]
        return f"remote error: tls: {_ALERTS.get(alert_name, alert_name)}"
    return f"tls: {reason}"


def _reason(error: ssl.SSLError) -> str:
    # Python has no name for newer alerts: "[SSL] tlsv1 alert no application protocol (_ssl.c:1006)".
    return (error.reason or str(error).partition(" (_ssl.c")[0]).replace("_", " ").lower()
