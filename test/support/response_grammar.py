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
_HTTP: dict[str, list[bytes]] = _parts(_TABLE["http"])
_LOCATION: dict[str, list[bytes]] = _parts(_TABLE["location"])
_GRPC: dict[str, list[Any]] = _parts(_TABLE["grpc"])


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


def http_response(seed: object) -> Generated:
    choices = _Choices(f"http {seed}")
    usually = choices.usually
    kind = choices.one("length", "chunks", "end", "redirect", "redirect")
    code = usually(b"302" if kind == "redirect" else b"200", *_HTTP["codes"])
    version = usually(*_HTTP["versions"])
    reason = usually(*_HTTP["reasons"])
    blanks = usually(*_HTTP["blanks"])
    end = usually(*_HTTP["line ends"])
    status_line = usually(*_HTTP["before"]) + version + blanks + code + reason + end
    fields = choices.some(_HTTP["headers"], choices.one(0, 0, 1, 2))
    body = choices.one(b"ok", b"", b"a\r\nb", b"x" * 3000, b"x" * 10000, b"x" * 11000)
    if kind == "redirect":
        fields.append(usually(*_HTTP["location names"]) + location(choices))
    elif kind == "length":
        length = len(body) + usually(0, 1, -1) if body else 0
        fields.append(b"Content-Length: %d" % length)
    elif kind == "chunks":
        fields.append(b"Transfer-Encoding: chunked")
        body = _chunks(choices, body)
    choices.random.shuffle(fields)
    head = b"".join(field + usually(*_HTTP["line ends"]) for field in fields)
    response = status_line + head + usually(*_HTTP["line ends"], b"") + body
    if kind != "redirect" and choices.one(True, False, False, False):
        response = choices.mutated(response)
    return Generated(response)


def _chunks(choices: _Choices, body: bytes) -> bytes:
    usually = choices.usually
    pieces = [body[at : at + 4000] for at in range(0, len(body), 4000)]
    text = b""
    for piece in pieces:
        digits = usually(*_HTTP["chunk lengths"])
        extension = usually(*_HTTP["chunk extensions"])
        text += digits % len(piece) + extension + usually(*_HTTP["line ends"])
        text += piece + usually(*_HTTP["chunk ends"])
    text += usually(*_HTTP["last chunks"])
    trailer = usually(*_HTTP["trailers"])
    text += usually(*_HTTP["line ends"]) + trailer
    return text + usually(*_HTTP["line ends"], b"")


def location(choices: _Choices) -> bytes:
    if choices.one(True, False):
        text = choices.one(*_LOCATION["schemes"])
        text += b"//" + choices.usually(*_LOCATION["hosts"])
        text += choices.one(*_LOCATION["paths"])
    else:
        text = choices.one(*_LOCATION["relative paths"])
    query = choices.usually(*_LOCATION["queries"])
    return text + query + choices.usually(*_LOCATION["fragments"])


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


_FRAMES = [frame(kind, flags, stream, payload) for kind, flags, stream, payload in _GRPC["frames"]]


def grpc_response(seed: object) -> Generated:
    choices = _Choices(f"grpc {seed}")
    usually = choices.usually
    values = b"".join(
        identifier.to_bytes(2) + value.to_bytes(4)
        for identifier, value in choices.some(_GRPC["settings"], choices.one(0, 0, 0, 2))
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
        (b":status", usually(*_GRPC["statuses"])),
        (b"content-type", usually(*_GRPC["content types"])),
    ]
    fields += choices.some(_GRPC["fields"], choices.one(0, 0, 1))
    trailers = [(b"grpc-status", usually(*_GRPC["codes"]))]
    trailers += choices.some(_GRPC["fields"], choices.one(0, 0, 0, 1))
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
    message = usually(*_GRPC["messages"])
    size = len(message) + usually(0, 1, -1) if message else 0
    data = usually(*_GRPC["compressions"]) + size.to_bytes(4) + message
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
