"""The connections of all probes: one socket, few system calls, no TIME_WAIT. For TLS see `tls`.

Probes go to addresses on this machine, where the handshake ends before `connect` returns. So each step is tried without
waiting first. This takes half the CPU of asyncio streams.

Source: kubelet pkg/probe/dialer_others.go; Go net.Dialer for self-connections and for the text of a refused connection.
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
from functools import lru_cache
from typing import Final

from kruise_probe.api.meta import HostPort
from kruise_probe.daemon.probers.prober import (
    MAX_ATTEMPT_BYTES,
    UNLIMITED,
    CouldNotProbe,
    Reason,
    Resources,
)

READ_BYTES: Final = 4 * 1024
"""Limit of one read. Parsing that much takes 5 ms at worst."""
LONG_READ_BYTES: Final = 64 * 1024
"""Limit of one read of an attempt that needs the whole body."""

_RESPONSE_SECONDS: Final = 0.002
"""Most responses arrive within it. A timer uses less CPU than epoll, which needs a registration and its removal.

The waits end at its multiples, so the event loop wakes once for all attempts that are due together."""
_RESET: Final = struct.pack("ii", 1, 0)
_NO_FIN_WAIT: Final = -1
"""For TCP_LINGER2: a closed socket resets the connection instead of waiting for the peer's FIN, see tcp(7)."""
_UNREAD: Final = bytearray(16 * 1024)
"""Shared buffer for bytes that are discarded at close."""
_CONNECTED: Final = frozenset({0, errno.EISCONN})
_IN_PROGRESS: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EINTR})
_NODE_ERRORS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)
"""Errors of this node. They say nothing about the pod."""


class ProbeConnectionFailed(Exception):
    """The connection could not be established, or broke; the text has the reason."""


def connection_error(step: str, address: HostPort, error: OSError) -> Exception:
    """ProbeConnectionFailed with Go's text, or CouldNotProbe for an error of this node. `step` is the system call."""
    operation = "dial"
    if step in ("read", "write"):
        operation = step
    reason = str(error)
    if error.errno:
        reason = os.strerror(error.errno).lower()
    text = f"{operation} tcp {address}: {step}: {reason}"
    if error.errno in _NODE_ERRORS:
        return CouldNotProbe(
            Reason.NODE_RESOURCES,
            f"{text}; free the node's sockets, ports or memory, or raise the daemon's limit of open files",
        )
    return ProbeConnectionFailed(text)


def connect_error(address: HostPort, code: int) -> Exception:
    """The error of a `connect` that ended with this `errno`."""
    return connection_error("connect", address, OSError(code, ""))


class Intake:
    """What one attempt receives and holds, over all of its connections.

    Attributes:
        received: in bytes.
        limit: of `received`.
        read_bytes: limit of one read.
        tls_bytes: what OpenSSL holds.
    """

    def __init__(
        self,
        resources: Resources = UNLIMITED,
        limit: int = MAX_ATTEMPT_BYTES,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self.resources = resources
        self.limit = limit
        self.read_bytes = read_bytes
        self.received = 0
        self.tls_bytes = 0

    def make_room(self) -> None:
        """Count what is held, with a copy of what was received; called before each read. Raises: BytesQueued."""
        copied = 2 * self.received
        self.resources.hold(copied + self.tls_bytes)

    def add(self, size: int) -> None:
        """Raises: ProbeConnectionFailed, if the attempt has received too much."""
        self.received += size
        if self.received > self.limit:
            raise ProbeConnectionFailed(
                f"the server sent more than {self.limit} bytes; probe an endpoint with a smaller response"
            )


class Connection:
    """One TCP connection. What waits raises TimeoutError at `deadline`. `close` never blocks; the owner must call it."""

    def __init__(
        self, tcp: socket.socket, address: HostPort, deadline: float, intake: Intake
    ) -> None:
        self._intake = intake
        self._deadline = deadline
        self._socket = tcp
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._has_read = False

    def connect_nowait(self) -> bool:
        """Connect without waiting. Return whether the handshake has ended.

        Raises:
            ProbeConnectionFailed: refused, unreachable, or the address is invalid.
            CouldNotProbe: the node has no resources left.
        """
        try:
            code = self._socket.connect_ex(self._address)
            if code == errno.EINPROGRESS:
                code = self._socket.connect_ex(self._address)
        except OSError as error:
            raise connection_error("connect", self._address, error) from error
        if code in _IN_PROGRESS:
            return False
        self._check(code)
        return True

    async def connect(self) -> None:
        """Connect, and wait until the handshake has ended. Raises: as `connect_nowait`."""
        if not self.connect_nowait():
            await self._writable()
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self._check(code)

    def _check(self, code: int) -> None:
        if code not in _CONNECTED:
            raise connect_error(self._address, code)
        if self._is_self_connected():
            raise connect_error(self._address, errno.ECONNREFUSED)

    def _is_self_connected(self) -> bool:
        """Without a listener, a socket connects to itself if its ephemeral port equals the destination port."""
        try:
            own = self._socket.getsockname()
            peer = self._socket.getpeername()
        except OSError:
            return False  # already closed by the peer, so there was a peer
        return bool(own[:2] == peer[:2])

    async def send(self, data: bytes) -> None:
        """Raises: ProbeConnectionFailed, CouldNotProbe."""
        while data:
            try:
                sent = self._socket.send(data)
                data = data[sent:]
            except BlockingIOError:
                await self._writable()
            except OSError as error:
                raise connection_error("write", self._address, error) from error

    async def receive(self) -> bytes:
        """Wait for data and read at most 4 KiB, or 64 KiB for a value. Empty: end of file.

        A pod may send as fast as the event loop can read. So all reads but the first take turns: one attempt reads per
        pass of the event loop, however many pods send at the same time.

        Raises:
            ProbeConnectionFailed: reset by the peer, or the peer sent too many bytes.
            CouldNotProbe: the node has no resources left.
            BytesQueued: the attempt holds as much as it may now.
        """
        if self._has_read:
            async with asyncio.timeout_at(self._deadline), _turns(self._loop):
                await asyncio.sleep(0)
        else:
            since_multiple = self._loop.time() % _RESPONSE_SECONDS
            wait = 2 * _RESPONSE_SECONDS - since_multiple
            await asyncio.sleep(wait)
        self._has_read = True
        self._intake.make_room()
        while (data := self._receive_nowait()) is None:
            await self._readable()
        self._intake.add(len(data))
        return data

    def _receive_nowait(self) -> bytes | None:
        try:
            return self._socket.recv(self._intake.read_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            raise connection_error("read", self._address, error) from error

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # Closing with unread data would send a reset instead of a FIN, so the data is read first.
            # If the server has closed already, a reset is right: it saves the server the TIME_WAIT.
            received = socket.socket.recv_into(self._socket, _UNREAD)
            if not received:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()

    async def _readable(self) -> None:
        await self._until_ready(self._loop.add_reader, self._loop.remove_reader)

    async def _writable(self) -> None:
        await self._until_ready(self._loop.add_writer, self._loop.remove_writer)

    async def _until_ready(
        self, add: Callable[..., object], remove: Callable[[int], object]
    ) -> None:
        # asyncio.timeout would take 3 µs more, for every attempt.
        descriptor = self._socket.fileno()
        is_ready: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_at(self._deadline, _end, is_ready, False)
        add(descriptor, _end, is_ready, True)
        try:
            # Not an exception of the future: it would refer to this frame, which refers to the future.
            if not await is_ready:
                raise TimeoutError
        finally:
            remove(descriptor)
            timer.cancel()


OpenSocket = Callable[[HostPort], socket.socket]
"""Returns a socket that does not block and is to be connected to the address, see `new_socket`."""


def new_socket(address: HostPort) -> socket.socket:
    """A socket that does not block. Raises: CouldNotProbe, if the node has no resources left."""
    family = socket.AF_INET
    if ":" in address.host:
        family = socket.AF_INET6
    try:
        tcp = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise connection_error("socket", address, error) from error
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, _NO_FIN_WAIT)
    return tcp


@lru_cache(maxsize=1)
def _turns(_: asyncio.AbstractEventLoop) -> asyncio.Lock:
    return asyncio.Lock()


def _end(future: asyncio.Future[bool], result: bool) -> None:
    if not future.done():
        future.set_result(result)
