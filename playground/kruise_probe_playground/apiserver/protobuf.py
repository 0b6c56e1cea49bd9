"""Decodes the protobuf that kubectl sends: `create namespace`, `create configmap`, `drain` and the like.

A message is decoded completely, or refused: a field that the tables do not have is an error. Go's typed clients can be told
to send JSON.

Source: apimachinery pkg/runtime/serializer/protobuf (envelope), meta/v1 and core/v1 generated.proto (field numbers).
Differs: every other body is refused.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kruise_probe.api.times import format_time
from kruise_probe_playground.apiserver.schema import Json

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_TYPE_FIELD: Final = 1
_RAW_FIELD: Final = 2
_KIND_FIELD: Final = 2
_PRECONDITIONS: Final = {1: "uid", 2: "resourceVersion"}

_MESSAGES: Final[Mapping[str, Mapping[int, tuple[str, str]]]] = {
    "ObjectMeta": {
        1: ("name", "text"),
        2: ("generateName", "text"),
        3: ("namespace", "text"),
        4: ("selfLink", "text"),
        5: ("uid", "text"),
        6: ("resourceVersion", "text"),
        7: ("generation", "number"),
        8: ("creationTimestamp", "Time"),
        11: ("labels", "map"),
        12: ("annotations", "map"),
        14: ("finalizers", "list"),
    },
    "Namespace": {
        1: ("metadata", "ObjectMeta"),
        2: ("spec", "NamespaceSpec"),
        3: ("status", "NamespaceStatus"),
    },
    "NamespaceSpec": {1: ("finalizers", "list")},
    "NamespaceStatus": {1: ("phase", "text")},
    "ServiceAccount": {
        1: ("metadata", "ObjectMeta"),
        4: ("automountServiceAccountToken", "boolean"),
    },
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "map"),
        3: ("binaryData", "bytes"),
        4: ("immutable", "boolean"),
    },
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "bytes"),
        3: ("type", "text"),
        4: ("stringData", "map"),
        5: ("immutable", "boolean"),
    },
}
"""Name and type of each field number; `map` and `bytes` are maps of text and of bytes, `list` is one of text."""


def read_object(kind: str, body: bytes) -> Json:
    """Decode an object of one of the kinds that kubectl sends.

    Raises:
        ValueError: not Kubernetes protobuf, another kind, or a field that is not decoded.
    """
    if kind not in _MESSAGES:
        raise ValueError(f"a {kind}")
    sent = _kind_of(body)
    if sent != kind:
        raise ValueError(f"the body is of kind {sent!r}")
    return _decode(kind, _raw(body))


def _decode(message: str, data: bytes) -> Json:
    decoded: Json = {}
    for number, value in _fields(data):
        if number not in _MESSAGES[message]:
            raise ValueError(f"{message} has the field {number}")
        name, kind = _MESSAGES[message][number]
        if (kind in ("number", "boolean")) != isinstance(value, int):
            raise ValueError(f"{message}.{name} has the wrong type")
        if kind == "list":
            decoded.setdefault(name, []).append(value.decode())
        elif kind in ("map", "bytes"):
            entry = dict(_fields(value))
            text = entry.get(2, b"")
            text = b64encode(text) if kind == "bytes" else text
            decoded.setdefault(name, {})[entry.get(1, b"").decode()] = text.decode()
        else:
            decoded[name] = _DECODERS[kind](value) if kind in _DECODERS else _decode(kind, value)
    return {key: value for key, value in decoded.items() if value not in ("", 0) or value is False}


def _decode_time(data: bytes) -> str:
    seconds = dict(_fields(data)).get(1, 0)
    return format_time(datetime.fromtimestamp(seconds, UTC)) if seconds < 1 << 62 else ""


_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "text": bytes.decode,
    "number": int,
    "boolean": bool,
    "Time": _decode_time,
}


def _kind_of(body: bytes) -> str:
    kind = _message(_fields(_message(_fields(_unwrapped(body)), _TYPE_FIELD)), _KIND_FIELD)
    return kind.decode(errors="replace")


def read_delete_options(body: bytes) -> Json:
    """Decode DeleteOptions to their JSON form.

    Raises:
        ValueError: not Kubernetes protobuf, or another kind.
    """
    kind = _kind_of(body)
    if kind not in ("", "DeleteOptions"):
        raise ValueError(f"the body is of kind {kind!r}")
    options: Json = {}
    for number, value in _fields(_raw(body)):
        match number, value:
            case 1, int():
                options["gracePeriodSeconds"] = value - (1 << 64) if value >> 63 else value
            case 2, bytes():
                options["preconditions"] = {
                    _PRECONDITIONS[each]: text.decode()
                    for each, text in _texts(value)
                    if each in _PRECONDITIONS
                }
            case 3, int():
                options["orphanDependents"] = bool(value)
            case 4, bytes():
                options["propagationPolicy"] = value.decode()
            case 5, bytes():
                options.setdefault("dryRun", []).append(value.decode())
            case ((1 | 2 | 3 | 4 | 5), _):
                raise ValueError(f"field {number} has the wrong type")
            case _:
                pass  # an option that this server ignores
    return options


def _unwrapped(body: bytes) -> bytes:
    """runtime.Unknown: the type and the bytes of an object."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not start with the prefix of Kubernetes protobuf")
    return body[len(_MAGIC) :]


def _raw(body: bytes) -> bytes:
    return _message(_fields(_unwrapped(body)), _RAW_FIELD)


def _message(fields: Iterator[tuple[int, Any]], wanted: int) -> bytes:
    found = next((value for number, value in fields if number == wanted), b"")
    if not isinstance(found, bytes):
        raise ValueError(f"field {wanted} is a number; expected a message")
    return found


def _texts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message."""
    return ((number, value) for number, value in _fields(data) if isinstance(value, bytes))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The (field number, value) pairs of one message; length-delimited values as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        match key & 7:
            case 0:
                value: Any
                value, place = _varint(data, place)
            case 1:
                value, place = data[place : place + 8], place + 8
            case 2:
                size, place = _varint(data, place)
                value, place = data[place : place + size], place + size
            case 5:
                value, place = data[place : place + 4], place + 4
            case other:
                raise ValueError(f"unknown wire type {other}")
        yield key >> 3, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(data):
            raise ValueError("the message is truncated")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, place
