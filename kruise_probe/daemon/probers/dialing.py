"""TCP connections of probes: one socket, few system calls, nothing left behind.

Probes go to addresses of this very machine, where a handshake is over before `connect` returns. So
what needs no waiting does not wait; this makes a probe twice as cheap as asyncio's streams are.

Source: kubelet pkg/probe/dialer_others.go; Go net.Dialer for the words of errors.
Differs: kubelet's SO_LINGER of a second does not shorten TIME_WAIT on current kernels, and makes
close() wait in the caller's thread. Here the end is sent (the server reads a plain end of file), and the
reset with which the kernel itself answers its acknowledgement lets both kernels forget the connection: no
TIME_WAIT, however many probes. (An end and a reset in two calls leave a moment in which a quick server's own
end arrives, and then it is TIME_WAIT.)
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from typing import Final, NamedTuple

from kruise_probe.daemon.probers.read_budget import (
    READ_BYTES,
    ReadBudget,
    TooManyBytes,
    take_turn,
)
from kruise_probe.daemon.probers.rounds import end_of_round

_RESET: Final = struct.pack("ii", 1, 0)
_NO_FIN_WAIT: Final = -1
"""For TCP_LINGER2: a closed socket waits for no end of the other side, but resets the connection, see tcp(7)."""
_UNREAD: Final = bytearray(16 * 1024)
"""Where goes what nobody reads: bytes of whatever connection, never looked at."""
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


class ProbeDialFailed(Exception):
    """No connection; the text is the one that Go would give."""


class BrokenConnection(Exception):
    """The connection ended in the middle; the text is the one that Go would give."""


class Connection:
    """One TCP connection. `close` is synchronous, never waits, and must be called once it is connected."""

    __slots__ = ("_address", "_answer_is_due", "_budget", "_loop", "_socket")

    def __init__(self, tcp: socket.socket, address: Address, budget: ReadBudget) -> None:
        self._socket = tcp
        self._address = address
        self._budget = budget
        self._loop = asyncio.get_running_loop()
        self._answer_is_due = False

    def __del__(self) -> None:
        """Nobody came to wait for it."""
        self._socket.close()

    def begin(self) -> bool:
        """Connects as far as that goes without waiting; whether it is connected. May be repeated until it is.

        Raises:
            ProbeDialFailed: refused, unreachable, or not an address.
        """
        destination = (self._address.ip, self._address.port)
        try:
            code = self._socket.connect_ex(destination)
            if code == errno.EINPROGRESS:
                code = self._socket.connect_ex(destination)
        except OSError as error:
            raise ProbeDialFailed(f"dial tcp {self._address}: {_words(error)}") from error
        if code in _UNDER_WAY:
            return False
        self._check(code)
        return True

    async def connect(self) -> None:
        """Waits until it is connected. Raises: ProbeDialFailed."""
        if not self.begin():
            await self._writable()
            self._check(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _check(self, code: int) -> None:
        if code in _CONNECTED and self._met_itself():
            code = errno.ECONNREFUSED
        if code not in _CONNECTED:
            raise ProbeDialFailed(f"dial tcp {self._address}: connect: {_code_words(code)}")

    def _met_itself(self) -> bool:
        """Where nobody listens, a socket that is given the very port that it calls is connected to itself."""
        own = self._socket.getsockname()
        if own[1] != self._address.port:
            return False
        try:
            return bool(own[:2] == self._socket.getpeername()[:2])
        except OSError:
            return False  # it was closed by the other side already, so there was one

    def offer(self, data: bytes) -> bytes:
        """Sends as much as goes without waiting; what is left. Raises: BrokenConnection."""
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise self.broken("write", error) from error

    def take(self) -> bytes | None:
        """What has arrived, at most 4 KiB; empty at the end, None if there is nothing. Raises: BrokenConnection."""
        try:
            data = self._socket.recv(READ_BYTES)
            self._budget.spend(len(data))
        except BlockingIOError:
            return None
        except TooManyBytes as error:
            raise BrokenConnection(str(error)) from error
        except OSError as error:
            raise self.broken("read", error) from error
        return data

    async def send(self, data: bytes) -> None:
        """Raises: BrokenConnection."""
        await self._write(data)
        self._answer_is_due = True

    async def _write(self, data: bytes) -> None:
        while data := self.offer(data):
            await self._writable()

    async def receive(self) -> bytes:
        """What has arrived, at most 4 KiB; empty at the end. A peer that never pauses does not keep others waiting.

        Raises:
            BrokenConnection: reset by the other side, or more than the budget.
        """
        if self._answer_is_due:
            self._answer_is_due = False
            await self._round()
        elif self._budget.needs_turn:
            await take_turn()
        while (arrived := self.take()) is None:
            await self._readable()
        return arrived

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # A greeting that was not read would be answered by a mere reset. That is enough for a server that has
            # ended the connection itself, and spares it the TIME_WAIT.
            if not socket.socket.recv_into(self._socket, _UNREAD):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    def broken(self, what: str, error: OSError) -> BrokenConnection:
        """What went wrong, in the words for it; `what` is read or write."""
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


async def dial(address: Address, budget: ReadBudget) -> Connection:
    """Connects; the caller closes what it gets.

    Raises:
        ProbeDialFailed: refused, unreachable, or not an address.
    """
    connection = prepare(address, budget)
    try:
        await connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(address: Address, budget: ReadBudget) -> Connection:
    """A connection that was not begun.

    Raises:
        ProbeDialFailed: no descriptors left.
    """
    return Connection(new_socket(address), address, budget)


def new_socket(address: Address) -> socket.socket:
    """Raises: ProbeDialFailed, when no descriptors are left."""
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    try:
        tcp = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise ProbeDialFailed(f"dial tcp {address}: socket: {_words(error)}") from error
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, _NO_FIN_WAIT)
    return tcp


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _words(error: OSError) -> str:
    return _code_words(error.errno) if error.errno else str(error)


def _code_words(code: int) -> str:
    return _WORDS.get(code) or os.strerror(code).lower()
