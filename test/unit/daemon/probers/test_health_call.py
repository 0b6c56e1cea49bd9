import contextlib

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
        (b"\x12\x02hi\x08\x01", "SERVING"),
    ],
)
def test_states_are_named_as_in_the_protocol(message: bytes, state: str) -> None:
    assert serving_state(b"\0" + len(message).to_bytes(4) + message) == state


@pytest.mark.parametrize(
    "frame", [b"", b"\1\0\0\0\2\x08\x01", b"\0\0\0\0\1\x08", b"\0\0\0\0\2\x0f\0"]
)
def test_other_messages_are_errors(frame: bytes) -> None:
    with pytest.raises(ValueError, match=r"grpc|cardinality"):
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
