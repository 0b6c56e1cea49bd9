"""Responses on a connection: any portions of bytes, ends, and limits."""

import asyncio
import gzip
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases
from support.fake_transport import FakeTransport

from kruise_probe.api.errors import ConnectionFailed, ResponseTooLarge
from kruise_probe.client.connection import (
    MAX_BODY_BYTES,
    MAX_FRAMING_BYTES,
    UNREAD_BYTES,
    ConnectionBroken,
    HttpConnection,
)
from kruise_probe.wire.responses import InvalidResponse, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BY_END = OK + b"Connection: close\r\n\r\n"
BODY = b"hello, world"
PACKED = gzip.compress(BODY, mtime=0)


def sized(body: bytes, *fields: bytes) -> bytes:
    head = [OK.strip(), b"Content-Length: %d" % len(body), *fields, b"", b""]
    return b"\r\n".join(head) + body


def encoded(encoding: bytes, body: bytes) -> bytes:
    return sized(body, b"Content-Encoding: " + encoding)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    places = len(data) + 1
    ends = sorted(place % places for place in at)
    for start, end in pairwise([0, *ends, len(data)]):
        if start < end:
            yield data[start:end]


def sent(received: bytes = b"") -> tuple[HttpConnection, FakeTransport]:
    """A connection on which a request was sent, and this was received."""
    connection = HttpConnection()
    server = FakeTransport(connection)
    connection.send(b"GET")
    if received:
        server.receive(received)
    return connection, server


RESPONSES = {
    "content-length": (sized(BODY), BODY, True),
    "empty": (sized(b""), b"", True),
    "chunked": (CHUNKED + chunk(BODY) + chunk(b""), BODY, True),
    "trailer": (CHUNKED + chunk(BODY) + b"0\r\nContent-Encoding: br\r\n\r\n", BODY, True),
    "interim": (INTERIM + INTERIM + sized(BODY), BODY, True),
    "closes": (sized(BODY, b"Connection: close"), BODY, False),
    "gzip": (sized(PACKED, b"content-encoding: GZIP"), BODY, True),
    "gzip-of-nothing": (encoded(b"gzip", b""), b"", True),
    "identity": (encoded(b"identity", BODY), BODY, True),
    "until-the-end": (BY_END + BODY, BODY, False),
}


@cases("data body reusable", **RESPONSES)
@given(at=st.lists(st.integers(min_value=0), max_size=8))
def test_response_is_read_in_any_portions(
    data: bytes,
    body: bytes,
    reusable: bool,
    at: list[int],
) -> None:
    async def exchange() -> None:
        connection, server = sent()
        reading = asyncio.create_task(connection.read_body(compressed=True))
        for portion in cut(data, at):
            server.receive(portion)
            await asyncio.sleep(0)
        if data.startswith(BY_END):
            server.receive_eof()
        assert await reading == body
        assert connection.usable == reusable

    asyncio.run(exchange())


@cases("data body reusable", **RESPONSES)
def test_truncated_response_is_an_error(data: bytes, body: bytes, reusable: bool) -> None:
    async def exchange(part: bytes) -> None:
        connection, server = sent(part)
        server.receive_eof()
        with pytest.raises(ConnectionFailed):
            await connection.read_body(compressed=True)

    for end in range(len(data)):
        part = data[:end]
        if not part.startswith(BY_END):  # only the end itself can end that one
            asyncio.run(exchange(part))


FRAGMENTS = st.sampled_from(
    [
        OK,
        b"HTTP/1.1 ",
        b"101 x",
        b"204\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"Content-Length: 3",
        b": ",
        b"0",
        b"Transfer-Encoding: chunked",
        b"Content-Encoding: gzip",
        PACKED,
        b"Connection: close",
        b"\0",
        b"Upgrade: h2c\r\nConnection: upgrade\r\n",
        b"ffffffffffffffff\r\n",
        b"-1",
        INTERIM,
        b"a",
    ]
)


@given(
    st.one_of(st.binary(max_size=300), st.lists(FRAGMENTS, max_size=12).map(b"".join)),
    st.lists(st.integers(min_value=0), max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_arbitrary_bytes_end_in_a_response_or_an_error(
    data: bytes,
    at: list[int],
    tunnel: bool,
    upgrade: bool,
) -> None:
    parser = ResponseParser(
        max_framing_bytes=MAX_FRAMING_BYTES,
        tunnel=tunnel,
        upgrade=upgrade,
    )
    with suppress(InvalidResponse):
        for portion in cut(data, at):
            parser.feed(portion)
            parser.body.clear()
        if parser.end():
            assert 101 <= parser.status <= 999


UNUSABLE = {
    "not-http": (b"SSH-2.0-OpenSSH\r\n", "not valid HTTP"),
    "101": (b"HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "protocol"),
    "brotli": (encoded(b"br", BODY), "'br' was not requested"),
    "no-gzip": (encoded(b"gzip", BODY), "gzip body is invalid"),
    "half-gzip": (encoded(b"gzip", PACKED[:-3]), "truncated"),
    "two-lengths": (sized(b"", b"Content-Length: 5"), "not valid HTTP"),
}


@cases("data words", **UNUSABLE)
async def test_unusable_response_names_its_problem(data: bytes, words: str) -> None:
    connection, _ = sent(data)
    with pytest.raises(InvalidResponse, match=words):
        await connection.read_body(compressed=True)


async def test_compression_that_was_not_requested_is_an_error() -> None:
    connection, _ = sent(encoded(b"gzip", PACKED))
    with pytest.raises(InvalidResponse, match="'gzip' was not requested"):
        await connection.read_body()


@cases(
    "endless",
    one_field=[OK, b"a: ", *[b"b" * 1000] * 1000],
    interim_responses=[INTERIM * 10] * 2000,
    trailers=[CHUNKED, b"0\r\n", *[b"a: b\r\n" * 100] * 1000],
    empty_lines=[b"\r\n" * 100] * 5000,
)
async def test_bytes_outside_the_body_are_limited(endless: list[bytes]) -> None:
    connection, server = sent()
    for portion in endless:
        server.receive(portion)
    with pytest.raises(InvalidResponse, match=f"exceeds {MAX_FRAMING_BYTES} bytes"):
        await connection.read_body()
    assert server.closing


@pytest.mark.parametrize("packed", [False, True])
async def test_body_is_limited(packed: bool) -> None:
    """Also a decompression bomb."""
    body = bytes(MAX_BODY_BYTES + 1)
    data = encoded(b"gzip", gzip.compress(body, 1)) if packed else sized(body)
    connection, server = sent()
    reading = asyncio.create_task(connection.read_body(compressed=True))
    for begin in range(0, len(data), UNREAD_BYTES):
        server.receive(data[begin : begin + UNREAD_BYTES])
        await asyncio.sleep(0)
    with pytest.raises(ResponseTooLarge):
        await reading


async def test_unread_body_pauses_the_socket_and_reading_resumes_it() -> None:
    connection, server = sent(CHUNKED)
    part = bytes(UNREAD_BYTES // 2 + 1)
    server.receive(chunk(part))
    assert server.reading
    server.receive(chunk(part))
    assert not server.reading
    assert await connection.read_chunk() == part * 2
    assert server.reading


@cases(
    "before words",
    nothing=(b"", "before a response"),
    half_a_head=(sized(BODY)[:20], "before a response"),
    half_a_body=(sized(BODY)[:-1], "in the middle of the response"),
    between_chunks=(CHUNKED + chunk(b"a"), "in the middle of the response"),
)
@cases(
    "error reason",
    closed=(None, "the connection was closed"),
    os_error=(ConnectionResetError(104, "reset"), "reset"),
    one_line=(ValueError("a\nb"), "a b"),
    without_text=(ValueError(), "ValueError"),
)
async def test_lost_connection_has_its_reason_and_place(
    before: bytes,
    words: str,
    error: Exception | None,
    reason: str,
) -> None:
    connection, server = sent(before)
    server.abort(error)
    await asyncio.sleep(0)
    with pytest.raises(ConnectionBroken) as raised:
        await connection.read_body()
    assert str(raised.value) == f"{reason} {words}"


async def test_stream_returns_received_bytes_before_its_error() -> None:
    connection, server = sent(CHUNKED + chunk(b"a"))
    server.receive_eof()
    assert await connection.read_chunk() == b"a"
    with pytest.raises(ConnectionBroken):
        await connection.read_chunk()


async def test_unsolicited_bytes_close_an_idle_connection() -> None:
    connection = HttpConnection()
    server = FakeTransport(connection)
    server.receive(b"HTTP/1.1 408 Timeout\r\n\r\n")
    assert server.closing
    assert not connection.usable


async def test_bytes_after_a_response_prevent_reuse() -> None:
    connection, _ = sent(sized(BODY) + b"HTTP/1.1 408 Timeout\r\n\r\n")
    assert await connection.read_body() == BODY
    assert not connection.usable


async def test_early_response_prevents_reuse() -> None:
    """The server has not read the whole request."""
    connection = HttpConnection()
    server = FakeTransport(connection)
    server.stuck = True
    connection.send(b"POST")
    server.receive(sized(BODY))
    assert await connection.read_body() == BODY
    assert not connection.usable
