"""TLS connections of probes: any certificate is good enough, as the server is known by its address.

Source: kubelet pkg/probe/http/http.go (InsecureSkipVerify); Go crypto/tls for the words of errors.
"""

import contextlib
import errno
import re
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kruise_probe.daemon.probers.dialing import (
    READ_BYTES,
    Address,
    BrokenConnection,
    Connection,
    DialFailed,
    dial,
)

_TCP_CLOSE: Final = 7
"""The state of a connection that is no more, see tcp_states.h of Linux."""

_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""What OpenSSL calls an answer that is no TLS at all."""
_AFTER_HTTP = re.compile(rb"1\.[01] [1-5]\d\d")
"""What follows "HTTP/" in a status line."""

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
    """TLS over a connected socket."""

    __slots__ = ("_tls",)

    def __init__(self, tls: ssl.SSLSocket, address: Address) -> None:
        super().__init__(tls, address)
        self._tls = tls

    async def connect(self) -> None:
        """Shakes hands. Raises: DialFailed."""
        try:
            await self._until_done(self._tls.do_handshake)
        except OSError as error:
            if self._was_http(error):
                raise DialFailed("http: server gave HTTP response to HTTPS client") from error
            raise DialFailed(str(self.broken("read", error))) from error

    def _was_http(self, error: OSError) -> bool:
        """Whether a status line came where a handshake should begin, however quick the server was.

        OpenSSL took its first five bytes for the head of a record, "HTTP/"; it reads no further than that.
        """
        if not isinstance(error, ssl.SSLError) or error.reason != _NO_TLS:
            return False
        with contextlib.suppress(OSError):
            rest = socket.socket.recv(self._tls, 8, socket.MSG_PEEK)
            return _AFTER_HTTP.match(rest) is not None
        return False

    @property
    def protocol(self) -> str | None:
        """What ALPN agreed on."""
        return self._tls.selected_alpn_protocol()

    async def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[await self._until_done(self._tls.send, left) :]
            except OSError as error:
                raise self._farewell() or self.broken("write", error) from error

    def _farewell(self) -> BrokenConnection | None:
        """What the server said before it hung up, if it did: that it wants a certificate, for one."""
        try:
            _ = self._tls.recv(1)
        except ssl.SSLError as error:
            return self.broken("read", error) if _ALERT.fullmatch(_reason(error)) else None
        except OSError:
            pass
        return None

    async def receive(self) -> bytes:
        try:
            received: bytes = await self._until_done(self._tls.recv, READ_BYTES)
        except ssl.SSLEOFError as error:
            if self._was_reset(error):
                raise self.broken("read", error) from error
            return b""
        except OSError as error:
            raise self.broken("read", error) from error
        return received

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        super().close()

    def broken(self, what: str, error: OSError) -> BrokenConnection:
        if self._was_reset(error):
            error = ConnectionResetError(errno.ECONNRESET, "")
        if isinstance(error, ssl.SSLError):
            return BrokenConnection(_tls_words(error))
        return super().broken(what, error)

    def _was_reset(self, error: OSError) -> bool:
        """Python's ssl tells a reset as it tells an end without a word of TLS.

        Only of the latter OpenSSL gives a reason (3.0 and newer), or the kernel still has the connection.
        """
        if not isinstance(error, ssl.SSLEOFError) or error.reason:
            return False
        return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE

    async def _until_done(self, step: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                return step(*arguments)
            except ssl.SSLWantReadError:
                await self._readable()
            except ssl.SSLWantWriteError:
                await self._writable()


async def dial_tls(address: Address, context: ssl.SSLContext) -> TlsConnection:
    """Connects and shakes hands; no server name is sent, as the server is known by its address.

    Raises:
        DialFailed: no connection, or no TLS.
    """
    plain = await dial(address)
    try:
        wrapped = context.wrap_socket(
            plain.socket, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
    except OSError as error:
        plain.close()
        raise DialFailed(str(plain.broken("read", error))) from error
    tls = TlsConnection(wrapped, address)
    try:
        await tls.connect()
    except BaseException:
        tls.close()
        raise
    return tls


@cache
def unverified_tls(*protocols: str) -> ssl.SSLContext:
    """Made once: TLS 1.2 or newer, any certificate, any key that OpenSSL can read; ALPN offers `protocols`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
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
