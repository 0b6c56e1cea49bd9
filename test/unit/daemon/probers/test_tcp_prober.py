"""tcpSocket against real sockets."""

import asyncio
import errno
import os
import socket
from collections.abc import Coroutine, Iterator
from contextlib import closing

import pytest
from support.patience import PATIENCE_SECONDS
from support.probing import result_of
from support.scripted_server import serving, silent
from support.sockets import full_backlog, time_waits

from kruise_probe.api.host_port import HostPort
from kruise_probe.daemon.probers import dialing
from kruise_probe.daemon.probers.dialing import Connection, ProbeDialFailed, dial, new_socket
from kruise_probe.daemon.probers.prober import ProbeResult, Target, failure, success
from kruise_probe.daemon.probers.read_budget import ReadBudget
from kruise_probe.daemon.probers.tcp import TcpProber

pytestmark = pytest.mark.sockets


def prober(port: int | str, timeout: float = 20.0) -> TcpProber:
    return TcpProber(port, timeout_seconds=timeout)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1"])
async def test_success_is_a_connection(host: str) -> None:
    async with serving(silent(), host=host) as server:
        assert await result_of(prober(server.port), Target(host, "")) == success()
        await server.until_ended(1)

    assert server.connections == 1


async def test_port_given_as_digits_is_a_number() -> None:
    async with serving(silent()) as server:
        result = await result_of(prober(str(server.port)), Target("127.0.0.1", ""))

    assert result.succeeded


@pytest.mark.parametrize(("ip", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_refused(ip: str, shown: str) -> None:
    result = await result_of(prober(1), Target(ip, ""))

    message = f"dial tcp {shown}:1: connect: connection refused"
    assert result == failure(message)


@pytest.fixture
def full_port() -> Iterator[int]:
    with full_backlog() as port:
        yield port


async def test_no_answer_is_failure_in_time(full_port: int) -> None:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    result = await result_of(prober(full_port, timeout=0.3), Target("127.0.0.1", ""))

    message = f"dial tcp 127.0.0.1:{full_port}: i/o timeout"
    assert result == failure(message, timed_out=True)
    assert 0.3 <= loop.time() - started_at < PATIENCE_SECONDS


async def test_established_connection_needs_no_waiting() -> None:
    async with serving(silent()) as server:
        assert prober(server.port).probe(Target("127.0.0.1", "")) == success()
        await server.until_ended(1)
    started = prober(server.port).probe(Target("127.0.0.1", ""))
    assert isinstance(started, ProbeResult)
    assert not started.succeeded


async def test_closed_attempt_leaves_no_socket(full_port: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    started = prober(full_port).probe(Target("127.0.0.1", ""))
    assert isinstance(started, Coroutine)

    started.close()
    del started

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_connection_to_itself_is_refused(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as own:
        own.setblocking(False)
        own.bind((host, 0))
        connection = Connection(own, HostPort(*own.getsockname()[:2]), ReadBudget())

        with pytest.raises(ProbeDialFailed, match="connection refused"):
            await connection.connect()


async def test_the_same_port_on_both_sides_is_no_connection_to_itself() -> None:
    async with serving(silent(), host="127.0.0.9") as server:
        with socket.socket() as own:
            own.setblocking(False)
            own.bind(("127.0.0.8", server.port))  # no other process uses this address
            connection = Connection(own, HostPort("127.0.0.9", server.port), ReadBudget())

            await connection.connect()
            connection.close()
        await server.until_ended(1)


async def test_a_server_that_resets_at_once_has_accepted() -> None:
    """The kernel no longer knows the peer of such a connection."""

    class ResetSocket(socket.socket):
        def getpeername(self) -> tuple[str, int]:
            raise OSError(errno.ENOTCONN, "not connected")

    def open_socket(_: HostPort) -> socket.socket:
        own = ResetSocket()
        own.setblocking(False)
        return own

    async with serving(silent()) as server:
        tcp = TcpProber(server.port, timeout_seconds=20.0, open_socket=open_socket)
        assert await result_of(tcp, Target("127.0.0.1", "")) == success()
        await server.until_ended(1)


@pytest.mark.parametrize(
    ("code", "text"),
    [(errno.EHOSTUNREACH, "no route to host"), (errno.EACCES, "permission denied")],
)
async def test_connection_that_fails_later_has_its_reason(code: int, text: str) -> None:
    class Unreachable(socket.socket):
        def connect_ex(self, _: object) -> int:
            return errno.EINPROGRESS

        def getsockopt(self, *_: object) -> int:  # type: ignore[override]
            return code

    def open_socket(_: HostPort) -> socket.socket:
        own = Unreachable()
        own.setblocking(False)
        return own

    tcp = TcpProber(80, timeout_seconds=20.0, open_socket=open_socket)
    result = await result_of(tcp, Target("127.0.0.1", ""))
    assert result == failure(f"dial tcp 127.0.0.1:80: connect: {text}")


async def test_no_file_descriptors_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    tcp = prober(80)
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", no_socket)
        result = tcp.probe(Target("127.0.0.1", ""))
    assert result == failure("dial tcp 127.0.0.1:80: socket: too many open files")


async def test_an_address_of_no_interface_is_a_failure() -> None:
    result = await result_of(prober(80), Target("fe80::1%none", ""))
    assert not result.succeeded
    assert result.message.startswith("dial tcp [fe80::1%none]:80: ")


async def test_a_failed_connection_closes_the_socket() -> None:
    """At once, not only when the error is dropped, whose traceback refers to the connection."""
    opened: list[socket.socket] = []

    def open_socket(address: HostPort) -> socket.socket:
        opened.append(new_socket(address))
        return opened[-1]

    with pytest.raises(ProbeDialFailed) as failed:
        await dial(HostPort("127.0.0.1", 1), ReadBudget(), open_socket)
    assert (failed.type, [each.fileno() for each in opened]) == (ProbeDialFailed, [-1])


async def test_more_than_the_kernel_buffers_is_sent() -> None:
    received = 0
    size = 16 << 20

    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal received
        while received < size and (data := await reader.read(1 << 16)):
            received += len(data)

    async with serving(lambda _: script) as server:
        connection = await dial(HostPort(server.host, server.port), ReadBudget(), new_socket)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await connection.send(b"x" * size)
            await server.until_ended(1)
        connection.close()
    assert received == size


async def test_what_does_not_fit_into_the_buffer_of_the_kernel_is_returned() -> None:
    async with serving(silent()) as server:
        connection = await dial(HostPort(server.host, server.port), ReadBudget(), new_socket)
        data = b"x" * (64 << 20)
        while (rest := connection.send_nowait(data)) != data:
            data = rest
        connection.close()
    assert data


async def test_a_response_is_read_at_the_end_of_the_round_and_more_of_it_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the responses of one round are read together, and a flood delays no other attempt."""
    turns = 0

    async def take_turn() -> None:
        nonlocal turns
        turns += 1

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 8192)
        _ = await reader.read()

    monkeypatch.setattr(dialing, "take_turn", take_turn)
    loop = asyncio.get_running_loop()
    async with serving(lambda _: script) as server:
        connection = await dial(HostPort(server.host, server.port), ReadBudget(), new_socket)
        await connection._readable()
        due = dialing.end_of_round(loop)
        await connection.send(b"x")
        assert len(await connection.receive()) == 4096
        assert (loop.time() >= due, turns) == (True, 0)
        assert len(await connection.receive()) == 4096
        assert turns == 1
        connection.close()


async def test_the_server_reads_a_plain_end() -> None:
    ends: list[bytes | str] = []

    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            ends.append(await reader.read(10))
        except OSError as error:
            ends.append(str(error))

    async with serving(lambda _: script) as server:
        for number in range(50):
            _ = await result_of(prober(server.port), Target("127.0.0.1", ""))
            await server.until_ended(number + 1)

    assert ends == [b""] * 50


async def test_thousand_probes_leave_few_sockets_in_time_wait() -> None:
    async with serving(silent()) as server:
        for _ in range(1000):
            _ = await result_of(prober(server.port), Target("127.0.0.1", ""))
            await asyncio.sleep(0)  # the server lives on the same loop
        await server.until_ended(1000)

        assert time_waits(server.port) < 50


@pytest.mark.parametrize("is_read", [True, False])
async def test_b11_simultaneous_close_leaves_no_time_wait(is_read: bool) -> None:
    """As that of a compiled one does, before a second call of the prober's could reset the connection."""
    connections = 300
    ends: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            for _ in range(connections):
                connection, _ = listening.accept()
                with closing(connection):
                    connection.sendall(b"220 mail.example.com ready\r\n")
                    ends.append(connection.recv(1))

        served = asyncio.create_task(asyncio.to_thread(serve))
        port = listening.getsockname()[1]
        for _ in range(connections):
            connection = await dial(HostPort("127.0.0.1", port), ReadBudget(), new_socket)
            if is_read:
                _ = await connection.receive()
            else:
                await connection._readable()  # it has come, and nobody wants it
            connection.close()
        await served

    assert ends == [b""] * connections
    assert time_waits(port) < 10


async def test_b11_server_that_closes_first_leaves_no_time_wait() -> None:
    """As after an answer to httpGet: then it is the server's side that would wait."""
    connections = 300
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            for _ in range(connections):
                connection, _ = listening.accept()
                with closing(connection):
                    connection.sendall(b"bye")

        served = asyncio.create_task(asyncio.to_thread(serve))
        port = listening.getsockname()[1]
        for _ in range(connections):
            connection = await dial(HostPort("127.0.0.1", port), ReadBudget(), new_socket)
            while await connection.receive():
                pass
            connection.close()
        await served

    assert time_waits(port) < 10
