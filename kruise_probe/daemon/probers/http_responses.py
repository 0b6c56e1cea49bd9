"""Reads one response to httpGet, without socket or clock.

Source: kubelet pkg/probe/http/http.go for the length of a body.
Differs: llhttp parses it, not Go's net/http, see `wire.responses`. Heads are limited to 64 KiB, in Go to 10 MiB. Nothing
after the first 10 KiB of a body is read, or 256 KiB for a value.
"""

from typing import Final

from kruise_probe.wire.responses import SWITCHING_PROTOCOLS, InvalidResponse, ResponseParser

MAX_BODY_BYTES: Final = 10 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
"""Limit of the head of a response, with informational responses (1xx) before it."""


class ResponseReader(ResponseParser):
    """Reads one response and skips informational responses (1xx) before it."""

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        super().__init__(max_framing_bytes=MAX_HEAD_BYTES, upgrade=True, lenient=True)
        self._max_body_bytes = max_body_bytes

    @property
    def ended(self) -> bool:
        """The body has ended or has reached `max_body_bytes`."""
        is_whole = self.complete or self.status == SWITCHING_PROTOCOLS
        return is_whole or len(self.body) >= self._max_body_bytes

    @property
    def text(self) -> bytes:
        """The first `max_body_bytes` of the body."""
        with memoryview(self.body) as body:
            return bytes(body[: self._max_body_bytes])

    @property
    def is_cut(self) -> bool:
        """There is more of the body."""
        size = len(self.body)
        if size == self._max_body_bytes:
            return not self.complete
        return size > self._max_body_bytes

    @property
    def location(self) -> str:
        """The first Location header; empty without one."""
        location = self.headers.get("location", "")
        return location.encode("latin-1").decode(errors="surrogateescape")

    def read(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection.

        Raises:
            InvalidResponse: no HTTP, a head that is too long, or an unexpected end.
        """
        try:
            if data:
                self.feed(data)
            elif not self.end():
                raise InvalidResponse("unexpected EOF")
        except InvalidResponse:
            if len(self.body) < self._max_body_bytes:
                raise
