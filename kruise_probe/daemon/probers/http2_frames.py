"""What arrives over HTTP/2, cut into frames, so that the farewell of a server that still answers is left out.

Source: RFC 9113, 4.1 and 6.8; grpc-go internal/transport/http2_client.go (handleGoAway), which finishes the streams
that a GOAWAY names. h2 takes nothing more after one.
"""

from typing import Final

_HEAD_BYTES: Final = 9
_MAX_CONTENT_BYTES: Final = 16 * 1024
"""Of one frame: HTTP/2's default, which we leave."""
_GOAWAY: Final = 7


class Frames:
    """The frames of one connection, in order."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def without_farewells(self, data: bytes) -> bytes:
        """All complete frames, and nothing of the last one as long as it is not.

        What is too long for any frame that we allow is let through as it comes: h2 says what is wrong with it.
        """
        self._begun += data
        passed = bytearray()
        while len(self._begun) >= _HEAD_BYTES:
            size = _HEAD_BYTES + int.from_bytes(self._begun[:3])
            if size > _HEAD_BYTES + _MAX_CONTENT_BYTES:
                passed += self._begun
                self._begun.clear()
            elif len(self._begun) < size:
                break
            else:
                frame = self._begun[:size]
                del self._begun[:size]
                if not _is_farewell(frame):
                    passed += frame
        return bytes(passed)


def _is_farewell(frame: bytearray) -> bool:
    """GOAWAY without an error that still names our stream."""
    last_stream = int.from_bytes(frame[9:13]) & 0x7FFF_FFFF
    return frame[3] == _GOAWAY and len(frame) >= 17 and last_stream >= 1 and not any(frame[13:17])
