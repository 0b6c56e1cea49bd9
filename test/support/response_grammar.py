"""Responses of HTTP and gRPC servers, generated from a seed: mostly valid, with a few deviations each."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from support.flood_servers import frame
from support.tables import load_table

PORT = "{port}"
"""In a response, stands for the server's port."""
T = TypeVar("T")
USUAL = 0.95
"""How often the first choice of a production is taken."""


def _encoded(value: Any) -> Any:
    """With bytes for texts."""
    if isinstance(value, str):
        return value.encode("latin-1")
    return [_encoded(part) for part in value] if isinstance(value, list) else value


def _parts(table: Any) -> dict[str, list[Any]]:
    return {name: _encoded(values) for name, values in table.items()}


_TABLE = load_table(Path(__file__).parents[1] / "data" / "responses.yaml", {})
_HTTP = _parts(_TABLE["http"] | _TABLE["location"])
_GRPC = _parts(_TABLE["grpc"])


class Generated(NamedTuple):
    """What a server sends to a probe: `greeting` at once, `answer` after its request."""

    answer: bytes
    greeting: bytes = b""


class _Choices:
    """Draws from the productions of a table."""

    def __init__(self, seed: object, table: dict[str, list[Any]]) -> None:
        self.random = Random(f"{seed}")
        self._table = table

    def usual(self, name: str) -> Any:
        """A text of a production, mostly the first."""
        return self.usually(*self._table[name])

    def any(self, name: str) -> Any:
        return self.one(*self._table[name])

    def some(self, name: str, most: int) -> list[Any]:
        choices = self._table[name]
        return [self.random.choice(choices) for _ in range(self.random.randint(0, most))]

    def usually(self, usual: T, *others: T) -> T:
        return usual if self.random.random() < USUAL else self.random.choice(others)

    def one(self, *choices: T) -> T:
        return self.random.choice(choices)

    def mutated(self, data: bytes) -> bytes:
        """With a byte changed, removed or inserted."""
        at = self.random.randrange(len(data) + 1)
        byte = self.one(
            b"\r", b"\n", b" ", b"\t", b":", b"\0", b"\x7f", b"\xff", b"0", b"9", b";", b"a", b""
        )
        return data[:at] + byte + data[at + self.one(0, 1) :]


# HTTP.


def http_response(seed: object) -> Generated:
    choices = _Choices(f"http {seed}", _HTTP)
    usual = choices.usual
    kind = choices.one("length", "chunks", "end", "redirect", "redirect")
    code = choices.usually(b"302" if kind == "redirect" else b"200", *_HTTP["codes"])
    version = usual("versions")
    reason = usual("reasons")
    blanks = usual("blanks")
    end = usual("line ends")
    status_line = usual("before") + version + blanks + code + reason + end
    fields = choices.some("headers", choices.one(0, 0, 1, 2))
    body = choices.one(
        b"ok",
        b"",
        b"a\r\nb",
        b"x" * 3000,
        b"x" * 10000,
        b"x" * 11000,
    )
    if kind == "redirect":
        fields.append(usual("location names") + location(choices))
    elif kind == "length":
        length = len(body) + choices.usually(0, 1, -1) if body else 0
        fields.append(b"Content-Length: %d" % length)
    elif kind == "chunks":
        fields.append(b"Transfer-Encoding: chunked")
        body = _chunks(choices, body)
    choices.random.shuffle(fields)
    head = b"".join(field + usual("line ends") for field in fields)
    response = status_line + head + choices.usually(*_HTTP["line ends"], b"") + body
    if kind != "redirect" and choices.one(True, False, False, False):
        response = choices.mutated(response)
    return Generated(response)


def _chunks(choices: _Choices, body: bytes) -> bytes:
    usual = choices.usual
    text = b""
    for at in range(0, len(body), 4000):
        piece = body[at : at + 4000]
        digits = usual("chunk lengths")
        extension = usual("chunk extensions")
        text += digits % len(piece) + extension + usual("line ends")
        text += piece + usual("chunk ends")
    text += usual("last chunks")
    trailer = usual("trailers")
    text += usual("line ends") + trailer
    text += choices.usually(*_HTTP["line ends"], b"")
    return bytes(text)


def location(choices: _Choices) -> bytes:
    text = b""
    if choices.one(True, False):
        text += choices.any("schemes") + b"//"
        text += choices.usual("hosts")
        text += choices.any("paths")
    else:
        text += choices.any("relative paths")
    text += choices.usual("queries")
    text += choices.usual("fragments")
    return bytes(text)


_HEAD = re.compile(
    rb"HTTP/1\.[0-9] [1-9][0-9]{2}(?: [\t\x20-\x7e\x80-\xff]*)?\r?\n"
    rb"((?:[A-Za-z][!#$%&'*+\-.^_`|~0-9A-Za-z]*:[\t\x20-\x7e\x80-\xff]*\r?\n(?: +[!-9;-~][\t\x20-\x39;-\x7e\x80-\xff]*\r?\n)*)*)\r?\n"
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
    if not framing:
        return True
    (name, length), *others = framing
    if others or name != b"content-length":
        return False
    return re.fullmatch(rb"[0-9]{1,18}", length) is not None


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


PING = frame(6, 0, 0, bytes(8))


def grpc_response(seed: object) -> Generated:
    choices = _Choices(f"grpc {seed}", _GRPC)
    values = b""
    for identifier, value in choices.some("settings", choices.one(0, 0, 0, 2)):
        values += identifier.to_bytes(2) + value.to_bytes(4)
    settings = frame(4, 0, 0, values)
    greeting = choices.usually(
        settings,
        b"",
        frame(4, 1, 0),
        PING + settings,
        settings + frame(4, 0, 0),
        b"HTTP/1.1 400 Bad\r\n\r\n",
        frame(7, 0, 0, bytes(8)),
        settings[:5],
    )
    fields = [
        (b":status", choices.usual("statuses")),
        (b"content-type", choices.usual("content types")),
    ]
    fields += choices.some("fields", choices.one(0, 0, 1))
    trailers = [(b"grpc-status", choices.usual("codes"))]
    trailers += choices.some("fields", choices.one(0, 0, 0, 1))
    _deviate(choices, choices.one(fields, trailers))
    if choices.usually(True, False):
        frames = [_headers(choices, fields, ends=False)]
        frames += _data_frames(choices)
        frames.append(_headers(choices, trailers, ends=choices.usually(True, False)))
    else:
        frames = [_headers(choices, fields + trailers, ends=choices.usually(True, False))]
    for other in choices.some("frames", choices.one(0, 0, 1)):
        frames.insert(choices.random.randint(0, len(frames)), frame(*other))
    return Generated(b"".join(frames), greeting)


def _deviate(choices: _Choices, fields: list[tuple[bytes, bytes]]) -> None:
    deviations: list[Callable[[], object]] = [
        lambda: None,
        fields.reverse,
        fields.pop,
        lambda: fields.append(fields[0]),
        fields.clear,
    ]
    deviate = choices.usually(*deviations)
    deviate()


def _headers(
    choices: _Choices,
    fields: Sequence[tuple[bytes, bytes]],
    *,
    ends: bool,
) -> bytes:
    block = b"".join(_field(*field) for field in fields)
    half = len(block) // 2
    flags = 1 if ends else 0
    first = frame(1, flags, 1, block[:half])
    last = frame(9, 4, 1, block[half:])
    shapes = {
        "whole": frame(1, flags | 4, 1, block),
        "split": first + last,
        "padded": frame(1, flags | 4 | 8, 1, b"\3" + block + bytes(3)),
        "priority": frame(1, flags | 4 | 0x20, 1, b"\0\0\0\0\1" + block),
        "unfinished": frame(1, flags, 1, block),
        "split by another": first + PING + last,
        "empty": frame(1, flags | 4, 1),
    }
    return choices.usually(*shapes.values())


def _data_frames(choices: _Choices) -> list[bytes]:
    message = choices.usual("messages")
    size = len(message) + choices.usually(0, 1, -1) if message else 0
    data = choices.usual("compressions") + size.to_bytes(4) + message
    data = choices.usually(
        data,
        data * 2,
        data[:3],
        data + b"\0",
        b"",
    )
    shapes = {
        "whole": [frame(0, 0, 1, data)],
        "split": [frame(0, 0, 1, data[:3]), frame(0, 0, 1, data[3:])],
        "padded": [frame(0, 8, 1, b"\2" + data + bytes(2))],
        "last": [frame(0, 1, 1, data)],
        "none": [],
    }
    return choices.usually(*shapes.values())
