"""The parser of HTTP/1.1 responses.

Source: RFC 9112; Go net/http transport.go (persistConn, 1xx responses, size limit of the header).
Differs: llhttp parses, in strict mode or with the leniencies that servers in use need.
"""

from typing import Final

import httptools

from kruise_probe.api.errors import ConnectionFailed

SWITCHING_PROTOCOLS: Final = 101


class InvalidResponse(ConnectionFailed):
    """The response is not valid HTTP, or its encoding was not requested."""


class ResponseParser:
    """Incremental parser of one response: no I/O, no clock.

    With `tunnel`, it parses a proxy's response to CONNECT: on success, that ends with its header. With `upgrade`, it
    accepts 101: the bytes of the other protocol are the body, until the connection ends. With `lenient`, lines may end
    with LF alone, blanks may follow the length of a chunk, and the version may be any 1.x.

    Attributes:
        status: HTTP status; 0 until the header is complete.
        headers: header fields by name in lower case; of several, the first.
        body: the bytes of the body that were received and not yet taken.
        complete: True when the whole response was received.
        reusable: True if the connection can carry another request once this response is complete.
    """

    def __init__(
        self,
        *,
        max_framing_bytes: int,
        tunnel: bool = False,
        upgrade: bool = False,
        lenient: bool = False,
    ) -> None:
        """`max_framing_bytes` limits what is outside the body: header, 1xx responses, trailers."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.complete = False
        self.reusable = False
        self._max_framing_bytes = max_framing_bytes
        self._tunnel = tunnel
        self._upgrade = upgrade
        self._framing_bytes = 0
        self._interim = False
        self._until_close = False
        parser = httptools.HttpResponseParser(self)
        if lenient:
            parser.set_dangerous_leniencies(
                lenient_headers=True,
                lenient_version=True,
                lenient_chunked_length=True,
                lenient_optional_cr_before_lf=True,
                lenient_spaces_after_chunk_size=True,
                lenient_data_after_close=True,
            )
        self._parser: httptools.HttpResponseParser | None = parser

    def feed(self, data: bytes) -> None:
        """Parse the next bytes. Bytes after a complete response make the connection not reusable.

        Raises:
            InvalidResponse: the bytes are not valid HTTP, or exceed a limit. Feed no more bytes after it.
        """
        if self._parser is None:
            self.reusable = False
            if not self.complete:
                self.body += data
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            if self.status != SWITCHING_PROTOCOLS:
                raise InvalidResponse("the server switched to another protocol") from None
            self._parser = None
            self.body += data[switched.args[0] :]
            return
        except httptools.HttpParserError as error:
            self.reusable = False
            if not self.complete:
                raise InvalidResponse(f"the response is not valid HTTP ({error})") from error
        if self.complete:
            self.close()
        elif self._framing_bytes > self._max_framing_bytes:
            raise InvalidResponse(f"the header exceeds {self._max_framing_bytes} bytes")

    def end(self) -> bool:
        """Handle the end of the connection. Return False if the response is incomplete."""
        self.close()
        self.complete = self.complete or self._until_close
        return self.complete

    def close(self) -> None:
        """Break the reference cycle with the parser of httptools: until a garbage collection, it would keep the body."""
        self._parser = None

    # Callbacks of httptools. They ignore data after a complete response, except that its connection is not reusable.

    def on_message_begin(self) -> None:
        self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # not a trailer
            text = value.decode("latin-1")
            self.headers.setdefault(name.decode("latin-1").lower(), text.strip())

    def on_headers_complete(self) -> None:
        if self.complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200 and not (self._upgrade and status == SWITCHING_PROTOCOLS):
            self._interim = True
            return
        self.status = status
        encoding = self.headers.get("transfer-encoding", "")
        has_end = "chunked" in encoding.lower() or "content-length" in self.headers
        self._until_close = not has_end
        keeps_alive = self._parser.should_keep_alive()
        self.reusable = keeps_alive and status != SWITCHING_PROTOCOLS
        if self._tunnel and status < 300:
            self.complete = True
            self.reusable = True

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self.reusable = False
            return
        self._framing_bytes = 0
        self.body += data

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self.headers.clear()
        elif self.status != SWITCHING_PROTOCOLS:
            self.complete = True
