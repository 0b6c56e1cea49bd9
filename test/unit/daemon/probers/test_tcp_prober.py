"""tcpSocket against real sockets."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from support.cases import cases
from support.patience import PATIENCE_SECONDS
from support.scripted_server import serving, silent
from support.sockets import full_backlog, time_waits

from kruise_probe.api.meta import HostPort
from kruise_probe.api.probe import HTTPGetAction
from kruise_probe.daemon.probers import TcpProber
from kruise_probe.daemon.probers.dialing import (
    Connection,
    Intake,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import CouldNotProbe, Reason, Target, failure, success

pytestmark = pytest.mark.sockets


def deadline() -> float:
    return asyncio.get_running_loop().time() + PATIENCE_SECONDS


async def connected(port: int) -> Connection:
    address = HostPort("127.0.0.1", port)
    connection = Connection(new_socket(address), address, deadline(), Intake())
    await connection.connect()
    return connection


def prober(port: int | str, timeout: float = 20.0) -> TcpProber:
    return TcpProber(port, timeout_seconds=timeout)


def opening(kind: type[socket.socket]) -> OpenSocket:
    def open_socket(_: HostPort) -> socket.socket:
        own = kind()
        own.setblocking(False)
        return own

    return open_socket


@pytest.fixture
def full_port() -> Iterator[int]:
    with full_backlog() as port:
        yield port


async def test_no_answer_is_failure_in_time(full_port: int) -> None:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    result = await prober(full_port, timeout=0.3).run(Target("127.0.0.1", ""))

    message = f"dial tcp 127.0.0.1:{full_port}: i/o timeout"
    assert result == failure(message, timed_out=True)
    assert 0.3 <= loop.time() - started_at < PATIENCE_SECONDS


async def test_a_handshake_that_ends_at_once_needs_no_task(full_port: int) -> None:
    pod = Target("127.0.0.1", "")
    async with serving(silent()) as server:
        assert prober(server.port).run_now(pod) == success()
        await server.until_ended(1)
    refused = prober(1).run_now(pod)
    assert refused is not None
    assert not refused.succeeded
    before = len(os.listdir("/proc/self/fd"))
    assert prober(full_port).run_now(pod) is None
    assert len(os.listdir("/proc/self/fd")) == before


async def test_cancelled_attempt_leaves_no_socket(full_port: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await prober(full_port).run(Target("127.0.0.1", ""))

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_connection_to_itself_is_refused(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as own:
        own.setblocking(False)
        own.bind((host, 0))
        connection = Connection(own, HostPort(*own.getsockname()[:2]), deadline(), Intake())

        with pytest.raises(ProbeConnectionFailed, match="connection refused"):
            await connection.connect()


async def test_a_server_that_resets_at_once_has_accepted() -> None:
    """The kernel no longer knows the peer of such a connection."""

    class ResetSocket(socket.socket):
        def getpeername(self) -> tuple[str, int]:
            raise OSError(errno.ENOTCONN, "not connected")

    async with serving(silent()) as server:
        tcp = TcpProber(server.port, timeout_seconds=20.0, open_socket=opening(ResetSocket))
        assert await tcp.run(Target("127.0.0.1", "")) == success()
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

    tcp = TcpProber(80, timeout_seconds=20.0, open_socket=opening(Unreachable))
    result = await tcp.run(Target("127.0.0.1", ""))
    assert result == failure(f"dial tcp 127.0.0.1:80: connect: {text}")


@pytest.mark.parametrize("name", ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EADDRNOTAVAIL"])
@pytest.mark.parametrize("step", ["socket", "connect", "send", "recv"])
async def test_an_error_of_the_node_is_no_result(
    monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    def fail(*_: object) -> Any:
        raise OSError(getattr(errno, name), "")

    class FailingSocket(socket.socket):
        def connect_ex(self, address: Any) -> int:
            return getattr(errno, name) if step == "connect" else super().connect_ex(address)

    if step in ("send", "recv"):
        setattr(FailingSocket, step, fail)
    async with serving(silent()) as server:
        http = HttpProber(HTTPGetAction(port=server.port), timeout_seconds=20.0, user_agent="x")
        monkeypatch.setattr(socket, "socket", fail if step == "socket" else FailingSocket)
        with pytest.raises(CouldNotProbe) as raised:
            await http.run(Target("127.0.0.1", ""))
        monkeypatch.undo()

    assert raised.value.reason == Reason.NODE_RESOURCES


async def test_more_than_the_kernel_buffers_is_sent() -> None:
    received = 0
    size = 16 << 20

    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
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
            _ = await prober(server.port).run(Target("127.0.0.1", ""))
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
                _ = await connection.receive()
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
            connection = Connection(own, HostPort("127.0.0.9", server.port), deadline(), Intake())

            await connection.connect()
            connection.close()
        await server.until_ended(1)
