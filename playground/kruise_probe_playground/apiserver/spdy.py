"""SPDY/3.1 inside of a WebSocket, as `kubectl port-forward` speaks it: frames and compressed headers. No I/O.

Source: client-go tools/portforward (tunneling_dialer.go), moby/spdystream; SPDY protocol draft 3.1.
Differs: the frames of port-forwards only; no flow control, which spdystream does not have either.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

MAX_FRAME_BYTES: Final = 1 << 20
DATA, SYN_STREAM, SYN_REPLY, RST_STREAM, PING = 0, 1, 2, 3, 6
_FIN: Final = 1
_WORDS: Final = (
    "options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,accept-ranges,a"
    "ge,allow,authorization,cache-control,connection,content-base,content-encoding,content-language,content-l"
    "ength,content-location,content-md5,content-range,content-type,date,etag,expect,expires,from,host,if-matc"
    "h,if-modified-since,if-none-match,if-range,if-unmodified-since,last-modified,location,max-forwards,pragm"
    "a,proxy-authenticate,proxy-authorization,range,referer,retry-after,server,te,trailer,transfer-encoding,u"
    "pgrade,user-agent,vary,via,warning,www-authenticate,method,get,status,200 OK,version,HTTP/1.1,url,public"
    ",set-cookie,keep-alive,origin"
)
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Author"
    "itative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 No"
    "t Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Au"
    "g Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,"
    "image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,def"
    "late,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_DICTIONARY: Final = (
    b"".join(len(each).to_bytes(4, "big") + each.encode() for each in _WORDS.split(","))
    + _REST.encode()
)


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
            texts, at = [], 4
            while at < len(plain):
                size = int.from_bytes(plain[at : at + 4], "big")
                texts.append(plain[at + 4 : at + 4 + size].decode())
                at += 4 + size
        except (zlib.error, UnicodeDecodeError) as error:
            raise MalformedFrame(f"headers cannot be read: {error}") from error
        return dict(zip(texts[::2], texts[1::2], strict=False))

    def data(self, stream: int, payload: bytes, *, final: bool = False) -> bytes:
        return struct.pack(">II", stream, _FIN * final << 24 | len(payload)) + payload

    def reply(self, stream: int) -> bytes:
        """The SYN_REPLY that accepts a stream; it has no headers."""
        block = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(SYN_REPLY, stream.to_bytes(4, "big") + block)

    def pong(self, payload: bytes) -> bytes:
        return _control(PING, payload)


def _control(kind: int, payload: bytes) -> bytes:
    return struct.pack(">II", 0x80030000 | kind, len(payload)) + payload


def _stream(payload: bytes) -> int:
    return int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
