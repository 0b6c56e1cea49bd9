"""TLS connections of probes: any certificate is good enough, as the server is known by its address.

Source: kubelet pkg/probe/http/http.go (InsecureSkipVerify); Go crypto/tls for the words of errors.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any

from kruise_probe.daemon.probers.dialing import (
    READ_BYTES,
    Address,
    BrokenConnection,
    Connection,
    DialFailed,
    dial,
)


class TlsConnection(Connection):
    """TLS over a connected socket."""

    __slots__ = ("_tls",)

    def __init__(self, tls: ssl.SSLSocket, address: Address) -> None:
        super().__init__(tls, address)
        self._tls = tls

    async def connect(self) -> None:
        """Shakes hands. Raises: DialFailed."""
        try:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._readable()
            else:
                return  # The server was as quick as that: now it waits for us.
            if socket.socket.recv(self._tls, 5, socket.MSG_PEEK) == b"HTTP/":
                raise DialFailed("http: server gave HTTP response to HTTPS client")
            await self._until_done(self._tls.do_handshake)
        except OSError as error:
            raise DialFailed(str(self.broken("read", error))) from error

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
                raise self.broken("write", error) from error

    async def receive(self) -> bytes:
        try:
            received: bytes = await self._until_done(self._tls.recv, READ_BYTES)
        except ssl.SSLEOFError:
            return b""
        except OSError as error:
            raise self.broken("read", error) from error
        return received

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        super().close()

    def broken(self, what: str, error: OSError) -> BrokenConnection:
        if isinstance(error, ssl.SSLError):
            return BrokenConnection(_tls_words(error))
        return super().broken(what, error)

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
        wrapped = context.wrap_socket(plain.socket, do_handshake_on_connect=False)
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
    if error.reason == "WRONG_VERSION_NUMBER":
        return "tls: first record does not look like a TLS handshake"
    if isinstance(error, ssl.SSLEOFError):
        return "EOF"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    _, alert, told = reason.rpartition(" alert ")
    return f"remote error: tls: {told}" if alert else f"tls: {reason}"
