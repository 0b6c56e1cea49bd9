"""HTTP/2 frames and headers that a server sends, checked as gRPC's library for Go does it.

Source: golang.org/x/net/http2 frame.go (Framer.ReadFrame, checkFrameOrder, readMetaFrame, checkPseudos); RFC 9113.
Differs: frames are limited to 16 KiB, which is what we offer, and header lists to 16 KiB.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import hpack

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

ACK: Final = 1
END_STREAM: Final = 1
END_HEADERS: Final = 4
_PADDED: Final = 8
_PRIORITY_FLAG: Final = 0x20

MAX_HEADER_LIST_BYTES: Final = 16 * 1024
"""Limit of headers or trailers, counted as in RFC 9113, 6.5.2. gRPC's C core has the same limit."""
MAX_HEADER_LIST_SETTING: Final = 6
ENABLE_PUSH_SETTING: Final = 2
_INITIAL_WINDOW_SETTING: Final = 4
_MAX_WINDOW: Final = 2**31 - 1
_MAX_PAYLOAD_BYTES: Final = 16 * 1024
_FRAME_HEAD_BYTES: Final = 9
_STREAM_MASK: Final = 0x7FFF_FFFF
_STREAM_BYTES: Final = 4
_SETTING_BYTES: Final = 6
_GOAWAY_BYTES: Final = 8

_SIZES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_WITH_STREAM: Final = frozenset({DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION})
_WITHOUT_STREAM: Final = frozenset({SETTINGS, PING, GOAWAY})

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_REQUEST_FIELDS: Final = frozenset({b":method", b":path", b":scheme", b":authority", b":protocol"})
_PSEUDO_FIELDS: Final = _REQUEST_FIELDS | {b":status"}

Fields = Sequence[tuple[bytes, bytes]]


class ConnectionBroken(Exception):
    """The server breaks the protocol; the connection cannot be used any more."""


class StreamBroken(Exception):
    """The server breaks the protocol on one stream."""

    def __init__(self, stream: int, reason: str) -> None:
        super().__init__(reason)
        self.stream = stream


class Frame(NamedTuple):
    """Kind, flags, stream and payload."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    def encode(self) -> bytes:
        size = len(self.payload).to_bytes(3)
        stream = self.stream.to_bytes(4)
        return size + bytes([self.kind, self.flags]) + stream + self.payload


def settings(values: dict[int, int]) -> bytes:
    """An encoded SETTINGS frame."""
    payload = b""
    for name, value in values.items():
        payload += name.to_bytes(2)
        payload += value.to_bytes(4)
    return Frame(SETTINGS, 0, 0, payload).encode()


class FrameReader:
    """Splits what a server sends into frames."""

    def __init__(self) -> None:
        self._incomplete = bytearray()

    def add(self, data: bytes) -> None:
        self._incomplete += data

    def frames(self) -> Iterator[Frame]:
        """Yield each complete frame; its length is checked as soon as its head is complete. Raises: ConnectionBroken."""
        incomplete = self._incomplete
        while len(incomplete) >= _FRAME_HEAD_BYTES:
            size = int.from_bytes(incomplete[:3])
            if size > _MAX_PAYLOAD_BYTES:
                raise ConnectionBroken("http2: frame too large")
            end = _FRAME_HEAD_BYTES + size
            if len(incomplete) < end:
                return
            stream = int.from_bytes(incomplete[5:9]) & _STREAM_MASK
            payload = bytes(incomplete[_FRAME_HEAD_BYTES:end])
            frame = Frame(incomplete[3], incomplete[4], stream, payload)
            del incomplete[:end]
            yield frame

    def next_kind(self) -> int | None:
        """The kind of the next frame, when its head has arrived."""
        if len(self._incomplete) < _FRAME_HEAD_BYTES:
            return None
        return self._incomplete[3]


def check(frame: Frame) -> None:
    """Check length, stream and values of a frame. Raises: ConnectionBroken, StreamBroken."""
    size = len(frame.payload)
    if size != _SIZES.get(frame.kind, size):
        raise ConnectionBroken(f"http2: invalid length of a frame of type {frame.kind}")
    if frame.stream:
        stream_is_valid = frame.kind not in _WITHOUT_STREAM
    else:
        stream_is_valid = frame.kind not in _WITH_STREAM
    if not stream_is_valid:
        raise ConnectionBroken(f"http2: invalid stream of a frame of type {frame.kind}")
    if frame.kind == SETTINGS:
        _check_settings(frame)
    elif frame.kind == WINDOW_UPDATE:
        _check_increment(frame)
    elif frame.kind == GOAWAY and size < _GOAWAY_BYTES:
        raise ConnectionBroken("http2: invalid length of GOAWAY")
    elif frame.kind == PUSH_PROMISE and len(data_of(frame)) < _STREAM_BYTES:
        raise ConnectionBroken("http2: invalid length of PUSH_PROMISE")


def _check_settings(frame: Frame) -> None:
    payload = frame.payload
    if frame.flags & ACK and payload:
        raise ConnectionBroken("http2: SETTINGS with ACK and values")
    if len(payload) % _SETTING_BYTES:
        raise ConnectionBroken("http2: invalid length of SETTINGS")
    for at in range(0, len(payload), _SETTING_BYTES):
        setting = payload[at : at + _SETTING_BYTES]
        name = int.from_bytes(setting[:2])
        value = int.from_bytes(setting[2:])
        if name == _INITIAL_WINDOW_SETTING:
            if value > _MAX_WINDOW:
                raise ConnectionBroken("http2: invalid initial window")
            return


def _check_increment(frame: Frame) -> None:
    if int.from_bytes(frame.payload) & _STREAM_MASK:
        return
    if frame.stream:
        raise StreamBroken(frame.stream, "received invalid frame")
    raise ConnectionBroken("http2: WINDOW_UPDATE without increment")


def data_of(frame: Frame) -> bytes:
    """The payload without padding. Raises: ConnectionBroken."""
    payload = frame.payload
    if not frame.flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken("http2: pad size larger than data payload")
    end = len(payload) - payload[0]
    return payload[1:end]


class HeaderReader:
    """Puts header blocks together and decodes them.

    Attributes:
        end_stream: the HEADERS frame of the newest block had END_STREAM.
    """

    def __init__(self) -> None:
        self.end_stream = False
        self._decoder = hpack.Decoder(max_header_list_size=MAX_HEADER_LIST_BYTES)
        self._stream = 0
        self._block = bytearray()

    def add(self, frame: Frame) -> Fields | None:
        """Add a frame of any kind. Return the headers when their block is complete. Raises: ConnectionBroken, StreamBroken."""
        if (frame.kind == CONTINUATION) != bool(self._stream):
            raise ConnectionBroken("http2: CONTINUATION expected, or not expected")
        if frame.kind == CONTINUATION:
            if frame.stream != self._stream:
                raise ConnectionBroken("http2: CONTINUATION of another stream")
            self._block += frame.payload
            if len(self._block) > MAX_HEADER_LIST_BYTES:
                raise ConnectionBroken("http2: header block too large")
        elif frame.kind == HEADERS:
            self._block = bytearray(_block_of(frame))
            self.end_stream = bool(frame.flags & END_STREAM)
            self._stream = frame.stream
        else:
            return None
        if not frame.flags & END_HEADERS:
            return None
        self._stream = 0
        return self._decode(frame.stream)

    def _decode(self, stream: int) -> Fields:
        try:
            decoded = self._decoder.decode(bytes(self._block), raw=True)
            fields: Fields = [(name, value) for name, value in decoded]
        except hpack.HPACKError as error:
            # hpack adds a memory address or the block; both are removed.
            text = str(error).partition(": ")[0] or type(error).__name__
            raise ConnectionBroken(f"http2: invalid header block: {text}") from error
        problem = _problem(fields)
        if problem is not None:
            raise StreamBroken(stream, problem)
        return fields


def _block_of(frame: Frame) -> bytes:
    payload = frame.payload
    padding = 0
    if frame.flags & _PADDED:
        if not payload:
            raise ConnectionBroken("http2: HEADERS without pad length")
        padding = payload[0]
        payload = payload[1:]
    if frame.flags & _PRIORITY_FLAG:
        if len(payload) < 5:
            raise ConnectionBroken("http2: HEADERS without priority")
        payload = payload[5:]
    if padding > len(payload):
        raise StreamBroken(frame.stream, "received invalid frame")
    return payload[: len(payload) - padding]


def _problem(fields: Fields) -> str | None:
    """Why these headers are invalid, or None."""
    pseudo: list[bytes] = []
    regular = False
    for name, value in fields:
        if _CONTROL.search(value):
            return f"invalid header field value for {name!r}"
        if not name.startswith(b":"):
            regular = True
            if not _NAME.fullmatch(name):
                return f"invalid header field name {name!r}"
        elif regular:
            return "pseudo header field after regular"
        elif name in pseudo or name not in _PSEUDO_FIELDS:
            return f"invalid pseudo-header {name!r}"
        else:
            pseudo.append(name)
    if b":status" in pseudo and not _REQUEST_FIELDS.isdisjoint(pseudo):
        return "mix of request and response pseudo headers"
    return None
