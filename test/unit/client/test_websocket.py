"""WebSocket messages in any portions, limits of a hostile server, and the handshake."""

import asyncio
import base64
import hashlib
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kruise_probe.client.request import Request
from kruise_probe.client.transport import Response, ResponseStream
from kruise_probe.client.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Handshake,
    Message,
    MessageParser,
    ProtocolError,
    WebSocket,
    encode,
)


def frame(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """A frame as a server sends it: without a mask."""
    size = len(payload)
    first = bytes((opcode | (0x80 if final else 0),))
    if size < 126:
        return first + bytes((size,)) + payload
    if size < 1 << 16:
        return first + b"\x7e" + size.to_bytes(2, "big") + payload
    return first + b"\x7f" + size.to_bytes(8, "big") + payload


def parsed(data: bytes, at: list[int], **limits: int) -> list[Message]:
    """`data` in portions that begin at each of `at`."""
    parser, found = MessageParser(**limits), []
    places = sorted({0, *(each % (len(data) + 1) for each in at), len(data)})
    for start, stop in pairwise(places):
        parser.feed(data[start:stop])
        while message := parser.next():
            found.append(message)
    return found


CUTS = st.lists(st.integers(min_value=0), max_size=8)
MESSAGES = st.lists(
    st.one_of(
        st.builds(Message, st.sampled_from([TEXT, BINARY]), st.binary(max_size=300)),
        st.builds(Message, st.just(BINARY), st.just(b"x" * 70_000)),
        st.builds(Message, st.sampled_from([PING, CLOSE]), st.binary(max_size=125)),
    ),
    max_size=5,
)


@given(messages=MESSAGES, at=CUTS)
def test_messages_are_parsed_in_any_portions(messages: list[Message], at: list[int]) -> None:
    data = b"".join(frame(*each) for each in messages)
    assert parsed(data, at) == messages


@given(st.binary(max_size=70_000))
@example(b"x" * 125)
@example(b"x" * 126)
@example(b"x" * 65_535)
@example(b"x" * 65_536)
def test_frame_of_the_client_is_masked_and_has_the_payload(payload: bytes) -> None:
    data = encode(BINARY, payload)
    size = data[1] & 0x7F
    assert data[0] == 0x80 | BINARY
    assert data[1] & 0x80
    start = {126: 4, 127: 10}.get(size, 2)
    assert start == (2 if len(payload) <= 125 else 4 if len(payload) < 65_536 else 10)
    assert len(payload) == (size if start == 2 else int.from_bytes(data[2:start]))
    mask, masked = data[start : start + 4], data[start + 4 :]
    assert bytes(each ^ mask[place % 4] for place, each in enumerate(masked)) == payload


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\x82\x81mask1", "masked", id="masked"),
        pytest.param(b"\xc2\x00", "unknown type", id="extension"),
        pytest.param(b"\x83\x00", "unknown type", id="reserved-opcode"),
        pytest.param(b"\x80\x00", "out of order", id="continues-nothing"),
        pytest.param(b"\x02\x00\x82\x00", "out of order", id="another-message-inside"),
        pytest.param(b"\x09\x00", "control frame", id="fragmented-ping"),
        pytest.param(b"\x89\x7e\x00\x7e", "control frame", id="long-ping"),
        pytest.param(b"\x08\x00", "control frame", id="fragmented-close"),
        pytest.param(b"\x88\x7e\x00\x7e", "control frame", id="long-close"),
        pytest.param(b"\x82\x7f" + b"\xff" * 8, "exceeds 100 bytes", id="endless"),
        pytest.param(
            frame(BINARY, b"x" * 60, final=False) + frame(CONTINUATION, b"x" * 60),
            "exceeds 100 bytes",
            id="too-long-in-fragments",
        ),
    ],
)
def test_malformed_frame_is_refused_before_its_payload_arrives(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        parsed(data, [], max_message_bytes=100)


def key_of(handshake: Handshake) -> str:
    fields = dict(
        each.split(": ", 1) for each in handshake.header_lines.split("\r\n") if ": " in each
    )
    assert fields["Upgrade"] == "websocket"
    assert fields["Sec-WebSocket-Protocol"] == "v4"
    return fields["Sec-WebSocket-Key"]


@pytest.mark.parametrize(
    ("accept", "protocol", "problem"),
    [
        pytest.param(True, "v4", "", id="agreed"),
        pytest.param(False, "v4", "status 101 instead of a WebSocket", id="another-key"),
        pytest.param(True, "v5", "does not support the protocol v4", id="another-protocol"),
        pytest.param(True, None, "does not support the protocol v4", id="no-protocol"),
    ],
)
def test_handshake_requires_the_key_and_the_protocol(
    accept: bool, protocol: str | None, problem: str
) -> None:
    handshake = Handshake("v4")
    key = key_of(handshake) if accept else "another"
    digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
    fields = {"sec-websocket-accept": base64.b64encode(digest).decode()}
    if protocol:
        fields["sec-websocket-protocol"] = protocol
    found = handshake.problem(Response(101, headers=fields))
    assert problem in found
    assert bool(problem) == bool(found)


class OneRead:
    """A stream whose first read has all data."""

    def __init__(self, data: bytes) -> None:
        self._chunks = [data, b""]
        self.written: list[bytes] = []

    async def read_chunk(self, *, deadline_seconds: float) -> bytes:
        return self._chunks.pop(0)

    def write(self, data: bytes) -> None:
        self.written.append(data)


def socket_on(stream: OneRead) -> WebSocket:
    return WebSocket(cast(ResponseStream, stream), Request("GET", "/", "exec"))


async def test_receive_answers_pings_ignores_pongs_and_ends_at_a_close() -> None:
    stream = OneRead(
        frame(PING, b"now") + frame(PONG, b"") + frame(TEXT, b"a") + frame(CLOSE, b"") + b"\xff"
    )
    socket = socket_on(stream)
    assert [await socket.receive(deadline_seconds=1) for _ in range(2)] == [b"a", None]
    (pong,) = stream.written
    assert pong[:2] == bytes((0x8A, 0x80 | 3))
    assert bytes(each ^ mask for each, mask in zip(pong[6:], pong[2:6], strict=False)) == b"now"


async def test_receive_yields_to_the_loop_after_each_message_of_one_read(looptime: float) -> None:
    passes = 0
    received = False

    def count() -> None:
        nonlocal passes
        passes += 1
        if not received:
            asyncio.get_running_loop().call_soon(count)

    count()
    socket = socket_on(OneRead(frame(PONG, b"") * 100 + frame(BINARY, b"last")))
    assert await socket.receive(deadline_seconds=1) == b"last"
    received = True

    assert passes >= 100
    assert looptime == 0
