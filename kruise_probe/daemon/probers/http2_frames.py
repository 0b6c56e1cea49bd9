"""What arrives over HTTP/2, cut into frames: few of them, and without the farewell of a server that still answers.

Source: RFC 9113, 4.1, 5.5 and 6.8; grpc-go internal/transport/http2_client.go (handleGoAway), which finishes the streams
that a GOAWAY names. h2 takes nothing more after one.
Differs: a connection for one small answer has no use for many frames. Their number is limited, since h2 needs up to a
tenth of a millisecond for one of nine bytes.
"""

from typing import Final

MAX_FRAMES: Final = 100
"""Of one connection. An answer takes about ten; the rest is for the pings of a server that is slow."""

_HEAD_BYTES: Final = 9
_MAX_CONTENT_BYTES: Final = 16 * 1024
"""Of one frame: HTTP/2's default, which we leave."""
_GOAWAY: Final = 7


class TooManyFrames(Exception):
    """The server sent more frames than a health check has."""


class Frames:
    """The frames of one connection, in order."""

    def __init__(self) -> None:
        self._incomplete = bytearray()
        self._count = 0

    def without_farewells(self, data: bytes) -> bytes:
        """All complete frames, and nothing of the last one as long as it is not.

        What is too long for any frame that we allow is let through as it comes: h2 says what is wrong with it.

        Raises:
            TooManyFrames: there were more than `MAX_FRAMES` on this connection.
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
                if not _is_farewell(frame):
                    passed += frame
        return bytes(passed)


def _is_farewell(frame: bytearray) -> bool:
    """GOAWAY without an error that still names our stream."""
    last_stream = int.from_bytes(frame[9:13]) & 0x7FFF_FFFF
    return frame[3] == _GOAWAY and len(frame) >= 17 and last_stream >= 1 and not any(frame[13:17])
