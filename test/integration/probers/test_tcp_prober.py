"""tcpSocket against real sockets."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.patience import PATIENCE_SECONDS
from support.scripted_server import serving, silent
from support.sockets import full_backlog, time_waits

from kruise_probe.daemon.probers.dialing import Address, Connection, ProbeDialFailed, dial
from kruise_probe.daemon.probers.prober import Outcome, Target, Verdict
from kruise_probe.daemon.probers.read_budget import ReadBudget
from kruise_probe.daemon.probers.tcp import TcpProber


def prober(port: int | str, timeout: float = 20.0) -> TcpProber:
    return TcpProber(port, timeout_seconds=timeout)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1"])
async def test_success_is_a_connection(host: str) -> None:
    async with serving(silent(), host=host) as server:
        assert await prober(server.port).run(Target(host, "")) == Outcome(Verdict.SUCCESS)
        await server.until_ended(1)

    assert server.connections == 1


async def test_a_number_in_words_is_a_number() -> None:
    async with serving(silent()) as server:
        outcome = await prober(str(server.port)).run(Target("127.0.0.1", ""))

    assert outcome.verdict is Verdict.SUCCESS


@pytest.mark.parametrize(("ip", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_refused(ip: str, shown: str) -> None:
    outcome = await prober(1).run(Target(ip, ""))

    message = f"dial tcp {shown}:1: connect: connection refused"
    assert outcome == Outcome(Verdict.FAILURE, message)


@pytest.fixture
def full_port() -> Iterator[int]:
    with full_backlog() as port:
        yield port


async def test_no_answer_is_failure_in_time(full_port: int) -> None:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    outcome = await prober(full_port, timeout=0.3).run(Target("127.0.0.1", ""))

    message = f"dial tcp 127.0.0.1:{full_port}: i/o timeout"
    assert outcome == Outcome(Verdict.FAILURE, message, timed_out=True)
    assert 0.3 <= loop.time() - started_at < PATIENCE_SECONDS


async def test_what_answers_at_once_is_not_waited_for() -> None:
    async with serving(silent()) as server:
        assert prober(server.port).start(Target("127.0.0.1", "")) == Outcome(Verdict.SUCCESS)
        await server.until_ended(1)
    begun = prober(server.port).start(Target("127.0.0.1", ""))
    assert isinstance(begun, Outcome)
    assert begun.verdict is Verdict.FAILURE


async def test_a_wait_that_is_never_begun_leaves_no_socket(full_port: int) -> None:
    before = len(os.listdir("/proc/self/fd"))
    begun = prober(full_port).start(Target("127.0.0.1", ""))
    assert not isinstance(begun, Outcome)

    del begun

    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_connection_to_itself_is_refused() -> None:
    with socket.socket() as own:
        own.setblocking(False)
        own.bind(("127.0.0.1", 0))
        connection = Connection(own, Address(*own.getsockname()), ReadBudget())

        with pytest.raises(ProbeDialFailed, match="connection refused"):
            await connection.connect()


async def test_the_same_port_on_both_sides_is_no_connection_to_itself() -> None:
    async with serving(silent(), host="127.0.0.9") as server:
        with socket.socket() as own:
            own.setblocking(False)
            own.bind(("127.0.0.1", server.port))
            connection = Connection(own, Address("127.0.0.9", server.port), ReadBudget())

            await connection.connect()
            connection.close()
        await server.until_ended(1)


async def test_the_server_reads_a_plain_end() -> None:
    ends: list[bytes | str] = []

    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        try:
            ends.append(await reader.read(10))
        except OSError as error:
            ends.append(str(error))

    async with serving(lambda _: script) as server:
        for number in range(50):
            _ = await prober(server.port).run(Target("127.0.0.1", ""))
            await server.until_ended(number + 1)

    assert ends == [b""] * 50


async def test_a_thousand_probes_leave_no_thousand_sockets_waiting() -> None:
    async with serving(silent()) as server:
        for _ in range(1000):
            _ = await prober(server.port).run(Target("127.0.0.1", ""))
            await asyncio.sleep(0)  # the server lives on the same loop
        await server.until_ended(1000)

        assert time_waits(server.port) < 50


@pytest.mark.parametrize("is_read", [True, False])
async def test_b11_nor_does_a_server_whose_end_comes_in_the_same_moment(is_read: bool) -> None:
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
            connection = await dial(Address("127.0.0.1", port), ReadBudget())
            if is_read:
                _ = await connection.receive()
            else:
                await connection._readable()  # it has come, and nobody wants it
            connection.close()
        await served

    assert ends == [b""] * connections
    assert time_waits(port) < 10


async def test_b11_nor_does_a_server_that_ends_the_connection_itself() -> None:
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
            connection = await dial(Address("127.0.0.1", port), ReadBudget())
            while await connection.receive():
                pass
            connection.close()
        await served

    assert time_waits(port) < 10
