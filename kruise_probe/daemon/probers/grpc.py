"""grpc: succeeds when the health service of the pod responds SERVING.

`mode: TLS` uses TLS and does not verify the certificate. `HealthCall` is the protocol, without socket or clock.

Source: kubelet pkg/probe/grpc/grpc.go; KEP-4939 for TLS; gRPC over HTTP/2 (PROTOCOL-HTTP2.md), grpc.health.v1; grpc-go
internal/transport/http2_client.go (operateHeaders, handleData, handleGoAway) and rpc_util.go (recvMsg).
Differs: a refused connection fails at once with its reason, where kubelet retries until the timeout and reports that. The
request is sent before the server's settings arrive, so its limits of streams and headers do not apply. One call on one
connection; no compression, no retries. The number of frames is limited, because each costs time.
"""

import asyncio
import re
from base64 import b64decode
from binascii import Error as InvalidBase64
from typing import Final, NamedTuple
from urllib.parse import unquote

import hpack
from google.protobuf.message import DecodeError

from kruise_probe.api.core import GRPCAction
from kruise_probe.api.messages import duration, normalise_message
from kruise_probe.daemon.probers import http2
from kruise_probe.daemon.probers._pb.health_pb2 import HealthCheckRequest, HealthCheckResponse
from kruise_probe.daemon.probers.dialing import (
    Connection,
    Intake,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.http2 import ConnectionBroken, Fields, Frame, StreamBroken
from kruise_probe.daemon.probers.prober import (
    UNLIMITED,
    Prober,
    ProbeResult,
    Resources,
    Target,
    address_of,
    failure,
    success,
)
from kruise_probe.daemon.probers.tls import TlsConnection, new_connection

TLS_MODE: Final = "TLS"

_HEALTHY: Final = success("service healthy")

HEALTH_PATH: Final = "/grpc.health.v1.Health/Check"

CODES: Final = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange",
    "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
"""gRPC codes by number, as Go prints them."""

MAX_FRAMES: Final = 100
"""Limit of one connection. A response takes about ten frames; the rest is for pings of a slow server."""

_MESSAGE_PREFIX_BYTES: Final = 5
_STREAM: Final = 1
_GRPC_TYPE = re.compile(rb"application/grpc(?:[+;].*)?", re.DOTALL)
_UNKNOWN: Final = 2
_INFORMATIONAL = re.compile(rb"[+]?0*1[0-9][0-9]")
_INTEGER = re.compile(rb"([+-]?)0*([0-9]{1,10})")
_RESERVED: Final = frozenset(
    {
        b"content-type",
        b"grpc-message-type",
        b"grpc-encoding",
        b"grpc-message",
        b"grpc-status",
        b"grpc-timeout",
        b"te",
    }
)
"""Headers whose values are not decoded as metadata."""


class CallResult(NamedTuple):
    """Result of a call. `code` is Go's name of a gRPC code; `serving` is the serving status if the code is OK."""

    code: str
    description: str = ""
    serving: str = ""


class _CallEnded(Exception):
    """The call has failed with this result."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.result = CallResult(code, description)


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
        self._frames = http2.FrameReader()
        self._frame_count = 0
        self._headers = http2.HeaderReader()
        self._has_headers = False
        self._last_goaway = 2**31
        self._response = bytearray()
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
        # A lone surrogate cannot be sent; it becomes a question mark.
        request = HealthCheckRequest(service=service.encode(errors="replace").decode())
        message = request.SerializeToString()
        prefix = b"\0" + len(message).to_bytes(4)
        offer = {
            http2.ENABLE_PUSH_SETTING: 0,
            http2.MAX_HEADER_LIST_SETTING: http2.MAX_HEADER_LIST_BYTES,
        }
        block = hpack.Encoder().encode(headers)
        frames = (
            Frame(http2.HEADERS, http2.END_HEADERS, _STREAM, block),
            Frame(http2.DATA, http2.END_STREAM, _STREAM, prefix + message),
        )
        self._output = http2.PREFACE + http2.settings(offer)
        for frame in frames:
            self._output += frame.encode()

    def bytes_to_send(self) -> bytes:
        output, self._output = self._output, b""
        return output

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection. Bytes after the result are ignored."""
        self._frames.add(data)
        try:
            self._check_first_frame()
            for frame in self._frames.frames():
                if self.result is not None:
                    return
                self._handle(frame)
            if not data:
                raise ConnectionBroken("EOF")
        except _CallEnded as ended:
            self.result = self.result or ended.result
        except ConnectionBroken as error:
            self._end("Unavailable", f"error reading from server: {error}")
        except StreamBroken as error:
            self._end("Internal", str(error))

    def _check_first_frame(self) -> None:
        kind = self._frames.next_kind()
        if not self.connected and kind not in (None, http2.SETTINGS):
            raise _CallEnded("Unavailable", "the server does not speak HTTP/2")

    def _handle(self, frame: Frame) -> None:
        """Raises: _CallEnded, ConnectionBroken, StreamBroken."""
        self._frame_count += 1
        if self._frame_count > MAX_FRAMES:
            text = f"the server sent more than {MAX_FRAMES} HTTP/2 frames"
            raise _CallEnded("ResourceExhausted", text)
        try:
            http2.check(frame)
            fields = self._headers.add(frame)
        except StreamBroken as error:
            if error.stream == _STREAM:
                raise
            return
        if frame.kind == http2.SETTINGS:
            self._handle_settings(frame)
        elif frame.kind == http2.GOAWAY:
            self._handle_goaway(frame)
        elif frame.kind == http2.PING and not frame.flags & http2.ACK:
            answer = frame._replace(flags=http2.ACK)
            self._output += answer.encode()
        elif frame.stream == _STREAM:
            self._handle_stream(frame, fields)

    def _handle_stream(self, frame: Frame, fields: Fields | None) -> None:
        if fields is not None:
            self._handle_fields(fields)
        elif frame.kind == http2.DATA:
            self._handle_data(frame)
        elif frame.kind == http2.RST_STREAM:
            code = int.from_bytes(frame.payload)
            text = f"stream terminated by RST_STREAM with error code: {code}"
            raise _CallEnded("Unavailable", text)

    def _handle_settings(self, frame: Frame) -> None:
        self.connected = True
        if not frame.flags & http2.ACK:
            self._output += Frame(http2.SETTINGS, http2.ACK, 0, b"").encode()

    def _handle_goaway(self, frame: Frame) -> None:
        last = int.from_bytes(frame.payload[:4]) & 0x7FFF_FFFF
        if last > self._last_goaway or (last and last % 2 == 0):
            return  # Invalid; grpc-go reads on.
        self._last_goaway = last
        if last < _STREAM:
            raise _CallEnded("Unavailable", "the connection is draining")

    def _handle_data(self, frame: Frame) -> None:
        self._response += http2.data_of(frame)
        if frame.flags & http2.END_STREAM:
            raise _CallEnded("Internal", "server closed the stream without sending trailers")

    def _handle_fields(self, fields: Fields) -> None:
        ended = self._headers.end_stream
        if self._has_headers and not ended:
            raise _CallEnded("Internal", "a HEADERS frame cannot appear in the middle of a stream")
        values = dict(fields)
        code = _code_of(fields)
        if not (self._has_headers or _has_grpc_type(fields)):
            self._handle_other_protocol(values, ended=ended)
            return
        _check_metadata(fields)
        self._has_headers = True
        if ended and code == 0:
            self.result = CallResult("OK", serving=_serving_status(self._response))
        elif ended:
            name = CODES[code] if 0 <= code < len(CODES) else f"Code({code & 0xFFFF_FFFF})"
            raise _CallEnded(
                name, unquote(values.get(b"grpc-message", b"").decode(errors="replace"))
            )

    def _handle_other_protocol(self, values: dict[bytes, bytes], *, ended: bool) -> None:
        """Headers without the content type of gRPC; those of an informational response are ignored."""
        status = values.get(b":status", b"")
        if ended or not _INFORMATIONAL.fullmatch(status):
            text = status[:80].decode(errors="replace")
            raise _CallEnded("Unknown", f"unexpected HTTP status code received from server: {text}")

    def _end(self, code: str, description: str) -> None:
        self.result = self.result or CallResult(code, description)


def _has_grpc_type(fields: Fields) -> bool:
    types = (value for name, value in fields if name == b"content-type")
    return any(map(_GRPC_TYPE.fullmatch, types))


def _code_of(fields: Fields) -> int:
    """The last gRPC status; Unknown without one. Raises: _CallEnded."""
    code = _UNKNOWN
    for name, text in fields:
        if name != b"grpc-status":
            continue
        parts = _INTEGER.fullmatch(text)
        code = int(b"".join(parts.groups())) if parts else 2**31
        if not -(2**31) <= code < 2**31:
            raise _malformed_status(text)
    return code


def _malformed_status(text: bytes) -> _CallEnded:
    return _CallEnded("Unknown", f"malformed grpc-status: {text[:80].decode(errors='replace')}")


def _check_metadata(fields: Fields) -> None:
    """Raises: _CallEnded, if a binary header is no base64."""
    for name, value in fields:
        if not name.endswith(b"-bin") or name in _RESERVED:
            continue
        padding = b"=" * (-len(value) % 4)
        try:
            if padding and b"=" in value:
                raise InvalidBase64("padding")
            _ = b64decode(value + padding, validate=True)
        except InvalidBase64:
            raise _CallEnded("Internal", f"malformed header {name.decode()}") from None


def _serving_status(stream: bytes | bytearray) -> str:
    """The status in the only message of a stream. Raises: _CallEnded."""
    prefix = stream[:_MESSAGE_PREFIX_BYTES]
    rest = stream[_MESSAGE_PREFIX_BYTES:]
    size = int.from_bytes(prefix[1:])
    if len(prefix) < _MESSAGE_PREFIX_BYTES or prefix[0] or len(rest) < size:
        raise _CallEnded("Internal", "the response is not one uncompressed message")
    if len(rest) >= size + _MESSAGE_PREFIX_BYTES:
        raise _CallEnded("Internal", "the response has more than one message")
    try:
        response = HealthCheckResponse.FromString(bytes(rest[:size]))
    except DecodeError:
        raise _CallEnded("Internal", "failed to unmarshal the received message") from None
    status = response.status
    if status not in HealthCheckResponse.ServingStatus.values():
        return str(status)
    return HealthCheckResponse.ServingStatus.Name(status)


class GrpcProber(Prober):
    """Calls `grpc.health.v1.Health/Check` on the pod."""

    def __init__(
        self,
        action: GRPCAction,
        *,
        timeout_seconds: float,
        user_agent: str,
        open_socket: OpenSocket = new_socket,
    ) -> None:
        self._action = action
        self._open_socket = open_socket
        self._timeout_seconds = timeout_seconds
        self._user_agent = user_agent

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        address = address_of(target, self._action.port)
        where, within = f'"{address}"', f"within {duration(self._timeout_seconds)}"
        over_tls = self._action.mode == TLS_MODE
        call = HealthCall(
            service=self._action.service or "",
            authority=str(address),
            scheme="https" if over_tls else "http",
            user_agent=self._user_agent,
            timeout_seconds=self._timeout_seconds,
        )
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        intake = Intake(resources)
        tcp = self._open_socket(address)
        alpn = "h2" if over_tls else None
        connection = new_connection(tcp, address, deadline, intake, alpn=alpn)
        try:
            result = await _exchange(call, connection)
        except TimeoutError:
            if call.connected:
                result = CallResult("DeadlineExceeded")
            else:
                text = f"timeout: failed to connect service {where} {within}: context deadline exceeded"
                return failure(text, timed_out=True)
        except ProbeConnectionFailed as error:
            result = CallResult("Unavailable", str(error))
        finally:
            connection.close()
        if not call.connected:
            text = f"error: failed to connect service at {where}: {result.description}"
        elif result.serving == "SERVING":
            return _HEALTHY
        elif result.code == "DeadlineExceeded":
            return failure(f"timeout: health rpc did not complete {within}", timed_out=True)
        elif result.code == "OK":
            text = f'service unhealthy (responded with "{result.serving}")'
        else:
            text = f"error: health rpc probe failed: rpc error: code = {result.code} desc = {result.description}"
        return failure(normalise_message(text))


async def _exchange(call: HealthCall, connection: Connection) -> CallResult:
    await connection.connect()
    if isinstance(connection, TlsConnection) and connection.protocol != "h2":
        raise ProbeConnectionFailed("the server does not speak HTTP/2 over TLS (ALPN)")
    while call.result is None:
        await connection.send(call.bytes_to_send())
        call.feed(await connection.receive())
    return call.result
