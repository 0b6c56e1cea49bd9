"""Responses of HTTP and gRPC servers, generated from a seed: mostly valid, with a few deviations each."""

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from support.flood_servers import frame

PORT = "{port}"
"""In a response, stands for the server's port."""
T = TypeVar("T")
USUAL = 0.95
"""How often the first choice of a production is taken."""


class Generated(NamedTuple):
    """What a server sends to a probe: `greeting` at once, `answer` after its request."""

    answer: bytes
    greeting: bytes = b""


class _Choices:
    def __init__(self, seed: object) -> None:
        self.random = Random(f"{seed}")

    def usually(self, usual: T, *others: T) -> T:
        return usual if self.random.random() < USUAL else self.random.choice(others)

    def one(self, *choices: T) -> T:
        return self.random.choice(choices)

    def some(self, choices: Sequence[T], most: int) -> list[T]:
        return [self.random.choice(choices) for _ in range(self.random.randint(0, most))]

    def mutated(self, data: bytes) -> bytes:
        """With a byte changed, removed or inserted."""
        at = self.random.randrange(len(data) + 1)
        byte = self.one(
            b"\r", b"\n", b" ", b"\t", b":", b"\0", b"\x7f", b"\xff", b"0", b"9", b";", b"a", b""
        )
        return data[:at] + byte + data[at + self.one(0, 1) :]


# HTTP.

_CODES = (
    b"204",
    b"304",
    b"301",
    b"302",
    b"303",
    b"307",
    b"308",
    b"300",
    b"404",
    b"500",
    b"101",
    b"099",
    b"000",
    b"999",
    b"20",
    b"2000",
    b"+20",
    b"-20",
    b"-00",
    b"2x0",
    b"",
    b"103",
    b"200\t",
    b"0x2",
)
_BEFORE = (
    b"\r\n",
    b"\n",
    b" ",
    b"\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 X\r\nA: b\r\n\r\n",
    b"HTTP/1.1 199 X\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 102\n\n",
    b"HTTP/1.0 100 \r\na\r\n\r\n",
)
_HEADERS = (
    b"X: y",
    b"x:",
    b"X-Y:z ",
    b"Server: a b",
    b"A: \xff\xfe",
    b"A: b\x01",
    b"A: b\x7f",
    b"A: b\tc",
    b"A\x01: b",
    b"A b: c",
    b"A : b",
    b"A\t: b",
    b": b",
    b"A",
    b"(A): b",
    b" A: b",
    b"\tA: b",
    b"\xff: b",
    b"A: b\r\n c",
    b"A:\r\n\tb",
    b"A: b\r\n \r\n c",
    b"A\r\n : b",
    b"A: b\r\n:c",
    b"A: b\r c",
    b"A: b\0",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Trailer: X",
    b"Transfer-Encoding: chunked ",
    b"Transfer-Encoding: gzip",
    b"transfer-encoding:\tchunked",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding:",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Content-Length: 2",
    b"content-length:2\t",
    b"Content-Length: +2",
    b"Content-Length: 2, 2",
    b"Content-Length:",
    b"Content-Length : 2",
    b"Content-Length: 002",
    b"Content-Length: 0x2",
    b"Content-Length: 1_0",
    b"Content-Length: -2",
    b"Content-Length: 9223372036854775808",
    b"Content-Length:\r\n 2",
    b"Upgrade: x",
    b"Content-Encoding: gzip",
    b"Location: /y",
    b"Location:",
    b"Content-Type: text/plain",
)
_ENDS = (b"\n", b" \r\n", b"\r\r\n", b"\r", b"\t\n")


def http_response(seed: object) -> Generated:
    choices = _Choices(f"http {seed}")
    usually = choices.usually
    kind = choices.one("length", "chunks", "end", "redirect", "redirect")
    code = usually(b"302" if kind == "redirect" else b"200", *_CODES)
    version = usually(
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"HTTP/1.2",
        b"HTTP/2.0",
        b"HTTP/0.9",
        b"HTTP/0.0",
        b"HTTP/11",
        b"http/1.1",
        b"HTTP/1.",
        b"",
        b"XTTP/1.1",
        b"HTTP/1.1\t",
    )
    reason = usually(b" OK", b"", b" ", b"  OK", b" \0", b" \xff", b"\tOK", b" a\rb")
    blanks = usually(b" ", b"  ", b"\t", b"", b" \t")
    end = usually(b"\r\n", *_ENDS)
    status_line = usually(b"", *_BEFORE) + version + blanks + code + reason + end
    fields = choices.some(_HEADERS, choices.one(0, 0, 1, 2))
    body = choices.one(b"ok", b"", b"a\r\nb", b"x" * 3000, b"x" * 10000, b"x" * 11000)
    if kind == "redirect":
        fields.append(usually(b"Location: ", b"location:", b"Location:\t") + location(choices))
    elif kind == "length":
        length = len(body) + usually(0, 1, -1) if body else 0
        fields.append(b"Content-Length: %d" % length)
    elif kind == "chunks":
        fields.append(b"Transfer-Encoding: chunked")
        body = _chunks(choices, body)
    choices.random.shuffle(fields)
    head = b"".join(field + usually(b"\r\n", *_ENDS) for field in fields)
    response = status_line + head + usually(b"\r\n", *_ENDS, b"") + body
    if choices.one(True, False, False, False):
        response = choices.mutated(response)
    return Generated(response)


def _chunks(choices: _Choices, body: bytes) -> bytes:
    usually = choices.usually
    pieces = [body[at : at + 4000] for at in range(0, len(body), 4000)]
    text = b""
    for piece in pieces:
        digits = usually(b"%x", b"%X", b"0%x", b"%016x", b"%017x", b"0x%x", b"+%x", b" %x", b"%x_0")
        extension = usually(
            b"", b" ", b"\t", b";a=b", b" ; a", b";\x01", b";\xff", b" x", b';a="\r\n"', b"\r"
        )
        text += digits % len(piece) + extension + usually(b"\r\n", *_ENDS)
        text += piece + usually(b"\r\n", b"\n", b"", b" \r\n", b"\r")
    last = usually(b"0", b"00", b"", b"0;a=b", b"0 ", b"x", b"0" * 20)
    trailer = usually(
        b"",
        b"A: b\r\n",
        b"A\r\n",
        b"A: b\n",
        b" A: b\r\n",
        b"A: \x01\r\n",
    )
    return text + last + usually(b"\r\n", *_ENDS) + trailer + usually(b"\r\n", *_ENDS, b"")


def location(choices: _Choices) -> bytes:
    if choices.one(True, False):
        return choices.one(
            b"/x", b"/", b"x?y", b"http://127.0.0.1:{port}/x", b"//127.0.0.1:{port}/a/../b"
        )
    host = choices.usually(
        "127.0.0.1:{port}",
        "127.0.0.1",
        "localhost:{port}",
        "[::1]:{port}",
        "127.0.0.1:{port}:1",
        "127.0.0.1 ",
        "127.0.0.%31:{port}",
        "[127.0.0.1]:{port}",
        "",
        ":{port}",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "127.0.0.1:0{port}",
        "a|b",
        "a:b:1",
        "127.0.0.1:x",
        "%zz",
    )
    user = choices.usually("", "u@", "u:p@", "@", "%zz@", "a b@", "%41:%42@", "ü@", "a@b@")
    scheme = choices.one(
        "", "http:", "HTTP:", "https:", "ftp:", ":", "1http:", "javascript:", "h+t-t.p:", "ht_tp:"
    )
    slashes = choices.one("//", "//", "//", "", "/", "///", "////", "\\\\", "/\\", "http://")
    path = choices.one(
        "",
        "/",
        "/x",
        "x",
        "../x",
        "./",
        "/a/../b",
        "//x",
        "/%zz",
        "/a b",
        "/a%2fb c",
        "*",
        "x:y",
        "/ü",
        "\\x",
        "/..",
        "/a/./b/..",
        "/a%20",
        "/[x]",
        "/a;b",
        '/{}|^`"<>',
        "/%2",
        "..",
        ".",
        "/a//../b",
        "///..//x",
        "/\t",
        "/!'()*",
    )
    query = choices.usually("", "?", "?q", "??", "?a b", "?\udcff", "?%zz", "?a?b", "?/../")
    fragment = choices.usually("", "#", "#f", "#%zz", "#\t", "#a#b", "#?x")
    return (scheme + slashes + user + host + path + query + fragment).encode(
        errors="surrogateescape"
    )


_HEAD = re.compile(
    rb"HTTP/1\.[0-9] [1-9][0-9]{2}(?: [\t\x20-\x7e\x80-\xff]*)?\r?\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r?\n(?: +[!-~][\t\x20-\x7e\x80-\xff]*\r?\n)*)*)\r?\n"
)
_FRAMING = re.compile(rb"^(content-length|transfer-encoding):[ \t]*([^\r\n]*)\r?$", re.I | re.M)
_CHUNK_HEAD = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[!-~]+)?\r\n")
_TRAILER = re.compile(rb"(?:[A-Za-z-]+:[\t\x20-\x7e]*\r\n)*\r\n")


def is_well_formed(response: bytes) -> bool:
    """Whether a final response is valid by RFC 9112, apart from lines that end with LF and folded headers; its end may be missing."""
    while (head := _HEAD.match(response)) is not None and response[9:10] == b"1":
        response = response[head.end() :]
    if head is None:
        return False
    framing = [(name.lower(), value) for name, value in _FRAMING.findall(head[1])]
    if framing == [(b"transfer-encoding", b"chunked")]:
        return response[:9] != b"HTTP/1.0 " and _has_valid_chunks(response[head.end() :])
    return not framing or (
        len(framing) == 1
        and framing[0][0] == b"content-length"
        and re.fullmatch(rb"[0-9]{1,18}", framing[0][1]) is not None
    )


def _has_valid_chunks(body: bytes) -> bool:
    while (chunk := _CHUNK_HEAD.match(body)) is not None:
        body = body[chunk.end() :]
        size = int(chunk[1], 16)
        if not size:
            return _TRAILER.fullmatch(body) is not None
        if body[size : size + 2] != b"\r\n":
            return False
        body = body[size + 2 :]
    return False


# gRPC.


def _field(name: bytes, value: bytes) -> bytes:
    """A header as HPACK literal that is not indexed."""

    def text(data: bytes) -> bytes:
        if len(data) < 127:
            return bytes([len(data)]) + data
        return bytes([127, len(data) - 127]) + data

    return b"\0" + text(name) + text(value)


def _block(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join(_field(*field) for field in fields)


_OTHER_FIELDS = (
    (b"X-Upper", b"y"),
    (b"connection", b"close"),
    (b"te", b"x"),
    (b"x", b"a\0b"),
    (b"x", b"a\nb"),
    (b"x", b" y "),
    (b"x y", b"z"),
    (b"", b"z"),
    (b"a-bin", b"AA=="),
    (b"a-bin", b"!!"),
    (b"grpc-encoding", b"gzip"),
    (b"grpc-encoding", b"identity"),
    (b"content-length", b"7"),
    (b"content-length", b"8"),
    (b"content-length", b"x"),
    (b":path", b"/"),
    (b":other", b"x"),
    (b":status", b"200"),
    (b":status", b"404"),
    (b"grpc-message", b"%zz"),
    (b"grpc-message", b"a%20b"),
    (b"transfer-encoding", b"chunked"),
    (b"upgrade", b"x"),
    (b"x", b"\xff"),
    (b"content-type", b"text/html"),
    (b"grpc-status-details-bin", b"AA"),
    (b"grpc-status", b"0"),
    (b"date", b"x"),
    (b"x", b"y" * 200),
    (b"cookie", b"a"),
    (b"cookie", b"b"),
    (b"content-length", b"7, 7"),
    (b"host", b"x"),
)
_STATUSES = (
    b"201",
    b"404",
    b"0200",
    b"+200",
    b"",
    b"2000",
    b"204",
    b"304",
    b"503",
    b"199",
    b"x",
    b" 200",
    b"100",
    b"103",
)
_CONTENT_TYPES = (
    b"application/grpc+proto",
    b"application/grpc;x",
    b"application/grpc+",
    b"application/grpc-web",
    b"application/grpcfoo",
    b"APPLICATION/GRPC",
    b"application/grpc ",
    b"text/html",
    b"",
    b"application/grpc+json",
    b"application/json",
)
_CODES_OF_GRPC = (
    b"00",
    b"+0",
    b"-0",
    b" 0",
    b"0 ",
    b"",
    b"1",
    b"5",
    b"12",
    b"16",
    b"17",
    b"-1",
    b"x",
    b"4294967296",
    b"2147483648",
    b"0x0",
    b"000000000000",
    b"0_0",
)
_MESSAGES = (
    b"\x08\2",
    b"\x08\x63",
    b"",
    b"\x08",
    b"\x08\1\x10\1",
    b"\x12\3abc\x08\1",
    b"\xff",
    b"\x08\x81\x80\x00",
    b"\x08\1\x08\2",
    b"\x0a\1x",
    b"\x08\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00",
    b"\x0b\x0c\x08\1",
    b"\x0b\x08\1",
)
_FRAMES = (
    frame(6, 0, 0, b"12345678"),
    frame(6, 1, 0, b"12345678"),
    frame(6, 0, 0, b"1234"),
    frame(6, 0, 1, b"12345678"),
    frame(8, 0, 0, b"\0\0\0\1"),
    frame(8, 0, 1, b"\0\0\0\1"),
    frame(8, 0, 0, b"\0\0\0\0"),
    frame(8, 0, 1, b"\0\0\0\0"),
    frame(8, 0, 0, b"\x7f\xff\xff\xff"),
    frame(8, 0, 1, b"\x7f\xff\xff\xff"),
    frame(8, 0, 3, b"\0\0\0\1"),
    frame(8, 0, 0, b"\0"),
    frame(2, 0, 1, b"\0\0\0\0\1"),
    frame(2, 0, 1, b"\0\0\0\1\1"),
    frame(2, 0, 0, b"\0\0\0\0\1"),
    frame(2, 0, 3, b"\0\0\0\0\1"),
    frame(0x63, 0, 1, b"x"),
    frame(0x63, 0xFF, 0, b""),
    frame(10, 0, 0, b"\0\1ax"),
    frame(4, 0, 0),
    frame(4, 1, 0),
    frame(4, 1, 0, b"x"),
    frame(4, 0, 1),
    frame(4, 0, 0, b"xxxxx"),
    frame(3, 0, 1, b"\0\0\0\0"),
    frame(3, 0, 1, b"\0\0\0\7"),
    frame(3, 0, 1, b"\0\0\0\x08"),
    frame(3, 0, 3, b"\0\0\0\0"),
    frame(3, 0, 0, b"\0\0\0\0"),
    frame(3, 0, 1, b"\0"),
    frame(7, 0, 0, b"\0\0\0\1\0\0\0\0"),
    frame(7, 0, 0, b"\0\0\0\0\0\0\0\0"),
    frame(7, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0"),
    frame(7, 0, 1, b"\0\0\0\1\0\0\0\0"),
    frame(7, 0, 0, b"\0\0\0\1\0\0\0\1debug"),
    frame(7, 0, 0, b"\0\0\0\2\0\0\0\0"),
    frame(5, 4, 1, b"\0\0\0\2\x82"),
    frame(9, 4, 1, b""),
    frame(0, 0, 3, b"x"),
    frame(0, 0, 0, b"x"),
    frame(1, 5, 3, b"\x88"),
    frame(1, 4, 2, b"\x88"),
    frame(0, 0, 1, b""),
    frame(0, 8, 1, b"\1\0"),
    frame(0, 8, 1, b"\5\0"),
    frame(0, 0, 1, b"\0\0\0\0\0"),
    frame(7, 0, 0, b"\0\0"),
)
_SETTINGS_VALUES = (
    *(
        (2, 1),
        (2, 0),
        (2, 2),
        (4, 0),
        (4, 0x7FFF_FFFF),
        (4, 0x8000_0000),
        (5, 16384),
        (5, 16383),
        (5, 0x100_0000),
    ),
    *(
        (1, 0),
        (1, 100_000),
        (3, 0),
        (3, 1),
        (6, 10),
        (6, 100_000),
        (0x63, 1),
        (8, 1),
        (8, 2),
        (9, 1),
    ),
)


def grpc_response(seed: object) -> Generated:
    choices = _Choices(f"grpc {seed}")
    usually = choices.usually
    values = b"".join(
        identifier.to_bytes(2) + value.to_bytes(4)
        for identifier, value in choices.some(_SETTINGS_VALUES, choices.one(0, 0, 0, 2))
    )
    settings = frame(4, 0, 0, values)
    greeting = usually(
        settings,
        b"",
        frame(4, 1, 0),
        frame(6, 0, 0, bytes(8)) + settings,
        settings + frame(4, 0, 0),
        b"HTTP/1.1 400 Bad\r\n\r\n",
        frame(7, 0, 0, bytes(8)),
        settings[:5],
    )
    fields = [
        (b":status", usually(b"200", *_STATUSES)),
        (b"content-type", usually(b"application/grpc", *_CONTENT_TYPES)),
    ]
    fields += choices.some(_OTHER_FIELDS, choices.one(0, 0, 1))
    trailers = [(b"grpc-status", usually(b"0", *_CODES_OF_GRPC))]
    trailers += choices.some(_OTHER_FIELDS, choices.one(0, 0, 0, 1))
    changed = choices.one(fields, trailers)
    _deviate(choices, changed)
    frames: list[bytes] = []
    if usually(True, False):
        frames += _header_frames(choices, fields, ends=False)
        frames += _data_frames(choices)
        frames += _header_frames(choices, trailers, ends=usually(True, False))
    else:
        frames += _header_frames(choices, fields + trailers, ends=usually(True, False))
    for other in choices.some(_FRAMES, choices.one(0, 0, 1)):
        frames.insert(choices.random.randint(0, len(frames)), other)
    return Generated(b"".join(frames), greeting)


def _deviate(choices: _Choices, fields: list[tuple[bytes, bytes]]) -> None:
    act: Callable[[], object] = choices.usually(
        lambda: None,
        lambda: fields.reverse(),
        lambda: fields.pop(),
        lambda: fields.append(fields[0]),
        fields.clear,
    )
    act()


def _header_frames(
    choices: _Choices, fields: Sequence[tuple[bytes, bytes]], *, ends: bool
) -> list[bytes]:
    block = _block(fields)
    flags = 1 if ends else 0
    shape = choices.usually(
        "whole", "split", "padded", "priority", "unfinished", "split by another", "empty"
    )
    half = len(block) // 2
    match shape:
        case "split":
            return [frame(1, flags, 1, block[:half]) + frame(9, 4, 1, block[half:])]
        case "padded":
            return [frame(1, flags | 4 | 8, 1, b"\3" + block + bytes(3))]
        case "priority":
            return [frame(1, flags | 4 | 0x20, 1, b"\0\0\0\0\1" + block)]
        case "unfinished":
            return [frame(1, flags, 1, block)]
        case "split by another":
            return [
                frame(1, flags, 1, block[:half])
                + frame(6, 0, 0, bytes(8))
                + frame(9, 4, 1, block[half:])
            ]
        case "empty":
            return [frame(1, flags | 4, 1, b"")]
        case _:
            return [frame(1, flags | 4, 1, block)]


def _data_frames(choices: _Choices) -> list[bytes]:
    usually = choices.usually
    message = usually(b"\x08\1", *_MESSAGES)
    size = len(message) + usually(0, 1, -1) if message else 0
    data = usually(b"\0", b"\1", b"\2") + size.to_bytes(4) + message
    data = usually(data, data * 2, data[:3], data + b"\0", b"")
    shape = choices.usually("whole", "split", "padded", "last", "none")
    match shape:
        case "split":
            return [frame(0, 0, 1, data[:3]), frame(0, 0, 1, data[3:])]
        case "padded":
            return [frame(0, 8, 1, b"\2" + data + bytes(2))]
        case "last":
            return [frame(0, 1, 1, data)]
        case "none":
            return []
        case _:
            return [frame(0, 0, 1, data)]
