"""TCP connections of probes: one socket, few system calls, no TIME_WAIT.

Probes go to addresses on this machine, where the handshake ends before `connect` returns. So each step is tried without
waiting first. This takes half the CPU of asyncio streams.

Requests that are sent within 2 ms of each other are a *round*: their responses are first read together at its end. An
epoll wait needs a registration, a wakeup and a step of the event loop, which cost more CPU than the read itself. A
connection waits with epoll only if the response is not complete by then.

Source: kubelet pkg/probe/dialer_others.go; Go net.Dialer for the error texts.
Differs: kubelet sets SO_LINGER to 1 s, which does not shorten TIME_WAIT on current kernels and makes close() block.
Here close() sends a FIN, and the server reads a plain end of file. TCP_LINGER2 makes our kernel answer the server's ACK
with a reset, so both kernels forget the connection. A FIN and a reset in two calls would leave a gap: a FIN from a fast
server that arrives in it leads to TIME_WAIT.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from kruise_probe.api.host_port import HostPort
from kruise_probe.daemon.probers.read_budget import (
    READ_BYTES,
    ReadBudget,
    TooManyBytes,
    take_turn,
)

ROUND_SECONDS: Final = 0.002
"""Most responses arrive within it. The first bucket of the duration metric is longer (5 ms)."""

_RESET: Final = struct.pack("ii", 1, 0)
_NO_FIN_WAIT: Final = -1
"""For TCP_LINGER2: a closed socket resets the connection instead of waiting for the peer's FIN, see tcp(7)."""
_UNREAD: Final = bytearray(16 * 1024)
"""Shared buffer for bytes that are discarded at close."""
_CONNECTED: Final = frozenset({0, errno.EISCONN})
_IN_PROGRESS: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EINTR})

_TEXTS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by peer",
    errno.EPIPE: "broken pipe",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
    errno.ETIMEDOUT: "connection timed out",
    errno.EADDRNOTAVAIL: "cannot assign requested address",
    errno.EMFILE: "too many open files",
}


class ProbeDialFailed(Exception):
    """A probe could not connect; the text is Go's."""


class BrokenConnection(Exception):
    """The connection broke after it was established; the text is Go's."""


class Connection:
    """One TCP connection. `close` never blocks; the owner must call it."""

    __slots__ = ("_address", "_budget", "_loop", "_response_is_due", "_socket")

    def __init__(self, tcp: socket.socket, address: HostPort, budget: ReadBudget) -> None:
        self._socket = tcp
        self._address = address
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._response_is_due = False

    def __del__(self) -> None:
        """Close the socket of an attempt that was dropped."""
        self._socket.close()

    def connect_nowait(self) -> bool:
        """Connect without waiting. Return whether the connection is established; may be repeated until it is.

        Raises:
            ProbeDialFailed: refused, unreachable, or the address is invalid.
        """
        destination = (self._address.host, self._address.port)
        try:
            code = self._socket.connect_ex(destination)
            if code == errno.EINPROGRESS:
                code = self._socket.connect_ex(destination)
        except OSError as error:
            raise ProbeDialFailed(f"dial tcp {self._address}: {_text_of(error)}") from error
        if code in _IN_PROGRESS:
            return False
        self._check(code)
        return True

    async def connect(self) -> None:
        """Connect, and wait until the connection is established. Raises: ProbeDialFailed."""
        if not self.connect_nowait():
            await self._writable()
            self._check(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _check(self, code: int) -> None:
        if code in _CONNECTED and self._is_self_connected():
            code = errno.ECONNREFUSED
        if code not in _CONNECTED:
            raise connect_failed(self._address, code)

    def _is_self_connected(self) -> bool:
        """Without a listener, a socket connects to itself if its ephemeral port equals the destination port."""
        own = self._socket.getsockname()
        if own[1] != self._address.port:
            return False  # saves a system call
        try:
            return bool(own[:2] == self._socket.getpeername()[:2])
        except OSError:
            return False  # already closed by the peer, so there was a peer

    def send_nowait(self, data: bytes) -> bytes:
        """Send what fits without waiting. Return the unsent rest. Raises: BrokenConnection."""
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise self._broken("write", error) from error

    def receive_nowait(self) -> bytes | None:
        """Read at most 4 KiB without waiting. Empty: end of file. None: nothing has arrived. Raises: BrokenConnection."""
        try:
            data = self._socket.recv(READ_BYTES)
            self._budget.spend(len(data))
        except BlockingIOError:
            return None
        except TooManyBytes as error:
            raise BrokenConnection(str(error)) from error
        except OSError as error:
            raise self._broken("read", error) from error
        return data

    async def send(self, data: bytes) -> None:
        """Raises: BrokenConnection."""
        await self._write(data)
        self._response_is_due = True

    async def _write(self, data: bytes) -> None:
        while data := self.send_nowait(data):
            await self._writable()

    async def receive(self) -> bytes:
        """Wait for data and read at most 4 KiB. Empty: end of file. Reads take turns, see `read_budget`.

        Raises:
            BrokenConnection: reset by the peer, or the read budget is exceeded.
        """
        if self._response_is_due:
            self._response_is_due = False
            await self._until_end_of_round()
        elif self._budget.needs_turn:
            await take_turn()
        while (arrived := self.receive_nowait()) is None:
            await self._readable()
        return arrived

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # Closing with unread data would send a reset instead of a FIN, so the data is read first.
            # If the server has closed already, a reset is right: it saves the server the TIME_WAIT.
            if not socket.socket.recv_into(self._socket, _UNREAD):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    def _broken(self, what: str, error: OSError) -> BrokenConnection:
        """The error with Go's text; `what` is `read` or `write`."""
        return BrokenConnection(f"{what} tcp {self._address}: {what}: {_text_of(error)}")

    async def _until_end_of_round(self) -> None:
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


OpenSocket = Callable[[HostPort], socket.socket]
"""Returns a socket that does not block and is to be connected to the address, see `new_socket`."""


async def dial(address: HostPort, budget: ReadBudget, open_socket: OpenSocket) -> Connection:
    """Connect. The caller closes the connection.

    Raises:
        ProbeDialFailed: refused, unreachable, or the address is invalid.
    """
    connection = prepare(address, budget, open_socket)
    try:
        await connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(address: HostPort, budget: ReadBudget, open_socket: OpenSocket) -> Connection:
    """A connection that is not started yet.

    Raises:
        ProbeDialFailed: no file descriptors are left.
    """
    return Connection(open_socket(address), address, budget)


def new_socket(address: HostPort) -> socket.socket:
    """A socket that does not block. Raises: ProbeDialFailed, if no file descriptors are left."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        tcp = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise ProbeDialFailed(f"dial tcp {address}: socket: {_text_of(error)}") from error
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, _NO_FIN_WAIT)
    return tcp


def connect_failed(address: HostPort, code: int) -> ProbeDialFailed:
    """The error of a connection that ended with this `errno`."""
    return ProbeDialFailed(f"dial tcp {address}: connect: {_text_of_code(code)}")


_newest_round: tuple[asyncio.AbstractEventLoop | None, float] = (None, 0.0)


def end_of_round(loop: asyncio.AbstractEventLoop) -> float:
    """When the current round ends, in loop time. The same for all requests that are sent before it."""
    global _newest_round
    owner, ends_at = _newest_round
    now = loop.time()
    if owner is not loop or ends_at <= now:
        ends_at = now + ROUND_SECONDS
        _newest_round = (loop, ends_at)
    return ends_at


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _text_of(error: OSError) -> str:
    return _text_of_code(error.errno) if error.errno else str(error)


def _text_of_code(code: int) -> str:
    return _TEXTS.get(code) or os.strerror(code).lower()
