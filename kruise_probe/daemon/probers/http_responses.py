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


class ResponseReader:
    """Reads one response and skips informational responses (1xx) before it.

    Attributes:
        complete: the body has ended or has reached `max_body_bytes`.
    """

    def __init__(self, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.complete = False
        self._max_body_bytes = max_body_bytes
        self._parser = ResponseParser(
            max_framing_bytes=MAX_HEAD_BYTES,
            upgrade=True,
            lenient=True,
        )

    @property
    def status(self) -> int | None:
        """None until the head is complete."""
        return self._parser.status or None

    @property
    def location(self) -> str:
        """The first Location header; empty without one."""
        location = self._parser.headers.get("location", "")
        return location.encode("latin-1").decode(errors="surrogateescape")

    @property
    def body(self) -> bytes:
        """Its first `max_body_bytes`."""
        return bytes(self._parser.body[: self._max_body_bytes])

    @property
    def is_cut(self) -> bool:
        """There is more of the body."""
        size = len(self._parser.body)
        if size == self._max_body_bytes:
            return not self._parser.complete
        return size > self._max_body_bytes

    @property
    def encoding(self) -> str:
        """Of the body, in lower case; empty without Content-Encoding."""
        return self._parser.headers.get("content-encoding", "").lower()

    def close(self) -> None:
        """Feed no more bytes after it."""
        self._parser.close()

    def feed(self, data: bytes) -> None:
        """Add received bytes; empty means end of the connection.

        Raises:
            InvalidResponse: no HTTP, a head that is too long, or an unexpected end.
        """
        parser = self._parser
        try:
            if data:
                parser.feed(data)
            elif not parser.end():
                raise InvalidResponse("unexpected EOF")
        except InvalidResponse:
            if len(parser.body) < self._max_body_bytes:
                raise
        self.complete = (
            parser.complete
            or parser.status == SWITCHING_PROTOCOLS
            or len(parser.body) >= self._max_body_bytes
        )
