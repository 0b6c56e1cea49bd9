"""One connection, without a socket."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_transport import FakeTransport

from kruise_probe.client.answers import BadResponse
from kruise_probe.client.http1 import UNREAD_BYTES, Broken, HttpConnection

GET = b"GET / HTTP/1.1\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\n"
ANSWER = HEAD + b"Content-Length: 2\r\n\r\n{}"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def connected() -> tuple[HttpConnection, FakeTransport]:
    connection = HttpConnection(lambda _: None)
    return connection, FakeTransport(connection)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def test_requests_follow_each_other_on_one_connection() -> None:
    connection, other = connected()
    for _ in range(3):
        assert connection.usable
        connection.send(GET)
        assert not connection.usable
        assert other.take() == GET
        other.receive(ANSWER[:10])
        other.receive(ANSWER[10:])
        answer = await connection.whole()
        assert (answer.status, answer.take()) == (200, b"{}")


async def test_an_answer_may_come_while_it_is_waited_for() -> None:
    connection, other = connected()
    connection.send(GET)
    waiting = asyncio.create_task(connection.whole())
    await asyncio.sleep(1)
    other.receive(ANSWER)

    assert (await waiting).complete


async def test_a_connection_that_ended_while_idle_is_not_used() -> None:
    for ends in (FakeTransport.receive_eof, FakeTransport.abort, FakeTransport.close):
        connection, other = connected()
        connection.send(GET)
        other.receive(ANSWER)
        await connection.whole()
        ends(other)
        assert not connection.usable
        await asyncio.sleep(0)
        assert not connection.usable


async def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    fresh, other = connected()
    other.receive(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert not fresh.usable

    used, other = connected()
    used.send(GET)
    other.receive(ANSWER)
    await used.whole()
    other.receive(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert not used.usable
    used.close()


async def test_a_connection_that_ended_before_its_first_request_says_so_at_once() -> None:
    """As between its TLS handshake and the step of whoever waited for it."""
    for ends in (FakeTransport.receive_eof, FakeTransport.abort):
        connection, other = connected()
        ends(other)
        await asyncio.sleep(0)
        connection.send(GET)
        with pytest.raises(Broken, match="without an answer"):
            await connection.whole()
        assert other.take() == b""


async def test_an_answer_before_its_request_was_read_leaves_nothing_to_use() -> None:
    connection, other = connected()
    other.stuck = True
    connection.send(GET)
    other.receive(ANSWER)

    assert (await connection.whole()).complete
    assert not connection.usable
    connection.close()
    await asyncio.sleep(0)
    assert other.lost


@pytest.mark.parametrize(
    ("before", "words"),
    [
        pytest.param(b"", "without an answer", id="nothing"),
        pytest.param(HEAD, "without an answer", id="half-a-head"),
        pytest.param(ANSWER[:-1], "in the middle of the answer", id="half-a-body"),
        pytest.param(CHUNKED + chunk(b"a"), "in the middle of the answer", id="between-chunks"),
    ],
)
async def test_an_answer_that_breaks_off_says_where(before: bytes, words: str) -> None:
    for how, ends in (
        ("the server closed the connection", FakeTransport.receive_eof),
        ("Connection reset by peer", lambda it: it.abort(ConnectionResetError(104, "Connection reset by peer"))),
    ):  # fmt: skip
        connection, other = connected()
        connection.send(GET)
        if before:
            other.receive(before)
        ends(other)
        with pytest.raises(Broken, match=f"{how} {words}"):
            await connection.whole()
        assert not connection.usable


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(b"HTTP/1.0 200 OK\r\n\r\nabc")
    other.receive_eof()

    assert (await connection.whole()).take() == b"abc"
    assert not connection.usable


async def test_what_is_no_http_ends_the_connection_at_once() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(b"SSH-2.0-OpenSSH\r\n")

    assert other.closing
    with pytest.raises(BadResponse):
        await connection.whole()


async def test_a_stream_is_read_as_it_comes() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(CHUNKED)
    assert (await connection.head()).status == 200
    reading = asyncio.create_task(connection.portion())
    await asyncio.sleep(1)
    other.receive(chunk(b"a"))
    assert await reading == b"a"
    other.receive(chunk(b"b") + chunk(b"c"))
    other.receive(b"0\r\n\r\n")

    assert [await connection.portion() for _ in range(3)] == [b"bc", b"", b""]
    assert connection.usable


async def test_a_stream_gives_what_it_had_before_it_says_that_it_broke() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(CHUNKED + chunk(b"a"))
    other.receive_eof()
    await connection.head()

    assert await connection.portion() == b"a"
    with pytest.raises(Broken):
        await connection.portion()


async def test_a_stream_that_nobody_reads_is_no_longer_taken_in() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(CHUNKED)
    await connection.head()
    portions = 0
    while other.reading:
        other.receive(chunk(b"x" * 10_000))
        portions += 1

    assert UNREAD_BYTES <= portions * 10_000 < UNREAD_BYTES + 20_000
    assert len(await connection.portion()) == portions * 10_000
    assert other.reading


async def test_a_whole_answer_is_taken_in_however_large() -> None:
    connection, other = connected()
    connection.send(GET)
    other.receive(HEAD + b"Content-Length: 1000000\r\n\r\n")
    for _ in range(100):
        other.receive(b"x" * 10_000)

    assert len((await connection.whole()).take()) == 1_000_000


async def test_closing_ends_what_is_under_way_and_waits_for_nobody() -> None:
    lost: list[HttpConnection] = []
    connection = HttpConnection(lost.append)
    other = FakeTransport(connection)
    other.stuck = True
    connection.send(GET)
    waiting = asyncio.create_task(connection.whole())
    await asyncio.sleep(0)
    connection.close()
    connection.close()

    with pytest.raises(Broken):
        await waiting
    assert (other.lost, lost) == (True, [connection])


PORTIONS = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from([HEAD, ANSWER, CHUNKED, chunk(b"a"), b"0\r\n\r\n", b"\r\n", b"Upgrade: x"]),
    ),
    max_size=8,
)


@given(PORTIONS, st.sampled_from(["whole", "stream"]), st.booleans())
async def test_whatever_a_server_sends_ends_in_an_answer_or_in_an_error(
    portions: list[bytes], how: str, together: bool
) -> None:
    connection, other = connected()
    connection.send(GET)
    asked = asyncio.create_task(_whole(connection) if how == "whole" else _stream(connection))
    for portion in [b"".join(portions)] if together else portions:
        other.receive(portion)
        await asyncio.sleep(0)
    other.receive_eof()
    async with asyncio.timeout(1):
        await asyncio.wait([asked])

    assert isinstance(asked.exception(), (Broken, BadResponse, type(None)))
    await asyncio.sleep(0)
    assert other.lost


async def _whole(connection: HttpConnection) -> bytes:
    return (await connection.whole()).take()


async def _stream(connection: HttpConnection) -> bytes:
    await connection.head()
    received = b""
    while data := await connection.portion():
        received += data
    return received
