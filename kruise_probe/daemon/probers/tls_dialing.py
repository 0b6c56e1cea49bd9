"""TLS connections of probes: any certificate is good enough, as the server is known by its address.

Source: kubelet pkg/probe/http/http.go (InsecureSkipVerify); Go crypto/tls for the words of errors.
"""

import contextlib
import re
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kruise_probe.daemon.probers.dialing import (
    Address,
    BrokenConnection,
    Connection,
    ProbeDialFailed,
    new_socket,
)
from kruise_probe.daemon.probers.read_budget import READ_BYTES, ReadBudget

_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""What OpenSSL calls an answer that is no TLS at all."""
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
"""What OpenSSL calls an alert of the server, where Go calls it otherwise."""

_ALERT = re.compile(r".* alert (.+)|tlsv1 (unrecognized name|unsupported extension)")


class TlsConnection(Connection):
    """TLS over a TCP connection. OpenSSL sees only bytes that were read within the budget.

    With a socket of its own, OpenSSL would go on inside one call as long as a peer sends session tickets or key updates.
    """

    __slots__ = ("_arrived", "_first_bytes", "_leaving", "_tls")

    def __init__(self, address: Address, budget: ReadBudget, context: ssl.SSLContext) -> None:
        super().__init__(new_socket(address), address, budget)
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving)
        self._first_bytes = b""

    async def connect(self) -> None:
        """Connects and shakes hands. Raises: ProbeDialFailed."""
        await super().connect()
        try:
            await self._until_done(self._tls.do_handshake)
        except ssl.SSLError as error:
            if error.reason == _NO_TLS and _HTTP.match(self._first_bytes):
                raise ProbeDialFailed("http: server gave HTTP response to HTTPS client") from error
            raise ProbeDialFailed(_tls_words(error)) from error
        except BrokenConnection as broken:
            raise ProbeDialFailed(str(broken)) from broken

    @property
    def protocol(self) -> str | None:
        """What ALPN agreed on."""
        return self._tls.selected_alpn_protocol()

    async def send(self, data: bytes) -> None:
        try:
            _ = await self._until_done(self._tls.write, data)
        except ssl.SSLError as error:
            raise BrokenConnection(_tls_words(error)) from error
        except BrokenConnection as broken:
            raise self._last_alert() or broken from broken

    def _last_alert(self) -> BrokenConnection | None:
        """What the server sent before it closed the connection, if it did: that it wants a certificate, for one."""
        try:
            self._arrived.write(self.take() or b"")
            _ = self._tls.read(1)
        except ssl.SSLError as error:
            if _ALERT.fullmatch(_reason(error)):
                return BrokenConnection(_tls_words(error))
        except BrokenConnection:
            pass
        return None

    async def receive(self) -> bytes:
        try:
            received: bytes = await self._until_done(self._tls.read, READ_BYTES)
        except ssl.SSLEOFError:
            return b""
        except ssl.SSLError as error:
            raise BrokenConnection(_tls_words(error)) from error
        return received

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._tls.unwrap()
        with contextlib.suppress(BrokenConnection):
            _ = self.offer(self._leaving.read())
        super().close()

    async def _until_done(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Repeats `step` until it needs no more bytes; sends what it leaves."""
        while True:
            try:
                done = step(*arguments)
            except ssl.SSLWantReadError:
                await self._write(self._leaving.read())
            else:
                await self._write(self._leaving.read())
                return done
            data = await super().receive()
            self._first_bytes = self._first_bytes or data
            if data:
                _ = self._arrived.write(data)
            else:
                self._arrived.write_eof()


async def dial_tls(address: Address, budget: ReadBudget, context: ssl.SSLContext) -> TlsConnection:
    """Connects and shakes hands; no server name is sent, as the server is known by its address.

    Raises:
        ProbeDialFailed: no connection, or no TLS.
    """
    tls = TlsConnection(address, budget, context)
    try:
        await tls.connect()
    except BaseException:
        tls.close()
        raise
    return tls


@cache
def unverified_tls(*protocols: str) -> ssl.SSLContext:
    """Made once: TLS 1.2 or newer, any certificate, any key that OpenSSL can read; ALPN offers `protocols`.

    As in Go, no finite-field Diffie-Hellman, whose group a server may make so large that one handshake takes a
    second, and no renegotiation.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:!kDHE:@SECLEVEL=0")
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(list(protocols))
    return context


def _tls_words(error: ssl.SSLError) -> str:
    if error.reason == _NO_TLS:
        return "tls: first record does not look like a TLS handshake"
    if isinstance(error, ssl.SSLEOFError):
        return "EOF"
    reason = _reason(error)
    if alert := _ALERT.fullmatch(reason):
        told: str = alert[1] or alert[2]
        return f"remote error: tls: {_ALERTS.get(told, told)}"
    return f"tls: {reason}"


def _reason(error: ssl.SSLError) -> str:
    # Of newer alerts Python knows no name: "[SSL] tlsv1 alert no application protocol (_ssl.c:1006)".
    return (error.reason or str(error).partition(" (_ssl.c")[0]).replace("_", " ").lower()
