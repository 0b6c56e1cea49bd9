"""The protocol of one gRPC health check, without socket or clock.

Source: gRPC over HTTP/2 (PROTOCOL-HTTP2.md), grpc.health.v1; RFC 9113, 4.1, 5.5 and 6.8; grpc-go
internal/transport/http2_client.go for the error texts, operateHeaders, and handleGoAway, which finishes the streams up
to the last stream of a GOAWAY, whatever its error code; golang.org/x/net http2/frame.go for the checks of headers,
which accept more than those of h2. h2 accepts no frames after a GOAWAY.
Differs: one call on one connection; no compression, no retries; h2 checks content-length, and reads `:status` 1xx as
informational even if the content type is gRPC's. The number of frames is limited: h2 needs up to 0.1 ms for a frame of
nine bytes, and a small response needs few.
"""

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import msgspec
from google.protobuf.message import DecodeError

from kruise_probe.api.messages import quote
from kruise_probe.daemon.probers._pb.health_pb2 import HealthCheckRequest, HealthCheckResponse

HEALTH_PATH: Final = "/grpc.health.v1.Health/Check"

CODES: Final = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange",
    "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
"""gRPC codes by number, as Go prints them."""

_CODE_OF_HTTP_STATUS: Final = {
    400: "Internal", 401: "Unauthenticated", 403: "PermissionDenied", 404: "Unimplemented",
    429: "Unavailable", 502: "Unavailable", 503: "Unavailable", 504: "Unavailable",
}  # fmt: skip

_RESETS: Final = (
    ("NO_ERROR", "Internal"), ("PROTOCOL_ERROR", "Internal"), ("INTERNAL_ERROR", "Internal"),
    ("FLOW_CONTROL_ERROR", "ResourceExhausted"), ("SETTINGS_TIMEOUT", "Internal"),
    ("STREAM_CLOSED", "Internal"), ("FRAME_SIZE_ERROR", "Internal"), ("REFUSED_STREAM", "Unavailable"),
    ("CANCEL", "Canceled"), ("COMPRESSION_ERROR", "Internal"), ("CONNECT_ERROR", "Internal"),
    ("ENHANCE_YOUR_CALM", "ResourceExhausted"), ("INADEQUATE_SECURITY", "PermissionDenied"),
    ("HTTP_1_1_REQUIRED", "Internal"),
)  # fmt: skip
"""Name of each HTTP/2 error code and the gRPC code for it, by number."""

_GRPC = re.compile(rb"application/grpc(?:[+;].*)?", re.DOTALL)
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_INVALID_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_PSEUDO_HEADERS: Final = frozenset(
    {b":authority", b":method", b":path", b":protocol", b":scheme", b":status"}
)
_MESSAGE_PREFIX_BYTES: Final = 5
_MAX_MESSAGE_BYTES: Final = 4 << 20
"""The limit of grpc-go, which checks the length prefix alone."""
_MAX_RESPONSE_BYTES: Final = 4096

MAX_FRAMES: Final = 100
"""Limit of one connection. A response takes about ten frames; the rest is for pings of a slow server."""

_FRAME_HEAD_BYTES: Final = 9
_MAX_FRAME_BYTES: Final = 16 * 1024
"""Limit of one frame: the default of HTTP/2."""
_SETTINGS: Final = 4
_GOAWAY: Final = 7

Header = tuple[bytes, bytes]


class _TooManyFrames(Exception):
    """The server sent more than `MAX_FRAMES` frames."""


class _Frames:
    """The frames of one connection, in order."""

    def __init__(self) -> None:
        self._incomplete = bytearray()
        self._count = 0

    def complete(self, data: bytes) -> Iterator[bytes]:
        """Yield each complete frame, except a GOAWAY that includes our call; keep an incomplete frame for the next call.

        A frame over the size limit is passed on as it is, so that h2 reports the error.

        Raises:
            ProtocolError: the first frame is not SETTINGS.
            _TooManyFrames: the connection had more than `MAX_FRAMES` frames.
        """
        self._incomplete += data
        while len(self._incomplete) >= _FRAME_HEAD_BYTES:
            size = _FRAME_HEAD_BYTES + int.from_bytes(self._incomplete[:3])
            if size > _FRAME_HEAD_BYTES + _MAX_FRAME_BYTES:
                yield self._take(len(self._incomplete))
            elif len(self._incomplete) < size:
                break
            else:
                frame = self._take(size)
                self._count += 1
                if self._count > MAX_FRAMES:
                    raise _TooManyFrames(f"the server sent more than {MAX_FRAMES} HTTP/2 frames")
                if self._count == 1 and frame[3] != _SETTINGS:
                    raise h2.exceptions.ProtocolError(
                        "initial frame from server is not a settings frame"
                    )
                if not _is_goaway_that_includes_our_call(frame):
                    yield frame

    def _take(self, size: int) -> bytes:
        taken = bytes(self._incomplete[:size])
        del self._incomplete[:size]
        return taken


def _is_goaway_that_includes_our_call(frame: bytes) -> bool:
    """Whether the frame is a GOAWAY whose last stream is ours or a later one: the server still responds."""
    last_stream = int.from_bytes(frame[9:13]) & 0x7FFF_FFFF
    return frame[3] == _GOAWAY and len(frame) >= 17 and last_stream >= 1


class CallResult(msgspec.Struct, frozen=True):
    """Result of a call. `code` is Go's name of a gRPC code; `serving` is the serving status if the code is OK."""

    code: str
    description: str = ""
    serving: str = ""


class _Http2Connection(h2.connection.H2Connection):
    DEFAULT_MAX_HEADER_LIST_SIZE = 16 * 1024
    """Limit of headers or trailers, counted as in RFC 9113, 6.5.2. gRPC's C core has the same limit."""


class HealthCall:
    """Client side of `Check` on a fresh connection.

    Attributes:
        connected: the server has sent its HTTP/2 settings.
        result: None until the call has ended.
    """

    def __init__(
        self, *, service: str, authority: str, scheme: str, user_agent: str, timeout_seconds: float
    ) -> None:
        self.connected = False
        self.result: CallResult | None = None
        self._frames = _Frames()
        self._response = bytearray()
        self._http2 = _Http2Connection(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
            )
        )
        self._http2.initiate_connection()
        headers = [
            (":method", "POST"),
            (":scheme", scheme),
            (":path", HEALTH_PATH),
            (":authority", authority),
            ("content-type", "application/grpc"),
            ("user-agent", user_agent),
            ("te", "trailers"),
            ("grpc-timeout", f"{max(int(timeout_seconds * 1000), 1)}m"),
        ]
        self._http2.send_headers(1, headers)
        self._http2.send_data(1, _framed(service), end_stream=True)

    def bytes_to_send(self) -> bytes:
        return self._http2.data_to_send()

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection. Bytes after the result are ignored."""
        if not data:
            self._end("Unavailable", "error reading from server: EOF")
            return
        try:
            # One at a time: if h2 rejects a frame, it returns no events of the frames before it.
            for frame in self._frames.complete(data):
                for event in self._http2.receive_data(frame):
                    self._handle(event)
                if self.result is not None:
                    return
        except _TooManyFrames as error:
            self._end("ResourceExhausted", str(error))
        except h2.exceptions.ProtocolError as error:
            source = "from server" if self.connected else "server preface"
            self._end("Unavailable", f"error reading {source}: {_error_text(error)}")

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RemoteSettingsChanged() | h2.events.SettingsAcknowledged():
                self.connected = True
            case (
                h2.events.InformationalResponseReceived(stream_id=1, headers=headers)
                | h2.events.ResponseReceived(stream_id=1, headers=headers)
                | h2.events.TrailersReceived(stream_id=1, headers=headers)
            ) if problem := _header_error(headers or ()):
                self._end("Internal", problem)
            case h2.events.ResponseReceived(stream_id=1, headers=headers, stream_ended=ended):
                self._handle_headers(headers or (), ended=ended is not None)
            case h2.events.DataReceived(stream_id=1, data=data):
                self._response += data or b""
                if len(self._response) > _MAX_RESPONSE_BYTES:
                    self._end("ResourceExhausted", "grpc: received message larger than max")
            case h2.events.TrailersReceived(stream_id=1, headers=headers):
                self._handle_trailers(dict(headers or ()))
            case h2.events.StreamReset(stream_id=1, error_code=code):
                self._handle_reset(int(code or 0))
            case h2.events.ConnectionTerminated():
                self._end("Unavailable", "the connection is draining")
            case h2.events.StreamEnded(stream_id=1):
                self._end("Internal", "server closed the stream without sending trailers")
            case _:
                pass

    def _handle_reset(self, number: int) -> None:
        name, code = f"unknown error code {number:#x}", "Unknown"
        if number < len(_RESETS):
            name, code = _RESETS[number]
        self._end(code, f"stream terminated by RST_STREAM with error code: {name}")

    def _handle_headers(self, headers: Sequence[Header], *, ended: bool) -> None:
        fields = dict(headers)
        if not any(name == b"content-type" and _GRPC.fullmatch(value) for name, value in headers):
            status = _int32(fields.get(b":status", b"")) or 0
            code = _CODE_OF_HTTP_STATUS.get(status, "Unknown")
            self._end(code, _http_error(status, fields.get(b"content-type", b"")))
        elif ended:
            self._handle_trailers(fields)

    def _handle_trailers(self, trailers: dict[bytes, bytes]) -> None:
        status = trailers.get(b"grpc-status")
        if status is None:
            self._end("Unknown", "")
            return
        number = _int32(status)
        if number is None:
            why = "value out of range" if status.isdigit() else "invalid syntax"
            text = f"strconv.ParseInt: parsing {quote(status)}: {why}"
            self._end("Unknown", f"transport: malformed grpc-status: {text}")
            return
        code = CODES[number] if number < len(CODES) else f"Code({number})"
        if code != "OK":
            self._end(code, unquote(trailers.get(b"grpc-message", b"").decode(errors="replace")))
            return
        try:
            self.result = self.result or CallResult("OK", serving=serving_status(self._response))
        except _TooLarge as error:
            self._end("ResourceExhausted", str(error))
        except ValueError as error:
            self._end("Internal", str(error))

    def _end(self, code: str, description: str) -> None:
        self.result = self.result or CallResult(code, description)


def _header_error(headers: Sequence[Header]) -> str | None:
    """Why golang.org/x/net rejects the headers, or None."""
    pseudo_headers: list[bytes] = []
    for at, (name, value) in enumerate(headers):
        if name.startswith(b":"):
            if len(pseudo_headers) < at:
                return "pseudo header field after regular"
            pseudo_headers.append(name)
        elif not _HEADER_NAME.fullmatch(name):
            return f"invalid header field name {quote(name)}"
        if _INVALID_IN_VALUE.search(value):
            return f"invalid header field value for {quote(name)}"
    for at, name in enumerate(pseudo_headers):
        if name not in _PSEUDO_HEADERS:
            return f"invalid pseudo-header {quote(name)}"
        if name in pseudo_headers[:at]:
            return f"duplicate pseudo-header {quote(name)}"
    if b":status" in pseudo_headers and len(pseudo_headers) > 1:
        return "mix of request and response pseudo headers"
    return None


def _http_error(status: int, content_type: bytes) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    text = f"unexpected HTTP status code received from server: {status} ({phrase})"
    if not content_type:
        return f"{text}; malformed header: missing HTTP content-type"
    return f"{text}; transport: received unexpected content-type {quote(content_type)}"


def _int32(digits: bytes) -> int | None:
    """The number, or None. Longer digits are not parsed: `int` refuses thousands of them."""
    if not digits.isdigit():
        return None
    number = int(digits.lstrip(b"0")[:11] or b"0")
    return number if number < 1 << 31 else None


class _TooLarge(ValueError):
    """The message is over the size limit."""


def _framed(service: str) -> bytes:
    text = service.encode(errors="replace").decode()
    message = HealthCheckRequest(service=text).SerializeToString()
    return b"\0" + len(message).to_bytes(4) + message


def serving_status(frame: bytes | bytearray) -> str:
    """The status in a framed `HealthCheckResponse`.

    Raises:
        ValueError: the frame is invalid; the text is Go's.
    """
    if len(frame) < _MESSAGE_PREFIX_BYTES:
        raise ValueError(
            "cardinality violation: received no response message from non-server-streaming RPC"
        )
    if frame[0]:
        raise ValueError("grpc: compressed flag set with identity or empty encoding")
    size = int.from_bytes(frame[1:_MESSAGE_PREFIX_BYTES])
    if size > _MAX_MESSAGE_BYTES:
        raise _TooLarge(f"grpc: received message larger than max ({size} vs. {_MAX_MESSAGE_BYTES})")
    message, rest = frame[_MESSAGE_PREFIX_BYTES:][:size], frame[_MESSAGE_PREFIX_BYTES + size :]
    if len(message) < size:
        raise ValueError("unexpected EOF")
    if rest:
        raise ValueError(
            "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message"
        )
    try:
        status = HealthCheckResponse.FromString(bytes(message)).status
    except DecodeError as error:
        raise ValueError("grpc: failed to unmarshal the received message") from error
    known = HealthCheckResponse.ServingStatus.values()
    return HealthCheckResponse.ServingStatus.Name(status) if status in known else str(status)


def _error_text(error: h2.exceptions.ProtocolError) -> str:
    # hpack adds a memory address; it is removed, so that the same error has the same text each time.
    text, _, _ = str(error).partition(": <memory at ")
    return f"http2: {text or type(error).__name__}"
