"""grpc: succeeds when the health service of the pod responds SERVING.

`mode: TLS` uses TLS and does not verify the certificate. `HealthCall` is the protocol, without socket or clock.

Source: kubelet pkg/probe/grpc/grpc.go; KEP-4939 for TLS; gRPC over HTTP/2 (PROTOCOL-HTTP2.md), grpc.health.v1; RFC 9113,
4.1 and 6.8; grpc-go http2_client.go (handleGoAway), which finishes the streams up to the last stream of a GOAWAY. h2
accepts no frames after a GOAWAY.
Differs: a refused connection fails at once with its reason, where kubelet retries until the timeout and reports that. One
call on one connection; no compression, no retries. The number of frames is limited: h2 needs up to 0.1 ms for a frame of
nine bytes, and a small response needs few.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from google.protobuf.message import DecodeError

from kruise_probe.api.core import GRPCAction
from kruise_probe.api.messages import duration, normalise_message
from kruise_probe.daemon.probers._pb.health_pb2 import HealthCheckRequest, HealthCheckResponse
from kruise_probe.daemon.probers.dialing import (
    Connection,
    Intake,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
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

_HTTP2_BYTES: Final = 16 * 1024
"""What h2 holds for a connection."""

_MESSAGE_PREFIX_BYTES: Final = 5
_FRAME_HEAD_BYTES: Final = 9
_SETTINGS: Final = 4
_GOAWAY: Final = 7


class CallResult(NamedTuple):
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
        self._incomplete = bytearray()
        self._frames = 0
        self._response = bytearray()
        self._http2 = _Http2Connection(
            h2.config.H2Configuration(
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
        # A lone surrogate cannot be sent; it becomes a question mark.
        request = HealthCheckRequest(service=service.encode(errors="replace").decode())
        message = request.SerializeToString()
        self._http2.send_data(1, b"\0" + len(message).to_bytes(4) + message, end_stream=True)

    def bytes_to_send(self) -> bytes:
        return self._http2.data_to_send()

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection. Bytes after the result are ignored."""
        if not data:
            self._end("Unavailable", "error reading from server: EOF")
        self._incomplete += data
        try:
            # One at a time: if h2 rejects a frame, it returns no events of the frames before it.
            for frame in self._complete_frames():
                for event in self._http2.receive_data(frame):
                    self._handle(event)
        except h2.exceptions.ProtocolError as error:
            # hpack adds a memory address; it is removed, so that the same error has the same text each time.
            text = str(error).partition(": <memory at ")[0] or type(error).__name__
            self._end("Unavailable", f"error reading from server: {text}")

    def _complete_frames(self) -> Iterator[bytes]:
        """Yield each complete frame until the call has a result, except a GOAWAY whose last stream is ours or later."""
        while self.result is None and len(self._incomplete) >= _FRAME_HEAD_BYTES:
            size = _FRAME_HEAD_BYTES + int.from_bytes(self._incomplete[:3])
            kind = self._incomplete[3]
            self._frames += 1
            if self._frames == 1 and kind != _SETTINGS:
                self._end("Unavailable", "the server does not speak HTTP/2")
            elif self._frames > MAX_FRAMES:
                self._end(
                    "ResourceExhausted", f"the server sent more than {MAX_FRAMES} HTTP/2 frames"
                )
            elif size - _FRAME_HEAD_BYTES > self._http2.max_inbound_frame_size:
                self._end("Unavailable", "error reading from server: http2: frame too large")
            elif len(self._incomplete) < size:
                self._frames -= 1
                return
            else:
                frame = bytes(self._incomplete[:size])
                del self._incomplete[:size]
                if kind != _GOAWAY or int.from_bytes(frame[9:13]) & 0x7FFF_FFFF == 0:
                    yield frame

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RemoteSettingsChanged():
                self.connected = True
            case h2.events.ResponseReceived(stream_id=1, headers=headers, stream_ended=ended):
                self._handle_headers(headers or (), ended=ended is not None)
            case h2.events.DataReceived(stream_id=1, data=data):
                self._response += data or b""
            case h2.events.TrailersReceived(stream_id=1, headers=headers):
                self._handle_trailers(dict(headers or ()))
            case h2.events.StreamReset(stream_id=1, error_code=code):
                self._end("Unavailable", f"stream terminated by RST_STREAM with error code: {code}")
            case h2.events.ConnectionTerminated():
                self._end("Unavailable", "the connection is draining")
            case h2.events.StreamEnded(stream_id=1):
                self._end("Internal", "server closed the stream without sending trailers")
            case _:
                pass

    def _handle_headers(self, headers: Sequence[tuple[bytes, bytes]], *, ended: bool) -> None:
        fields = dict(headers)
        status = fields.get(b":status", b"").decode(errors="replace")
        content_type = fields.get(b"content-type", b"")
        if status != "200" or not content_type.startswith(b"application/grpc"):
            self._end("Unknown", f"unexpected HTTP status code received from server: {status}")
        elif ended:
            self._handle_trailers(fields)

    def _handle_trailers(self, trailers: dict[bytes, bytes]) -> None:
        status = trailers.get(b"grpc-status", b"").decode(errors="replace")
        code = CODES[int(status)] if status in map(str, range(len(CODES))) else f"Code({status})"
        if code != "OK":
            self._end(code, unquote(trailers.get(b"grpc-message", b"").decode(errors="replace")))
            return
        try:
            self.result = self.result or CallResult("OK", serving=serving_status(self._response))
        except ValueError as error:
            self._end("Internal", str(error))

    def _end(self, code: str, description: str) -> None:
        self.result = self.result or CallResult(code, description)


def serving_status(frame: bytes | bytearray) -> str:
    """The status in a framed `HealthCheckResponse`.

    Raises:
        ValueError: the frame is invalid.
    """
    prefix, message = frame[:_MESSAGE_PREFIX_BYTES], frame[_MESSAGE_PREFIX_BYTES:]
    if prefix != b"\0" + len(message).to_bytes(4):
        raise ValueError("the response is not one uncompressed message")
    try:
        status = HealthCheckResponse.FromString(bytes(message)).status
    except DecodeError as error:
        raise ValueError("failed to unmarshal the received message") from error
    known = HealthCheckResponse.ServingStatus.values()
    return HealthCheckResponse.ServingStatus.Name(status) if status in known else str(status)


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
        intake = Intake(resources, library_bytes=_HTTP2_BYTES)
        intake.make_room()
        call = HealthCall(
            service=self._action.service or "",
            authority=str(address),
            scheme="https" if over_tls else "http",
            user_agent=self._user_agent,
            timeout_seconds=self._timeout_seconds,
        )
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
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
