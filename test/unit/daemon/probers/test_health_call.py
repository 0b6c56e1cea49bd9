import contextlib

import h2.config
import h2.connection
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.daemon.probers.health_call import CallResult, HealthCall, serving_state


def call() -> HealthCall:
    return HealthCall(
        service="", authority="10.0.0.1:80", scheme="http", user_agent="x", timeout_seconds=1
    )


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (b"", "UNKNOWN"),
        (b"\x08\x01", "SERVING"),
        (b"\x08\x02", "NOT_SERVING"),
        (b"\x08\x03", "SERVICE_UNKNOWN"),
        (b"\x08\x09", "9"),
        pytest.param(b"\x08" + 9 * b"\xff" + b"\x01", "-1", id="negative"),
        (b"\x12\x02hi\x08\x01", "SERVING"),
    ],
)
def test_states_are_named_as_in_the_protocol(message: bytes, state: str) -> None:
    assert serving_state(b"\0" + len(message).to_bytes(4) + message) == state


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\1\0\0\0\2\x08\x01",
        b"\0\0\0\0\1\x08",
        b"\0\0\0\0\2\x0f\0",
        pytest.param(b"\0\0\0\0\x03\x08\x01", id="cut-off"),
        pytest.param(2 * b"\0\0\0\0\x02\x08\x01", id="two-of-them"),
        pytest.param(b"\0\x7f\xff\xff\xff\x08\x01", id="too-large"),
    ],
)
def test_other_messages_are_errors(frame: bytes) -> None:
    with pytest.raises(ValueError, match=r"grpc|cardinality|unexpected EOF"):
        serving_state(frame)


@given(st.binary(max_size=64))
def test_any_message_has_a_state_or_is_an_error(message: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert serving_state(b"\0" + len(message).to_bytes(4) + message)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=5))
def test_any_bytes_and_an_end_make_a_result(pieces: list[bytes]) -> None:
    started = call()
    for piece in (*pieces, b""):
        started.feed(piece)

    assert isinstance(started.result, CallResult)
    assert started.result.serving == ""


def test_an_end_before_any_answer_is_not_a_connection() -> None:
    started = call()

    started.feed(b"")

    assert not started.connected
    assert started.result == CallResult("Unavailable", "error reading from server: EOF")


SERVING = CallResult("OK", serving="SERVING")
ERROR_FREE_FAREWELL = b"\0\0\x08\x07\0\0\0\0\0" + (1).to_bytes(4) + (0).to_bytes(4)


def answer_of(asked: HealthCall, *, farewell: bytes) -> bytes:
    """What a server says that first takes leave and then answers SERVING."""
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    _ = server.receive_data(asked.bytes_to_send())
    greeting = server.data_to_send()
    server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
    server.send_data(1, b"\0\0\0\0\x02\x08\x01")
    server.send_headers(1, [("grpc-status", "0")], end_stream=True)
    return bytes(greeting + farewell + server.data_to_send())


@given(st.integers(1, 200))
def test_a_server_that_takes_leave_may_still_answer(piece_bytes: int) -> None:
    asked = call()
    answer = answer_of(asked, farewell=ERROR_FREE_FAREWELL)
    for at in range(0, len(answer), piece_bytes):
        asked.feed(answer[at : at + piece_bytes])

    assert asked.connected
    assert asked.result == SERVING


@pytest.mark.parametrize(
    ("last_stream", "error"), [(0, 0), (1, 2)], ids=["before our call", "for an error"]
)
def test_a_server_that_leaves_has_not_answered(last_stream: int, error: int) -> None:
    asked = call()
    farewell = b"\0\0\x08\x07\0\0\0\0\0" + last_stream.to_bytes(4) + error.to_bytes(4)
    asked.feed(answer_of(asked, farewell=farewell))

    assert asked.result is not None
    assert asked.result.code == "Unavailable"


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (0, "Internal", "NO_ERROR"),
        (1, "Internal", "PROTOCOL_ERROR"),
        (7, "Unavailable", "REFUSED_STREAM"),
        (8, "Canceled", "CANCEL"),
        (11, "ResourceExhausted", "ENHANCE_YOUR_CALM"),
        (99, "Unknown", "unknown error code 0x63"),
    ],
)
def test_a_reset_is_told_by_its_name_and_code(error: int, code: str, name: str) -> None:
    asked = call()
    asked.feed(b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\3\0\0\0\0\1" + error.to_bytes(4))

    text = f"stream terminated by RST_STREAM with error code: {name}"
    assert asked.result == CallResult(code, text)


def headers_frame(*headers: tuple[bytes, bytes], ends: bool = False) -> bytes:
    block = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in headers
    )
    return len(block).to_bytes(3) + bytes((1, 5 if ends else 4)) + (1).to_bytes(4) + block


GREETING = b"\0\0\0\4\0\0\0\0\0"
STATUS_200 = (b":status", b"200")
GRPC = (b"content-type", b"application/grpc")


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;x=y"])
def test_a_subtype_is_grpc_too(content_type: str) -> None:
    asked = call()
    answer = headers_frame(STATUS_200, (b"content-type", content_type.encode()))
    asked.feed(GREETING + answer)

    assert asked.result is None


def test_what_only_begins_like_grpc_is_none() -> None:
    asked = call()
    answer = headers_frame(STATUS_200, (b"content-type", b"application/grpc-web"))
    asked.feed(GREETING + answer)

    assert asked.result == CallResult(
        "Unknown",
        "unexpected HTTP status code received from server: 200 (OK); "
        'transport: received unexpected content-type "application/grpc-web"',
    )


@pytest.mark.parametrize(
    ("trailer", "description"),
    [
        ((b"x", b"y"), ""),
        (
            (b"grpc-status", b"abc"),
            'transport: malformed grpc-status: strconv.ParseInt: parsing "abc": invalid syntax',
        ),
    ],
    ids=["none", "no number"],
)
def test_trailers_without_a_status(trailer: tuple[bytes, bytes], description: str) -> None:
    asked = call()
    asked.feed(GREETING + headers_frame(STATUS_200, GRPC) + headers_frame(trailer, ends=True))

    assert asked.result == CallResult("Unknown", description)


def test_broken_headers_have_the_same_words_each_time() -> None:
    asked = call()
    asked.feed(GREETING + (6).to_bytes(3) + b"\x01\x04\0\0\0\x01" + 6 * b"\xff")

    assert asked.result is not None
    assert "0x" not in asked.result.description
