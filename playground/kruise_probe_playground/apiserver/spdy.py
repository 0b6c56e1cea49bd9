"""SPDY/3.1 inside of a WebSocket, as `kubectl port-forward` speaks it: frames and compressed headers. No I/O.

Source: client-go tools/portforward (tunneling_dialer.go), moby/spdystream; SPDY protocol draft 3.1.
Differs: the frames of port-forwards only; no flow control, which spdystream does not have either.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final, NamedTuple

MAX_FRAME_BYTES: Final = 1 << 20
DATA = 0
SYN_STREAM = 1
SYN_REPLY = 2
RST_STREAM = 3
PING = 6
_FIN: Final = 1


def _dictionary() -> bytes:
    """The preset dictionary of the headers' compression: words with their lengths, then a text."""
    words, _, text = (
        files(__package__).joinpath("spdy_dictionary.txt").read_text().partition("\n\n")
    )
    with_lengths = (len(word).to_bytes(4, "big") + word.encode() for word in words.split("\n"))
    return b"".join(with_lengths) + text.rstrip("\n").encode()


_DICTIONARY: Final = _dictionary()


class MalformedFrame(Exception):
    """The client sent something other than SPDY frames."""


class Frame(NamedTuple):
    """`headers` are those of a SYN_STREAM, `payload` that of data or a PING; `final` ends the stream of the client."""

    kind: int
    stream: int
    payload: bytes = b""
    headers: Mapping[str, str] = {}
    final: bool = False


class Framer:
    """The frames of one connection, in both directions."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=_DICTIONARY)
        self._deflate = zlib.compressobj(zdict=_DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete.

        Raises:
            MalformedFrame: close the connection.
        """
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack(">II", self._buffer[:8])
            size = second & 0xFFFFFF
            if size > MAX_FRAME_BYTES:
                raise MalformedFrame(f"a frame has more than {MAX_FRAME_BYTES} bytes")
            if len(self._buffer) < 8 + size:
                return
            payload = bytes(self._buffer[8 : 8 + size])
            del self._buffer[: 8 + size]
            final = bool(second >> 24 & _FIN)
            if not first >> 31:
                yield Frame(DATA, first, payload, final=final)
            elif first & 0xFFFF == SYN_STREAM:
                yield Frame(
                    SYN_STREAM, _stream(payload), headers=self._headers(payload[10:]), final=final
                )
            elif first & 0xFFFF == RST_STREAM:
                yield Frame(RST_STREAM, _stream(payload))
            elif first & 0xFFFF == PING:
                yield Frame(PING, 0, payload)

    def _headers(self, block: bytes) -> Mapping[str, str]:
        try:
            plain = self._inflate.decompress(block, MAX_FRAME_BYTES)
            texts = []
            at = 4
            while at < len(plain):
                size = int.from_bytes(plain[at : at + 4], "big")
                texts.append(plain[at + 4 : at + 4 + size].decode())
                at += 4 + size
        except (zlib.error, UnicodeDecodeError) as error:
            raise MalformedFrame(f"headers cannot be read: {error}") from error
        return dict(
            zip(
                texts[::2],
                texts[1::2],
                strict=False,
            )
        )

    def data(
        self,
        stream: int,
        payload: bytes,
        *,
        final: bool = False,
    ) -> bytes:
        return (
            struct.pack(
                ">II",
                stream,
                _FIN * final << 24 | len(payload),
            )
            + payload
        )

    def reply(self, stream: int) -> bytes:
        """The SYN_REPLY that accepts a stream; it has no headers."""
        block = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(SYN_REPLY, stream.to_bytes(4, "big") + block)

    def pong(self, payload: bytes) -> bytes:
        return _control(PING, payload)


def _control(kind: int, payload: bytes) -> bytes:
    return (
        struct.pack(
            ">II",
            0x80030000 | kind,
            len(payload),
        )
        + payload
    )


def _stream(payload: bytes) -> int:
    return int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
