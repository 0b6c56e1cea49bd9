"""TCP connections of probes: one socket, few system calls, nothing left behind.

Probes go to addresses of this very machine, where a handshake is over before `connect` returns. So
what needs no waiting does not wait; this makes a probe twice as cheap as asyncio's streams are.

Source: kubelet pkg/probe/dialer_others.go; Go net.Dialer for the words of errors.
Differs: kubelet's SO_LINGER of a second does not shorten TIME_WAIT on current kernels, and makes
close() wait in the caller's thread. Here the end is sent (the server reads a plain end of file), and
the reset that follows it lets both kernels forget the connection: no TIME_WAIT, however many probes.
"""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from kruise_probe.daemon.probers.rounds import end_of_round

READ_BYTES: Final = 16 * 1024

_RESET: Final = struct.pack("ii", 1, 0)
_CONNECTED: Final = frozenset({0, errno.EISCONN})
_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EINTR})

_WORDS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by peer",
    errno.EPIPE: "broken pipe",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
    errno.ETIMEDOUT: "connection timed out",
    errno.EADDRNOTAVAIL: "cannot assign requested address",
    errno.EMFILE: "too many open files",
}


class Address(NamedTuple):
    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class DialFailed(Exception):
    """No connection; the text is the one that Go would give."""


class BrokenConnection(Exception):
    """The connection ended in the middle; the text is the one that Go would give."""


class Connection:
    """One TCP connection. `close` is synchronous, never waits, and must be called once it is connected."""

    __slots__ = ("_address", "_answer_is_due", "_loop", "_socket")

    def __init__(self, tcp: socket.socket, address: Address) -> None:
        self._socket = tcp
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._answer_is_due = False

    def __del__(self) -> None:
        """Nobody came to wait for it."""
        self._socket.close()

    def begin(self) -> bool:
        """Connects as far as that goes without waiting; whether it is connected. May be repeated until it is.

        Raises:
            DialFailed: refused, unreachable, or not an address.
        """
        destination = (self._address.ip, self._address.port)
        try:
            code = self._socket.connect_ex(destination)
            if code == errno.EINPROGRESS:
                code = self._socket.connect_ex(destination)
        except OSError as error:
            raise DialFailed(f"dial tcp {self._address}: {_words(error)}") from error
        if code in _UNDER_WAY:
            return False
        self._check(code)
        return True

    async def connect(self) -> None:
        """Waits until it is connected. Raises: DialFailed."""
        if not self.begin():
            await self._writable()
            self._check(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _check(self, code: int) -> None:
        # Without a listener a socket can meet itself, when it is given the very port that it calls.
        if code in _CONNECTED and self._socket.getsockname()[1] == self._address.port:
            code = errno.ECONNREFUSED
        if code not in _CONNECTED:
            raise DialFailed(f"dial tcp {self._address}: connect: {_code_words(code)}")

    def over_tls(self, context: ssl.SSLContext) -> "TlsConnection":
        """The same connection for TLS; this object is empty from then on."""
        tls = context.wrap_socket(self._socket, do_handshake_on_connect=False)
        return TlsConnection(tls, self._address)

    def offer(self, data: bytes) -> bytes:
        """Sends as much as goes without waiting; what is left. Raises: BrokenConnection."""
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise self._broken("write", error) from error

    def take(self) -> bytes | None:
        """What has arrived, at most 16 KiB; empty at the end, None if there is nothing. Raises: BrokenConnection."""
        try:
            return self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._broken("read", error) from error

    async def send(self, data: bytes) -> None:
        """Raises: BrokenConnection."""
        while data := self.offer(data):
            await self._writable()
        self._answer_is_due = True

    async def receive(self) -> bytes:
        """What has arrived, at most 16 KiB; empty at the end.

        Raises:
            BrokenConnection: reset by the other side, for one.
        """
        if self._answer_is_due:
            self._answer_is_due = False
            await self._round()
        while (arrived := self.take()) is None:
            await self._readable()
        return arrived

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._socket.close()

    def _broken(self, what: str, error: OSError) -> BrokenConnection:
        return BrokenConnection(f"{what} tcp {self._address}: {what}: {_words(error)}")

    async def _round(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_at(end_of_round(self._loop), _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    async def _readable(self) -> None:
        loop, descriptor = self._loop, self._socket.fileno()
        future: asyncio.Future[None] = loop.create_future()
        loop.add_reader(descriptor, _wake, future)
        try:
            await future
        finally:
            loop.remove_reader(descriptor)

    async def _writable(self) -> None:
        loop, descriptor = self._loop, self._socket.fileno()
        future: asyncio.Future[None] = loop.create_future()
        loop.add_writer(descriptor, _wake, future)
        try:
            await future
        finally:
            loop.remove_writer(descriptor)


class TlsConnection(Connection):
    """TLS over a connected socket."""

    __slots__ = ("_tls",)

    def __init__(self, tls: ssl.SSLSocket, address: Address) -> None:
        super().__init__(tls, address)
        self._tls = tls

    async def connect(self) -> None:
        """Shakes hands. Raises: DialFailed."""
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
            await self._readable()
            if socket.socket.recv(self._tls, 5, socket.MSG_PEEK) == b"HTTP/":
                raise DialFailed("http: server gave HTTP response to HTTPS client")
            await self._until_done(self._tls.do_handshake)
        except ssl.SSLError as error:
            raise DialFailed(_tls_words(error)) from error
        except OSError as error:
            raise DialFailed(str(self._broken("read", error))) from error

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
                raise self._broken("write", error) from error

    async def receive(self) -> bytes:
        try:
            received: bytes = await self._until_done(self._tls.recv, READ_BYTES)
        except ssl.SSLEOFError:
            return b""
        except OSError as error:
            raise self._broken("read", error) from error
        return received

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        super().close()

    async def _until_done(self, step: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                return step(*arguments)
            except ssl.SSLWantReadError:
                await self._readable()
            except ssl.SSLWantWriteError:
                await self._writable()


def prepare(address: Address) -> Connection:
    """A connection that was not begun.

    Raises:
        DialFailed: no descriptors left.
    """
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    try:
        tcp = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise DialFailed(f"dial tcp {address}: socket: {_words(error)}") from error
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return Connection(tcp, address)


async def dial(address: Address) -> Connection:
    """Connects; the caller closes what it gets.

    Raises:
        DialFailed: refused, unreachable, or not an address.
    """
    connection = prepare(address)
    try:
        await connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection


async def dial_tls(address: Address, context: ssl.SSLContext) -> TlsConnection:
    """Connects and shakes hands; no server name is sent, as the server is known by its address.

    Raises:
        DialFailed: no connection, or no TLS.
    """
    plain = await dial(address)
    try:
        tls = plain.over_tls(context)
    except BaseException:
        plain.close()
        raise
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


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _words(error: OSError) -> str:
    return _code_words(error.errno) if error.errno else str(error)


def _code_words(code: int) -> str:
    return _WORDS.get(code) or os.strerror(code).lower()


def _tls_words(error: ssl.SSLError) -> str:
    if error.reason == "WRONG_VERSION_NUMBER":
        return "tls: first record does not look like a TLS handshake"
    if isinstance(error, ssl.SSLEOFError):
        return "EOF"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"tls: {reason}"
