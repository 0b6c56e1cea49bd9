"""tcpSocket against real sockets."""

import asyncio
import errno
import os
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from support.cases import cases
from support.patience import PATIENCE_SECONDS
from support.scripted_node import loop_time
from support.scripted_server import serving, silent
from support.sockets import full_backlog, time_waits

from kruise_probe.api.meta import HostPort
from kruise_probe.api.probe import HTTPGetAction
from kruise_probe.daemon.probers import TcpProber
from kruise_probe.daemon.probers.dialing import (
    Connection,
    Intake,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import CouldNotProbe, Reason, Target, failure, success

pytestmark = pytest.mark.sockets

POD = Target("127.0.0.1", "")


def deadline() -> float:
    return loop_time() + PATIENCE_SECONDS


async def connected(port: int) -> Connection:
    address = HostPort("127.0.0.1", port)
    connection = Connection(
        new_socket(address),
        address,
        deadline(),
        Intake(),
    )
    await connection.connect()
    return connection


def prober(port: int | str, timeout: float = 20.0) -> TcpProber:
    return TcpProber(port, timeout_seconds=timeout)


def opening(port: int, kind: type[socket.socket]) -> TcpProber:
    """A prober of this port that opens sockets of this kind."""

    def open_socket(_: HostPort) -> socket.socket:
        own = kind()
        own.setblocking(False)
        return own

    return TcpProber(port, timeout_seconds=20.0, open_socket=open_socket)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def full_port() -> Iterator[int]:
    with full_backlog() as port:
        yield port


async def test_no_answer_is_failure_in_time(full_port: int) -> None:
    started_at = loop_time()
    result = await prober(full_port, timeout=0.3).run(POD)

    message = f"dial tcp 127.0.0.1:{full_port}: i/o timeout"
    assert result == failure(message, timed_out=True)
    assert 0.3 <= loop_time() - started_at < PATIENCE_SECONDS


async def test_a_handshake_that_ends_at_once_needs_no_task(full_port: int) -> None:
    async with serving(silent()) as server:
        assert prober(server.port).run_now(POD) == success()
        await server.until_ended(1)
    refused = prober(1).run_now(POD)
    assert refused is not None
    assert not refused.succeeded
    before = open_files()
    assert prober(full_port).run_now(POD) is None
    assert open_files() == before


async def test_cancelled_attempt_leaves_no_socket(full_port: int) -> None:
    before = open_files()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await prober(full_port).run(POD)

    assert open_files() == before


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_connection_to_itself_is_refused(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as own:
        own.setblocking(False)
        own.bind((host, 0))
        _, port, *_ = own.getsockname()
        connection = Connection(
            own,
            HostPort(host, port),
            deadline(),
            Intake(),
        )

        with pytest.raises(ProbeConnectionFailed, match="connection refused"):
            await connection.connect()


async def test_a_server_that_resets_at_once_has_accepted() -> None:
    """The kernel no longer knows the peer of such a connection."""

    class ResetSocket(socket.socket):
        def getpeername(self) -> tuple[str, int]:
            raise OSError(errno.ENOTCONN, "not connected")

    async with serving(silent()) as server:
        assert await opening(server.port, ResetSocket).run(POD) == success()
        await server.until_ended(1)


@cases(
    "code text",
    no_route=(errno.EHOSTUNREACH, "no route to host"),
    refused=(errno.EACCES, "permission denied"),
)
async def test_connection_that_fails_later_has_its_reason(code: int, text: str) -> None:
    class Unreachable(socket.socket):
        def connect_ex(self, _: object) -> int:
            return errno.EINPROGRESS

        def getsockopt(self, *_: object) -> int:  # type: ignore[override]
            return code

    result = await opening(80, Unreachable).run(POD)
    assert result == failure(f"dial tcp 127.0.0.1:80: connect: {text}")


@pytest.mark.parametrize("name", ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EADDRNOTAVAIL"])
@pytest.mark.parametrize("step", ["socket", "connect", "send", "recv"])
async def test_an_error_of_the_node_is_no_result(
    monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    code: int = getattr(errno, name)

    def fail(*_: object) -> Any:
        raise OSError(code, "")

    class FailingSocket(socket.socket):
        def connect_ex(self, address: Any) -> int:
            if step == "connect":
                return code
            return super().connect_ex(address)

    if step in ("send", "recv"):
        setattr(FailingSocket, step, fail)
    async with serving(silent()) as server:
        http = HttpProber(HTTPGetAction(port=server.port), timeout_seconds=20.0, user_agent="x")
        monkeypatch.setattr(socket, "socket", fail if step == "socket" else FailingSocket)
        with pytest.raises(CouldNotProbe) as raised:
            await http.run(POD)
        monkeypatch.undo()

    assert raised.value.reason == Reason.NODE_RESOURCES


async def test_more_than_the_kernel_buffers_is_sent() -> None:
    received = 0
    size = 16 << 20

    async def script(reader: StreamReader, _: StreamWriter) -> None:
        nonlocal received
        while received < size and (data := await reader.read(1 << 16)):
            received += len(data)

    async with serving(lambda _: script) as server:
        connection = await connected(server.port)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await connection.send(b"x" * size)
            await server.until_ended(1)
        connection.close()
    assert received == size


async def test_thousand_probes_leave_few_sockets_in_time_wait() -> None:
    async with serving(silent()) as server:
        for _ in range(1000):
            await prober(server.port).run(POD)
            await asyncio.sleep(0)  # the server lives on the same loop
        await server.until_ended(1000)

        assert time_waits(server.port) < 50


@pytest.mark.parametrize("how", ["read-and-both-close", "unread-and-both-close", "server-first"])
async def test_b11_no_order_of_the_two_ends_leaves_a_time_wait(how: str) -> None:
    """As a compiled server ends a connection, before a second call of the prober's could reset it."""
    connections = 300
    ends: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            for _ in range(connections):
                connection, _ = listening.accept()
                with closing(connection):
                    connection.sendall(b"220 mail.example.com ready\r\n")
                    if how != "server-first":
                        ends.append(connection.recv(1))

        served = asyncio.create_task(asyncio.to_thread(serve))
        port = listening.getsockname()[1]
        for _ in range(connections):
            connection = await connected(port)
            if how == "unread-and-both-close":
                await connection._readable()  # it has come, and nobody wants it
            else:
                await connection.receive()
            while how == "server-first" and await connection.receive():
                pass
            connection.close()
        await served

    assert set(ends) <= {b""}
    assert time_waits(port) < 10


async def test_the_same_port_on_both_sides_is_no_connection_to_itself() -> None:
    async with serving(silent(), host="127.0.0.9") as server:
        with socket.socket() as own:
            own.setblocking(False)
            own.bind(("127.0.0.8", server.port))  # no other process uses this address
            peer = HostPort("127.0.0.9", server.port)
            connection = Connection(own, peer, deadline(), Intake())

            await connection.connect()
            connection.close()
        await server.until_ended(1)
