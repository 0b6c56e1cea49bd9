"""One HTTP connection on a fake transport."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_transport import FakeTransport

from kruise_probe.client.http1 import ConnectionLost, HttpConnection
from kruise_probe.client.response import ResponseError

GET = b"GET / HTTP/1.1\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\n"
RESPONSE = HEAD + b"Content-Length: 2\r\n\r\n{}"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def connected() -> tuple[HttpConnection, FakeTransport]:
    connection = HttpConnection(lambda _: None)
    return connection, FakeTransport(connection)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def test_connection_is_reused_for_several_requests() -> None:
    connection, other = connected()
    for _ in range(3):
        assert connection.usable
        connection.send(GET)
        assert not connection.usable
        assert other.take() == GET
        other.receive(RESPONSE[:10])
        other.receive(RESPONSE[10:])
        response = await connection.read_response()
        assert (response.status, response.take()) == (200, b"{}")


async def test_response_may_arrive_while_waiting() -> None:
    connection, other = connected()
    connection.send(GET)
    waiting = asyncio.create_task(connection.read_response())
    await asyncio.sleep(1)
    other.receive(RESPONSE)

    assert (await waiting).complete


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(None, "the connection was closed", id="closed"),
        pytest.param(ConnectionResetError(104, "reset"), "reset", id="os-error"),
        pytest.param(OSError(0, "odd"), "[Errno 0] odd", id="os-error-without-a-number"),
        pytest.param(ValueError("a\nb"), "a b", id="one-line"),
        pytest.param(ValueError(), "ValueError", id="without-text"),
    ],
)
async def test_lost_connection_has_its_reason(error: Exception | None, reason: str) -> None:
    connection, other = connected()
    connection.send(GET)
    other.abort(error)

    with pytest.raises(ConnectionLost) as raised:
        await connection.read_response()
    assert str(raised.value) == f"{reason} before a response"


async def test_nothing_is_written_to_a_stream_that_has_ended() -> None:
    for ends in (FakeTransport.receive_eof, FakeTransport.abort):
        connection, other = connected()
        connection.send(GET)
        other.take()
        ends(other)
        await asyncio.sleep(0)
        connection.write(b"late")
        assert other.take() == b""


async def test_nothing_is_written_to_a_stream_that_ends() -> None:
    """Before asyncio has reported the end."""
    for by_server in (True, False):
        connection, other = connected()
        connection.send(GET)
        other.take()
        if by_server:
            other.receive_eof()
        else:
            connection.close()
        connection.write(b"late")
        assert other.take() == b""


async def test_connection_closed_while_idle_is_not_usable() -> None:
    for ends in (FakeTransport.receive_eof, FakeTransport.abort, FakeTransport.close):
        connection, other = connected()
        connection.send(GET)
        other.receive(RESPONSE)
        await connection.read_response()
        ends(other)
        assert not connection.usable
        await asyncio.sleep(0)
        assert not connection.usable


async def test_unsolicited_bytes_close_an_idle_connection() -> None:
    fresh, other = connected()
    other.receive(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert not fresh.usable

    used, other = connected()
    used.send(GET)
    other.receive(RESPONSE)
    await used.read_response()
    other.receive(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert not used.usable
    used.close()


async def test_connection_closed_before_its_first_request_fails_at_once() -> None:
    """For example, between the TLS handshake and the step that waited for it."""
    for ends in (FakeTransport.receive_eof, FakeTransport.abort):
        connection, other = connected()
        ends(other)
        await asyncio.sleep(0)
        connection.send(GET)
        with pytest.raises(ConnectionLost, match="before the request was sent"):
            await connection.read_response()
        assert other.take() == b""


async def test_early_response_makes_the_connection_unusable() -> None:
    connection, other = connected()
    other.stuck = True
    connection.send(GET)
    other.receive(RESPONSE)

    assert (await connection.read_response()).complete
    assert not connection.usable
    connection.close()
    await asyncio.sleep(0)
    assert other.lost


@pytest.mark.parametrize(
    ("before", "words"),
    [
        pytest.param(b"", "before a response", id="nothing"),
        pytest.param(HEAD, "before a response", id="half-a-head"),
        pytest.param(RESPONSE[:-1], "in the middle of the response", id="half-a-body"),
        pytest.param(CHUNKED + chunk(b"a"), "in the middle of the response", id="between-chunks"),
    ],
)
async def test_incomplete_response_reports_where_it_ended(before: bytes, words: str) -> None:
    for how, ends in (
        ("the server closed the connection", FakeTransport.receive_eof),
        ("Connection reset by peer", lambda it: it.abort(ConnectionResetError(104, "Connection reset by peer"))),
    ):  # fmt: skip
        connection, other = connected()
        connection.send(GET)
        if before:
            other.receive(before)
        ends(other)
        with pytest.raises(ConnectionLost, match=f"{how} {words}"):
            await connection.read_response()
        assert not connection.usable


async def test_response_without_length_ends_with_the_connection() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(b"HTTP/1.0 200 OK\r\n\r\nabc")
    other.receive_eof()

    assert (await connection.read_response()).take() == b"abc"
    assert not connection.usable


async def test_malformed_http_closes_the_connection() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(b"SSH-2.0-OpenSSH\r\n")

    assert other.closing
    with pytest.raises(ResponseError):
        await connection.read_response()


async def test_stream_is_read_chunk_by_chunk() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(CHUNKED)
    assert (await connection.read_header()).status == 200
    reading = asyncio.create_task(connection.read_chunk())
    await asyncio.sleep(1)
    other.receive(chunk(b"a"))
    assert await reading == b"a"
    other.receive(chunk(b"b") + chunk(b"c"))
    other.receive(b"0\r\n\r\n")

    assert [await connection.read_chunk() for _ in range(3)] == [b"bc", b"", b""]
    assert connection.usable


async def test_broken_stream_returns_received_bytes_first() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(CHUNKED + chunk(b"a"))
    other.receive_eof()
    await connection.read_header()

    assert await connection.read_chunk() == b"a"
    with pytest.raises(ConnectionLost):
        await connection.read_chunk()


async def test_unread_stream_pauses_the_socket() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(CHUNKED)
    await connection.read_header()
    other.receive(chunk(b"x" * 256 * 1024))
    assert other.reading
    other.receive(chunk(b"x"))
    assert not other.reading

    assert len(await connection.read_chunk()) == 256 * 1024 + 1
    assert other.reading


async def test_closed_connection_is_not_read_again() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(CHUNKED)
    await connection.read_header()
    other.receive(chunk(b"x" * 300 * 1024))
    connection.close()

    assert len(await connection.read_chunk()) == 300 * 1024
    assert not other.reading


async def test_complete_response_is_read_without_pausing() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(HEAD + b"Content-Length: 1000000\r\n\r\n")
    for _ in range(100):
        other.receive(b"x" * 10_000)

    assert len((await connection.read_response()).take()) == 1_000_000


async def test_response_is_read_completely_after_its_header() -> None:
    """An error response to a stream's request."""
    connection, other = connected()
    connection.send(GET)
    other.receive(HEAD + b"Content-Length: 1000000\r\n\r\n")
    await connection.read_header()
    other.receive(b"x" * 500_000)
    assert not other.reading
    reading = asyncio.create_task(connection.read_response())
    await asyncio.sleep(0)
    for _ in range(50):
        other.receive(b"x" * 10_000)

    async with asyncio.timeout(1):
        assert len((await reading).take()) == 1_000_000


async def test_close_fails_the_request_in_flight_and_does_not_wait() -> None:
    lost: list[HttpConnection] = []
    connection = HttpConnection(lost.append)
    other = FakeTransport(connection)
    other.stuck = True
    connection.send(GET)
    waiting = asyncio.create_task(connection.read_response())
    await asyncio.sleep(0)
    connection.close()
    connection.close()

    with pytest.raises(ConnectionLost):
        await waiting
    assert (other.lost, lost) == (True, [connection])


async def test_close_ends_tls_and_does_not_wait_for_its_answer() -> None:
    """The server can then tell the end from an attack that cuts the connection off."""
    connection, tcp = connected()
    tls = FakeTransport(connection)
    tcp.stuck = True
    tcp.write(b"unsent")
    connection.close()
    await asyncio.sleep(0)

    assert (tls.closing, tcp.lost) == (True, True)


PORTIONS = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(
            [HEAD, RESPONSE, CHUNKED, chunk(b"a"), b"0\r\n\r\n", b"\r\n", b"Upgrade: x"]
        ),
    ),
    max_size=8,
)


@given(PORTIONS, st.sampled_from(["whole", "stream"]), st.booleans())
async def test_any_bytes_end_in_a_response_or_an_error(
    portions: list[bytes], how: str, together: bool
) -> None:
    connection, other = connected()
    connection.send(GET)
    reading = asyncio.create_task(_whole(connection) if how == "whole" else _stream(connection))
    for portion in [b"".join(portions)] if together else portions:
        other.receive(portion)
        await asyncio.sleep(0)
    other.receive_eof()
    async with asyncio.timeout(1):
        await asyncio.wait([reading])

    assert isinstance(reading.exception(), (ConnectionLost, ResponseError, type(None)))
    await asyncio.sleep(0)
    assert other.lost


async def _whole(connection: HttpConnection) -> bytes:
    return (await connection.read_response()).take()


async def _stream(connection: HttpConnection) -> bytes:
    await connection.read_header()
    received = b""
    while data := await connection.read_chunk():
        received += data
    return received
