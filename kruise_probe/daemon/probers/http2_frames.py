"""Splits HTTP/2 input into frames, limits their number, and ignores a graceful GOAWAY.

Source: RFC 9113, 4.1, 5.5 and 6.8; grpc-go internal/transport/http2_client.go (handleGoAway), which finishes the streams
up to the last stream of a GOAWAY. h2 accepts no frames after a GOAWAY.
Differs: the number of frames is limited. h2 needs up to 0.1 ms for a frame of nine bytes, and a small response needs few.
"""

from typing import Final

MAX_FRAMES: Final = 100
"""Limit of one connection. A response takes about ten frames; the rest is for pings of a slow server."""

_HEAD_BYTES: Final = 9
_MAX_CONTENT_BYTES: Final = 16 * 1024
"""Limit of one frame: the default of HTTP/2."""
_GOAWAY: Final = 7


class TooManyFrames(Exception):
    """The server sent more than `MAX_FRAMES` frames."""


class Frames:
    """The frames of one connection, in order."""

    def __init__(self) -> None:
        self._incomplete = bytearray()
        self._count = 0

    def without_farewells(self, data: bytes) -> bytes:
        """Return all complete frames without a graceful GOAWAY; keep an incomplete frame for the next call.

        A frame over the size limit is passed on as it is, so that h2 reports the error.

        Raises:
            TooManyFrames: the connection had more than `MAX_FRAMES` frames.
        """
        self._incomplete += data
        passed = bytearray()
        while len(self._incomplete) >= _HEAD_BYTES:
            size = _HEAD_BYTES + int.from_bytes(self._incomplete[:3])
            if size > _HEAD_BYTES + _MAX_CONTENT_BYTES:
                passed += self._incomplete
                self._incomplete.clear()
            elif len(self._incomplete) < size:
                break
            else:
                self._count += 1
                if self._count > MAX_FRAMES:
                    raise TooManyFrames(f"the server sent more than {MAX_FRAMES} HTTP/2 frames")
                frame = self._incomplete[:size]
                del self._incomplete[:size]
                if not _is_graceful_goaway(frame):
                    passed += frame
        return bytes(passed)


def _is_graceful_goaway(frame: bytearray) -> bool:
    """Whether the frame is a GOAWAY with NO_ERROR whose last stream includes ours."""
    last_stream = int.from_bytes(frame[9:13]) & 0x7FFF_FFFF
    return frame[3] == _GOAWAY and len(frame) >= 17 and last_stream >= 1 and not any(frame[13:17])
