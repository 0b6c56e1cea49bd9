"""One call of `grpc.health.v1.Health/Check` on a fresh connection, without socket or clock.

Source: gRPC over HTTP/2 (PROTOCOL-HTTP2.md), grpc.health.v1; grpc-go internal/transport/http2_client.go (operateHeaders,
handleData, handleGoAway) and rpc_util.go (recvMsg).
Differs: the request is sent before the server's settings arrive, so its limits of streams and headers do not apply. No
compression, no retries.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

import hpack
from google.protobuf.message import DecodeError

from kruise_probe.daemon.probers import http2
from kruise_probe.daemon.probers._pb.health_pb2 import HealthCheckRequest, HealthCheckResponse
from kruise_probe.daemon.probers.http2 import ConnectionBroken, Frame

HEALTH_PATH: Final = "/grpc.health.v1.Health/Check"

CODES: Final = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange",
    "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
"""gRPC codes by number, as Go prints them."""

_PREFIX_BYTES: Final = 5
_STREAM: Final = 1
_GRPC_TYPE = re.compile(rb"application/grpc(?:[+;].*)?", re.DOTALL)
_UNKNOWN: Final = b"2"


class CallResult(NamedTuple):
    """Result of a call. `code` is Go's name of a gRPC code; `serving` is the serving status if the code is OK."""

    code: str
    description: str = ""
    serving: str = ""


class HealthCall:
    """Client side of the call.

    Attributes:
        connected: the server has sent its HTTP/2 settings.
        result: None until the call has ended.
    """

    def __init__(
        self, *, service: str, authority: str, scheme: str, user_agent: str, timeout_seconds: float
    ) -> None:
        self.connected = False
        self.result: CallResult | None = None
        self._reader = http2.FrameReader()
        self._has_headers = False
        self._response = bytearray()
        milliseconds = max(int(timeout_seconds * 1000), 1)
        headers = [
            (":method", "POST"),
            (":scheme", scheme),
            (":path", HEALTH_PATH),
            (":authority", authority),
            ("content-type", "application/grpc"),
            ("user-agent", user_agent),
            ("te", "trailers"),
            ("grpc-timeout", f"{milliseconds}m"),
        ]
        # A lone surrogate cannot be sent; it becomes a question mark.
        valid_service = service.encode(errors="replace").decode()
        request = HealthCheckRequest(service=valid_service)
        message = request.SerializeToString()
        size = len(message).to_bytes(4)
        prefix = b"\0" + size
        offer = {
            http2.ENABLE_PUSH_SETTING: 0,
            http2.MAX_HEADER_LIST_SETTING: http2.MAX_HEADER_LIST_BYTES,
        }
        block = hpack.Encoder().encode(headers)
        self._output = http2.PREFACE + http2.encode_settings(offer)
        head = Frame(http2.HEADERS, http2.END_HEADERS, _STREAM, block)
        self._send(head)
        body = Frame(http2.DATA, http2.END_STREAM, _STREAM, prefix + message)
        self._send(body)

    def bytes_to_send(self) -> bytes:
        """Take what is to be sent now."""
        output = self._output
        self._output = b""
        return output

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection. Bytes after the result are ignored."""
        try:
            for frame in self._reader.read(data):
                self._handle(frame)
                if self.result is not None:
                    return
            if not data:
                raise ConnectionBroken("EOF")
        except ConnectionBroken as error:
            self._fail("Unavailable", f"error reading from server: {error}")

    def _send(self, frame: Frame) -> None:
        self._output += frame.encode()

    def _fail(self, code: str, description: str) -> None:
        self.result = CallResult(code, description)

    def _handle(self, frame: Frame) -> None:
        """Raises: ConnectionBroken."""
        kind = frame.kind
        acknowledges = bool(frame.flags & http2.ACK)
        if kind == http2.SETTINGS:
            self.connected = True
            if not acknowledges:
                settings_ack = Frame(http2.SETTINGS, http2.ACK, 0, b"")
                self._send(settings_ack)
        elif kind == http2.PING and not acknowledges:
            answer = frame._replace(flags=http2.ACK)
            self._send(answer)
        elif kind == http2.GOAWAY:
            last_stream = int.from_bytes(frame.payload[:4])
            if last_stream < _STREAM:
                self._fail("Unavailable", "the connection is draining")
        elif frame.stream == _STREAM:
            self._handle_stream(frame)

    def _handle_stream(self, frame: Frame) -> None:
        kind = frame.kind
        ended = bool(frame.flags & http2.END_STREAM)
        if kind == http2.HEADERS:
            fields = self._reader.fields(frame)
            self._handle_fields(fields, ended=ended)
        elif kind == http2.DATA:
            self._response += frame.payload
            if ended:
                self._fail("Internal", "server closed the stream without sending trailers")
        elif kind == http2.RST_STREAM:
            code = int.from_bytes(frame.payload)
            text = f"stream terminated by RST_STREAM with error code: {code}"
            self._fail("Unavailable", text)

    def _handle_fields(self, fields: dict[bytes, bytes], *, ended: bool) -> None:
        """Headers, trailers, or both at once; informational responses (1xx) are ignored."""
        content_type = fields.get(b"content-type", b"")
        if _GRPC_TYPE.fullmatch(content_type):
            self._has_headers = True
        if self._has_headers:
            if ended:
                self._handle_trailers(fields)
            return
        status = fields.get(b":status", b"")
        if ended or not status.startswith(b"1"):
            text = status[:80].decode(errors="replace")
            self._fail("Unknown", f"unexpected HTTP status code received from server: {text}")

    def _handle_trailers(self, fields: dict[bytes, bytes]) -> None:
        status = fields.get(b"grpc-status", _UNKNOWN)
        try:
            code = int(status)
        except ValueError:
            malformed = status[:80].decode(errors="replace")
            self._fail("Unknown", f"malformed grpc-status: {malformed}")
            return
        if code == 0:
            self._read_response()
            return
        name = f"Code({code})"
        if 0 < code < len(CODES):
            name = CODES[code]
        message = fields.get(b"grpc-message", b"")
        text = message.decode(errors="replace")
        self._fail(name, unquote(text))

    def _read_response(self) -> None:
        size = int.from_bytes(self._response[1:_PREFIX_BYTES])
        end = _PREFIX_BYTES + size
        message = bytes(self._response[_PREFIX_BYTES:end])
        if len(self._response) < end or self._response[0]:
            self._fail("Internal", "the response has no uncompressed message")
            return
        try:
            status = HealthCheckResponse.FromString(message).status
        except DecodeError:
            self._fail("Internal", "failed to unmarshal the received message")
            return
        statuses = HealthCheckResponse.ServingStatus
        serving = str(status)
        if status in statuses.values():
            serving = statuses.Name(status)
        self.result = CallResult("OK", serving=serving)
