"""WebSocket streams of the API server: the handshake, a parser of the server's messages, and an open stream.

Source: RFC 6455; kubectl and the official Python client use the same protocol for exec and port-forward.
Differs: the official Python client connects and reads without a limit, and sends no impersonation headers. So the
stream is one of our own connections, with the client's credentials, proxy and deadlines. No extensions; a message has
a size limit.
"""

import asyncio
import base64
import hashlib
import secrets
from typing import Final, NamedTuple

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.client.request import Request
from kruise_probe.client.transport import Response, ResponseStream

MAX_MESSAGE_BYTES: Final = 1 << 20
"""Maximum size of one message. Runtimes send at most 32 KiB at once."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FIN: Final = 0x80
_MASKED: Final = 0x80
_MAX_CONTROL_BYTES: Final = 125

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


class Message(NamedTuple):
    """A complete message; `opcode` is TEXT, BINARY, CLOSE, PING or PONG."""

    opcode: int
    payload: bytes


class ProtocolError(Exception):
    """The server sent malformed WebSocket messages, or exceeded a limit. The message contains the reason."""


class MessageParser:
    """Incremental parser of the server's messages: no I/O."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._opcode = 0
        self._fragments = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Message | None:
        """Return the next complete message, or None if bytes are missing.

        Raises:
            ProtocolError: the frame is malformed, or the message exceeds the limit. Feed no more bytes after it.
        """
        while (frame := self._next_frame()) is not None:
            final, opcode, payload = frame
            if opcode >= CLOSE:
                return Message(opcode, payload)
            if (opcode == CONTINUATION) != bool(self._opcode):
                raise ProtocolError("a fragment is out of order")
            self._opcode = self._opcode or opcode
            self._fragments += payload
            if final:
                message = Message(self._opcode, bytes(self._fragments))
                self._opcode = 0
                self._fragments.clear()
                return message
        return None

    def _next_frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        final, opcode = bool(buffer[0] & _FIN), buffer[0] & 0x0F
        size, start = buffer[1] & ~_MASKED, 2
        if buffer[0] & 0x70 or opcode not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise ProtocolError("a frame has an unknown type")
        if buffer[1] & _MASKED:
            raise ProtocolError("a frame of the server is masked")
        if opcode >= CLOSE and (size > _MAX_CONTROL_BYTES or not final):
            raise ProtocolError("a control frame is fragmented or too long")
        if size > _MAX_CONTROL_BYTES:
            start += 2 if size == _MAX_CONTROL_BYTES + 1 else 8
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        if opcode < CLOSE and len(self._fragments) + size > self._max_message_bytes:
            raise ProtocolError(f"a message exceeds {self._max_message_bytes} bytes")
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        del buffer[: start + size]
        return final, opcode, payload


def encode(opcode: int, payload: bytes) -> bytes:
    """A frame of a client, masked as the protocol requires."""
    size, mask = len(payload), secrets.token_bytes(4)
    if size <= _MAX_CONTROL_BYTES:
        head = bytes((_FIN | opcode, _MASKED | size))
    elif size < 1 << 16:
        head = bytes((_FIN | opcode, _MASKED | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FIN | opcode, _MASKED | 127)) + size.to_bytes(8, "big")
    repeated = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return head + mask + masked.to_bytes(size, "big")


class Handshake:
    """The header lines of the request for a WebSocket, and the check of the response."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._key = base64.b64encode(secrets.token_bytes(16))

    @property
    def header_lines(self) -> str:
        return (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {self._key.decode()}\r\nSec-WebSocket-Protocol: {self._protocol}\r\n"
        )

    def problem(self, response: Response) -> str:
        """Why the response does not open the stream, or empty."""
        fields = response.headers
        accept = base64.b64encode(hashlib.sha1(self._key + _GUID).digest()).decode()
        if fields.get("sec-websocket-accept") != accept:
            return f"the server responded with status {response.status} instead of a WebSocket"
        if fields.get("sec-websocket-protocol") != self._protocol:
            return f"the server does not support the protocol {self._protocol}"
        return ""


class WebSocket:
    """An open stream of binary messages."""

    def __init__(self, stream: ResponseStream, request: Request) -> None:
        self._stream = stream
        self._request = request
        self._parser = MessageParser()

    def send(self, payload: bytes) -> None:
        """Send a binary message."""
        self._stream.write(encode(BINARY, payload))

    async def receive(self, *, deadline_seconds: float) -> bytes | None:
        """Return the payload of the next message, or None if the stream has ended.

        Raises:
            ConnectionFailed: nothing arrived within the deadline, the connection broke, or the bytes are malformed.
        """
        while True:
            try:
                message = self._parser.next()
            except ProtocolError as error:
                raise ConnectionFailed(f"{self._request}: {error}") from error
            if message is None:
                data = await self._stream.read_chunk(deadline_seconds=deadline_seconds)
                if not data:
                    return None
                self._parser.feed(data)
                continue
            await asyncio.sleep(0)  # thousands of messages may have arrived at once
            if message.opcode == CLOSE:
                return None
            if message.opcode == PING:
                self._stream.write(encode(PONG, message.payload))
            elif message.opcode != PONG:
                return message.payload
