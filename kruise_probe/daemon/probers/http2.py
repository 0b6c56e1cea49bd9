"""HTTP/2 as far as one request needs it: the frames and headers that a server sends. No socket, no clock.

Source: RFC 9113; RFC 7541 by hpack.
Differs: a frame that breaks the protocol is ignored where its bytes can still be read. Frames, header blocks and the number
of frames are limited, because each costs time.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import hpack

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
GOAWAY: Final = 7
_CONTINUATION: Final = 9

ACK: Final = 1
END_STREAM: Final = 1
END_HEADERS: Final = 4
_PADDED: Final = 8
_PRIORITY_FLAG: Final = 0x20
_PRIORITY_BYTES: Final = 5

MAX_FRAMES: Final = 100
"""Limit of one connection. A response takes about ten frames; the rest is for pings of a slow server."""
MAX_HEADER_LIST_BYTES: Final = 16 * 1024
"""Limit of headers or trailers, counted as in RFC 9113, 6.5.2. gRPC's C core has the same limit."""
MAX_HEADER_LIST_SETTING: Final = 6
ENABLE_PUSH_SETTING: Final = 2
_MAX_PAYLOAD_BYTES: Final = 16 * 1024
_FRAME_HEAD_BYTES: Final = 9


class ConnectionBroken(Exception):
    """The server breaks the protocol or a limit; the connection cannot be used any more."""


class Frame(NamedTuple):
    """Kind, flags, stream and payload."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    def encode(self) -> bytes:
        size = len(self.payload)
        head = bytearray(size.to_bytes(3))
        head.append(self.kind)
        head.append(self.flags)
        head += self.stream.to_bytes(4)
        return bytes(head) + self.payload


def encode_settings(values: dict[int, int]) -> bytes:
    """An encoded SETTINGS frame."""
    payload = b""
    for name, value in values.items():
        payload += name.to_bytes(2)
        payload += value.to_bytes(4)
    frame = Frame(SETTINGS, 0, 0, payload)
    return frame.encode()


class FrameReader:
    """Reads the frames of a server. They have no padding, and a header block is one HEADERS frame, whatever its parts were."""

    def __init__(self) -> None:
        self._incomplete = bytearray()
        self._count = 0
        self._begun: Frame | None = None
        self._decoder = hpack.Decoder(max_header_list_size=MAX_HEADER_LIST_BYTES)

    def read(self, data: bytes) -> Iterator[Frame]:
        """Add received bytes and yield each complete frame. Raises: ConnectionBroken."""
        self._incomplete += data
        while (frame := self._next()) is not None:
            self._count += 1
            if self._count > MAX_FRAMES:
                raise ConnectionBroken(f"the server sent more than {MAX_FRAMES} HTTP/2 frames")
            joined = self._joined(frame)
            if joined is not None:
                yield joined

    def fields(self, frame: Frame) -> dict[bytes, bytes]:
        """The headers of a HEADERS frame; of several with one name the last. Raises: ConnectionBroken."""
        try:
            decoded = self._decoder.decode(frame.payload, raw=True)
        except hpack.HPACKError as error:
            # hpack adds a memory address or the block, so its text is not shown.
            kind = type(error).__name__
            raise ConnectionBroken(f"http2: invalid header block: {kind}") from error
        return dict(decoded)

    def _next(self) -> Frame | None:
        """The next frame as it was sent; what it declares is checked as soon as its head is complete."""
        head = self._incomplete[:_FRAME_HEAD_BYTES]
        if len(head) < _FRAME_HEAD_BYTES:
            return None
        size = int.from_bytes(head[:3])
        kind = head[3]
        if not self._count and kind != SETTINGS:
            raise ConnectionBroken("the server does not speak HTTP/2")
        if size > _MAX_PAYLOAD_BYTES:
            raise ConnectionBroken("http2: frame too large")
        end = _FRAME_HEAD_BYTES + size
        if len(self._incomplete) < end:
            return None
        payload = bytes(self._incomplete[_FRAME_HEAD_BYTES:end])
        del self._incomplete[:end]
        flags = head[4]
        stream = int.from_bytes(head[5:])
        return Frame(kind, flags, stream, payload)

    def _joined(self, frame: Frame) -> Frame | None:
        """The frame without padding; None for a part of a header block that has not ended."""
        if frame.kind == _CONTINUATION and self._begun is not None:
            begun = self._begun
            flags = begun.flags | frame.flags
            payload = begun.payload + frame.payload
            frame = begun._replace(flags=flags, payload=payload)
        elif frame.kind in (HEADERS, DATA):
            payload = _unpadded(frame)
            frame = frame._replace(payload=payload)
        if frame.kind != HEADERS:
            return frame
        if len(frame.payload) > MAX_HEADER_LIST_BYTES:
            raise ConnectionBroken("http2: header block too large")
        if frame.flags & END_HEADERS:
            self._begun = None
            return frame
        self._begun = frame
        return None


def _unpadded(frame: Frame) -> bytes:
    payload = frame.payload
    if frame.flags & _PADDED:
        padding = int.from_bytes(payload[:1])
        end = len(payload) - padding
        payload = payload[1:end]
    if frame.kind == HEADERS and frame.flags & _PRIORITY_FLAG:
        payload = payload[_PRIORITY_BYTES:]
    return payload
