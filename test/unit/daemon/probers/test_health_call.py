import contextlib

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kruise_probe.daemon.probers.health_call import CallResult, HealthCall, serving_status


def call() -> HealthCall:
    return HealthCall(
        service="", authority="10.0.0.1:80", scheme="http", user_agent="x", timeout_seconds=1
    )


@pytest.mark.parametrize(
    ("timeout_seconds", "on_wire"),
    [(1, b"1000m"), (1.5, b"1500m"), pytest.param(0.0001, b"1m", id="at-least-one")],
)
def test_request_is_that_of_the_health_protocol(timeout_seconds: float, on_wire: bytes) -> None:
    started = HealthCall(
        service="shop",
        authority="10.0.0.1:80",
        scheme="https",
        user_agent="kruise-probe/1",
        timeout_seconds=timeout_seconds,
    )
    configuration = h2.config.H2Configuration(client_side=False, header_encoding=None)
    server = h2.connection.H2Connection(configuration)
    server.initiate_connection()
    events = server.receive_data(started.bytes_to_send())
    (request,) = (each for each in events if isinstance(each, h2.events.RequestReceived))
    (data,) = (each for each in events if isinstance(each, h2.events.DataReceived))

    assert dict(request.headers or ()) == {
        b":method": b"POST",
        b":scheme": b"https",
        b":path": b"/grpc.health.v1.Health/Check",
        b":authority": b"10.0.0.1:80",
        b"content-type": b"application/grpc",
        b"user-agent": b"kruise-probe/1",
        b"te": b"trailers",
        b"grpc-timeout": on_wire,
    }
    assert data.data == b"\0\0\0\0\x06\x0a\x04shop"
    assert data.stream_ended is not None


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
    assert serving_status(b"\0" + len(message).to_bytes(4) + message) == state


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
        serving_status(frame)


def test_message_of_4_mib_is_not_too_large() -> None:
    with pytest.raises(ValueError, match="unexpected EOF"):
        serving_status(b"\0" + (4 << 20).to_bytes(4))
    with pytest.raises(ValueError, match=r"larger than max \(4194305 vs. 4194304\)"):
        serving_status(b"\0" + ((4 << 20) + 1).to_bytes(4))


@given(st.binary(max_size=64))
def test_any_message_has_a_state_or_is_an_error(message: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert serving_status(b"\0" + len(message).to_bytes(4) + message)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=5))
def test_any_bytes_and_an_end_make_a_result(pieces: list[bytes]) -> None:
    started = call()
    for piece in (*pieces, b""):
        started.feed(piece)

    assert isinstance(started.result, CallResult)
    assert started.result.serving == ""


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b":status", b"content-type", b"grpc-status", b"grpc-message"]),
            st.sampled_from([b"", b"200", b"0", b"application/grpc", b"-1", b"7" * 5000])
            | st.text(st.characters(codec="latin-1"), max_size=8).map(str.encode),
        ),
        min_size=1,
        max_size=5,
    )
)
@example([(b":status", b"7" * 5000)])
@example(
    [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", b"7" * 5000)]
)
def test_any_header_values_and_an_end_make_a_result(headers: list[tuple[bytes, bytes]]) -> None:
    started = call()
    server = h2.connection.H2Connection(
        h2.config.H2Configuration(
            client_side=False,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    server.initiate_connection()
    _ = server.receive_data(started.bytes_to_send())
    with contextlib.suppress(h2.exceptions.ProtocolError):
        server.send_headers(1, headers, end_stream=True)
    started.feed(server.data_to_send())
    started.feed(b"")

    assert isinstance(started.result, CallResult)
    assert started.result.serving == ""


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param("14", "Unavailable", id="known"),
        pytest.param("0014", "Unavailable", id="zeros"),
        pytest.param("16", "Unauthenticated", id="last-known"),
        pytest.param("17", "Code(17)", id="first-unknown"),
        pytest.param("2147483647", "Code(2147483647)", id="all-of-32-bits"),
        pytest.param("2147483648", "Unknown", id="more-than-32-bits"),
        pytest.param("9" * 5000, "Unknown", id="thousands-of-digits"),
        pytest.param("x", "Unknown", id="no-number"),
    ],
)
def test_status_is_a_number_of_32_bits(status: str, code: str) -> None:
    started = call()
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    _ = server.receive_data(started.bytes_to_send())
    head = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", status)]
    server.send_headers(1, head, end_stream=True)
    started.feed(server.data_to_send())

    assert started.result is not None
    assert started.result.code == code


def test_end_before_any_response_is_not_connected() -> None:
    started = call()

    started.feed(b"")

    assert not started.connected
    assert started.result == CallResult("Unavailable", "error reading from server: EOF")


SERVING = CallResult("OK", serving="SERVING")


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return len(content).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + content


def goaway_frame(*, last_stream: int, error: int, text: bytes = b"") -> bytes:
    return frame(7, 0, 0, last_stream.to_bytes(4) + error.to_bytes(4) + text)


def response_to(call_in_flight: HealthCall, *, goaway: bytes) -> bytes:
    """The bytes of a server that sends a GOAWAY and then responds SERVING."""
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    server.initiate_connection()
    _ = server.receive_data(call_in_flight.bytes_to_send())
    greeting = server.data_to_send()
    server.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
    server.send_data(1, b"\0\0\0\0\x02\x08\x01")
    server.send_headers(1, [("grpc-status", "0")], end_stream=True)
    return bytes(greeting + goaway + server.data_to_send())


@given(
    st.integers(1, 200),
    st.sampled_from([1, 3, 2**31 - 1]),
    st.sampled_from([0, 2, 11]),
    st.sampled_from([b"", b"bye"]),
)
def test_response_after_a_goaway_that_includes_the_call_counts(
    piece_bytes: int, last_stream: int, error: int, text: bytes
) -> None:
    call_in_flight = call()
    goaway = goaway_frame(last_stream=last_stream, error=error, text=text)
    response = response_to(call_in_flight, goaway=goaway)
    for at in range(0, len(response), piece_bytes):
        call_in_flight.feed(response[at : at + piece_bytes])

    assert call_in_flight.connected
    assert call_in_flight.result == SERVING


@pytest.mark.parametrize("error", [0, 11])
def test_goaway_before_the_call_is_unavailable(error: int) -> None:
    call_in_flight = call()
    goaway = goaway_frame(last_stream=0, error=error)
    call_in_flight.feed(response_to(call_in_flight, goaway=goaway))

    assert call_in_flight.connected
    assert call_in_flight.result == CallResult("Unavailable", "the connection is draining")


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (0, "Internal", "NO_ERROR"),
        (1, "Internal", "PROTOCOL_ERROR"),
        (7, "Unavailable", "REFUSED_STREAM"),
        (8, "Canceled", "CANCEL"),
        (11, "ResourceExhausted", "ENHANCE_YOUR_CALM"),
        (13, "Internal", "HTTP_1_1_REQUIRED"),
        (14, "Unknown", "unknown error code 0xe"),
        (99, "Unknown", "unknown error code 0x63"),
    ],
)
def test_reset_is_reported_with_name_and_code(error: int, code: str, name: str) -> None:
    call_in_flight = call()
    call_in_flight.feed(b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\3\0\0\0\0\1" + error.to_bytes(4))

    text = f"stream terminated by RST_STREAM with error code: {name}"
    assert call_in_flight.result == CallResult(code, text)


def headers_frame(*headers: tuple[bytes, bytes], ends: bool = False, stream: int = 1) -> bytes:
    block = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in headers
    )
    return frame(1, 5 if ends else 4, stream, block)


GREETING = b"\0\0\0\4\0\0\0\0\0"
STATUS_200 = (b":status", b"200")
GRPC = (b"content-type", b"application/grpc")
OK_TRAILERS = headers_frame((b"grpc-status", b"0"), ends=True)


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;x=y"])
def test_a_subtype_is_grpc_too(content_type: str) -> None:
    call_in_flight = call()
    response = headers_frame(STATUS_200, (b"content-type", content_type.encode()))
    call_in_flight.feed(GREETING + response)

    assert call_in_flight.result is None


def test_content_type_that_begins_like_grpc_is_not_grpc() -> None:
    call_in_flight = call()
    response = headers_frame(STATUS_200, (b"content-type", b"application/grpc-web"))
    call_in_flight.feed(GREETING + response)

    assert call_in_flight.result == CallResult(
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
        (
            (b"grpc-status", b"2147483648"),
            'transport: malformed grpc-status: strconv.ParseInt: parsing "2147483648": value out of range',
        ),
    ],
    ids=["none", "no number", "too large"],
)
def test_trailers_without_a_valid_status(trailer: tuple[bytes, bytes], description: str) -> None:
    call_in_flight = call()
    call_in_flight.feed(
        GREETING + headers_frame(STATUS_200, GRPC) + headers_frame(trailer, ends=True)
    )

    assert call_in_flight.result == CallResult("Unknown", description)


def test_malformed_headers_have_a_stable_message() -> None:
    call_in_flight = call()
    call_in_flight.feed(GREETING + (6).to_bytes(3) + b"\x01\x04\0\0\0\x01" + 6 * b"\xff")

    assert call_in_flight.result is not None
    assert "0x" not in call_in_flight.result.description


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "Internal"),
        (401, "Unauthenticated"),
        (403, "PermissionDenied"),
        (404, "Unimplemented"),
        (429, "Unavailable"),
        (500, "Unknown"),
        (502, "Unavailable"),
        (503, "Unavailable"),
        (504, "Unavailable"),
    ],
)
def test_http_status_has_the_code_of_the_grpc_specification(status: int, code: str) -> None:
    """doc/http-grpc-status-mapping.md of gRPC."""
    call_in_flight = call()
    call_in_flight.feed(GREETING + headers_frame((b":status", b"%d" % status)))

    assert call_in_flight.result is not None
    assert call_in_flight.result.code == code


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([(b":status", b"404")], "404 (Not Found); malformed header: missing HTTP content-type"),
        ([(b":status", b"999")], "999 (); malformed header: missing HTTP content-type"),
        (
            [(b":status", b"503"), (b"content-type", b"text/html")],
            '503 (Service Unavailable); transport: received unexpected content-type "text/html"',
        ),
    ],
)
def test_response_of_another_protocol_has_the_text_of_go(
    headers: list[tuple[bytes, bytes]], text: str
) -> None:
    call_in_flight = call()
    call_in_flight.feed(GREETING + headers_frame(*headers))

    assert call_in_flight.result is not None
    assert call_in_flight.result.description == (
        f"unexpected HTTP status code received from server: {text}"
    )


def data_frame(data: bytes, *, stream: int = 1) -> bytes:
    return frame(0, 0, stream, data)


SERVING_MESSAGE = b"\0\0\0\0\x02\x08\x01"
PING = frame(6, 0, 0, b"are you?")
ZERO_WINDOW_UPDATE = frame(8, 0, 0, bytes(4))
"""HTTP/2 forbids it."""


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(ZERO_WINDOW_UPDATE, id="window-update-0"),
        pytest.param(headers_frame((b"x", b"y")), id="headers"),
        pytest.param(goaway_frame(last_stream=0, error=11) + PING, id="goaway"),
        pytest.param(120 * PING, id="too-many-frames"),
    ],
)
def test_bytes_after_the_response_do_not_count(rest: bytes) -> None:
    call_in_flight = call()
    response = headers_frame(STATUS_200, GRPC) + data_frame(SERVING_MESSAGE) + OK_TRAILERS
    call_in_flight.feed(GREETING + response + rest)

    assert call_in_flight.connected
    assert call_in_flight.result == SERVING


@pytest.mark.parametrize("reads", [[GREETING + ZERO_WINDOW_UPDATE], [GREETING, ZERO_WINDOW_UPDATE]])
def test_error_does_not_depend_on_the_reads(reads: list[bytes]) -> None:
    call_in_flight = call()
    for data in reads:
        call_in_flight.feed(data)

    text = "error reading from server: http2: Received frame with non-compliant data"
    assert call_in_flight.connected
    assert call_in_flight.result == CallResult("Unavailable", text)


def test_server_begins_with_its_settings() -> None:
    call_in_flight = call()
    response = headers_frame(STATUS_200, GRPC) + data_frame(SERVING_MESSAGE) + OK_TRAILERS
    call_in_flight.feed(response + GREETING)

    text = "error reading server preface: http2: initial frame from server is not a settings frame"
    assert not call_in_flight.connected
    assert call_in_flight.result == CallResult("Unavailable", text)


def test_response_on_another_stream_does_not_count() -> None:
    call_in_flight = call()
    call_in_flight.feed(
        GREETING
        + headers_frame(STATUS_200, GRPC, stream=2)
        + data_frame(b"x", stream=2)
        + headers_frame((b"grpc-status", b"5"), ends=True, stream=2)
    )
    assert call_in_flight.result is None
    call_in_flight.feed(headers_frame(STATUS_200, GRPC) + data_frame(SERVING_MESSAGE) + OK_TRAILERS)

    assert call_in_flight.result == SERVING


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([STATUS_200, GRPC, (b"connection", b"keep-alive")], id="connection"),
        pytest.param([STATUS_200, GRPC, (b"te", b"x")], id="te"),
        pytest.param([STATUS_200, GRPC, (b"x", b" y")], id="leading-blank"),
        pytest.param([STATUS_200, GRPC, (b"x", b"y\t")], id="trailing-tab"),
        pytest.param([(b":status", b"503"), GRPC], id="http-status"),
        pytest.param([GRPC], id="no-http-status"),
        pytest.param([STATUS_200, GRPC, (b"content-type", b"text/html")], id="content-types"),
        pytest.param([STATUS_200, GRPC, (b"grpc-status", b"5")], id="grpc-status-too-early"),
    ],
)
def test_grpc_accepts_headers_that_http_2_forbids(headers: list[tuple[bytes, bytes]]) -> None:
    call_in_flight = call()
    call_in_flight.feed(
        GREETING + headers_frame(*headers) + data_frame(SERVING_MESSAGE) + OK_TRAILERS
    )

    assert call_in_flight.result == SERVING


@pytest.mark.parametrize("trailer", [(b"connection", b"x"), (b"x", b" y")])
def test_grpc_accepts_trailers_that_http_2_forbids(trailer: tuple[bytes, bytes]) -> None:
    call_in_flight = call()
    trailers = headers_frame(trailer, (b"grpc-status", b"0"), ends=True)
    call_in_flight.feed(
        GREETING + headers_frame(STATUS_200, GRPC) + data_frame(SERVING_MESSAGE) + trailers
    )

    assert call_in_flight.result == SERVING


INVALID_HEADERS = [
    ([GRPC, STATUS_200], "pseudo header field after regular"),
    ([(b"cookie", b"a"), STATUS_200, GRPC], "pseudo header field after regular"),
    ([STATUS_200, GRPC, (b"Upper", b"x")], 'invalid header field name "Upper"'),
    ([STATUS_200, GRPC, (b"", b"x")], 'invalid header field name ""'),
    ([STATUS_200, GRPC, (b"a(b", b"x")], 'invalid header field name "a(b"'),
    ([STATUS_200, GRPC, (b"x", b"a\nb")], 'invalid header field value for "x"'),
    ([STATUS_200, GRPC, (b"x", b"\x7f")], 'invalid header field value for "x"'),
    ([(b":status", b"\0"), GRPC], 'invalid header field value for ":status"'),
    ([STATUS_200, (b":foo", b"x"), GRPC], 'invalid pseudo-header ":foo"'),
    ([STATUS_200, STATUS_200, GRPC], 'duplicate pseudo-header ":status"'),
    ([STATUS_200, (b":path", b"/"), GRPC], "mix of request and response pseudo headers"),
    ([(b":status", b"103"), (b"Upper", b"x")], 'invalid header field name "Upper"'),
]


@pytest.mark.parametrize(("headers", "text"), INVALID_HEADERS)
def test_invalid_headers_have_the_text_of_go(headers: list[tuple[bytes, bytes]], text: str) -> None:
    call_in_flight = call()
    call_in_flight.feed(GREETING + headers_frame(*headers))

    assert call_in_flight.result == CallResult("Internal", text)


def test_invalid_trailers_have_the_text_of_go() -> None:
    call_in_flight = call()
    trailers = headers_frame((b"grpc-status", b"0"), (b"Upper", b"x"), ends=True)
    call_in_flight.feed(
        GREETING + headers_frame(STATUS_200, GRPC) + data_frame(SERVING_MESSAGE) + trailers
    )

    assert call_in_flight.result == CallResult("Internal", 'invalid header field name "Upper"')


@pytest.mark.parametrize(
    ("headers", "result"),
    [
        (
            [(b":status", b"503"), GRPC, (b"grpc-status", b"14"), (b"grpc-message", b"hi")],
            CallResult("Unavailable", "hi"),
        ),
        ([STATUS_200, GRPC], CallResult("Unknown", "")),
    ],
    ids=["http status", "no grpc-status"],
)
def test_response_of_trailers_only(headers: list[tuple[bytes, bytes]], result: CallResult) -> None:
    call_in_flight = call()
    call_in_flight.feed(GREETING + headers_frame(*headers, ends=True))

    assert call_in_flight.result == result


NAMES = st.sampled_from(
    [b":status", b":path", b"content-type", b"content-length", b"cookie", b"te", b"grpc-status"]
)
VALUES = st.sampled_from([b"", b"0", b"100", b"200", b"\xb2", b"application/grpc"])
HEADERS = st.tuples(NAMES | st.binary(max_size=4), VALUES | st.binary(max_size=8))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.lists(HEADERS, max_size=4), st.booleans(), st.sampled_from([1, 2])).map(
                lambda drawn: headers_frame(*drawn[0], ends=drawn[1], stream=drawn[2])
            ),
            st.sampled_from([data_frame(SERVING_MESSAGE), data_frame(b"x", stream=2)]),
        ),
        max_size=5,
    )
)
def test_any_headers_and_an_end_make_a_result(frames: list[bytes]) -> None:
    call_in_flight = call()
    for data in (GREETING, *frames, b""):
        call_in_flight.feed(data)

    assert isinstance(call_in_flight.result, CallResult)


def test_stream_that_ends_without_trailers_is_an_error() -> None:
    call_in_flight = call()
    call_in_flight.feed(
        GREETING + headers_frame(STATUS_200, GRPC) + b"\0\0\0\0\x01" + (1).to_bytes(4)
    )

    text = "server closed the stream without sending trailers"
    assert call_in_flight.result == CallResult("Internal", text)


@pytest.mark.parametrize(
    ("message", "result"),
    [
        pytest.param(b"\0\0\0\0\x02\x08\x01", SERVING, id="sound"),
        pytest.param(
            b"\0\x7f\xff\xff\xff",
            CallResult(
                "ResourceExhausted",
                "grpc: received message larger than max (2147483647 vs. 4194304)",
            ),
            id="too-large",
        ),
        pytest.param(
            b"\0\0\0\0\x03\x08\x01", CallResult("Internal", "unexpected EOF"), id="cut-off"
        ),
    ],
)
def test_the_message_decides_once_the_status_is_ok(message: bytes, result: CallResult) -> None:
    call_in_flight = call()
    trailers = headers_frame((b"grpc-status", b"0"), ends=True)
    call_in_flight.feed(GREETING + headers_frame(STATUS_200, GRPC) + data_frame(message) + trailers)

    assert call_in_flight.result == result


def test_ping_of_a_slow_server_is_answered() -> None:
    call_in_flight = call()
    _ = call_in_flight.bytes_to_send()
    call_in_flight.feed(GREETING + b"\0\0\x08\x06\0\0\0\0\0in time.")

    assert b"\0\0\x08\x06\x01\0\0\0\0in time." in call_in_flight.bytes_to_send()
    assert call_in_flight.result is None


def test_e1_a_hundred_frames_are_read_and_no_more() -> None:
    call_in_flight = call()
    for _ in range(100):
        call_in_flight.feed(GREETING)
    assert call_in_flight.result is None
    call_in_flight.feed(GREETING)

    text = "the server sent more than 100 HTTP/2 frames"
    assert call_in_flight.result == CallResult("ResourceExhausted", text)


def test_e1_a_response_of_4_kib_is_read_and_no_more() -> None:
    call_in_flight = call()
    call_in_flight.feed(GREETING + headers_frame(STATUS_200, GRPC) + data_frame(b"x" * 4096))
    assert call_in_flight.result is None
    call_in_flight.feed(data_frame(b"x"))

    text = "grpc: received message larger than max"
    assert call_in_flight.result == CallResult("ResourceExhausted", text)


@pytest.mark.parametrize(
    ("size", "code"), [(16 * 1024, "ResourceExhausted"), (16 * 1024 + 1, "Unavailable")]
)
def test_e1_a_frame_above_16_kib_is_an_error_of_http_2(size: int, code: str) -> None:
    call_in_flight = call()
    call_in_flight.feed(GREETING + headers_frame(STATUS_200, GRPC) + data_frame(b"x" * size))

    assert call_in_flight.result is not None
    assert call_in_flight.result.code == code


def test_e1_headers_above_16_kib_are_an_error() -> None:
    """A reference to the header table has one byte, so a small frame may have large headers."""

    def response(repetitions: int) -> bytes:
        block = b"\x88\x5f\x10application/grpc"
        block += b"\x40\x01x\x7f\xb9\x16" + b"y" * 3000 + repetitions * b"\xbe"
        return GREETING + len(block).to_bytes(3) + b"\x01\x04" + (1).to_bytes(4) + block

    small, large = call(), call()
    small.feed(response(4))
    large.feed(response(5))

    assert small.result is None
    assert large.result is not None
    assert large.result.code == "Unavailable"
