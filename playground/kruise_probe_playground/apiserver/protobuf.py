"""Decodes the protobuf that kubectl sends: `kubectl create namespace`, `create serviceaccount`, `drain`.

Only the metadata of an object is decoded, because these commands set nothing else. `drain` and Go's typed clients send
DeleteOptions.

Source: apimachinery pkg/runtime/serializer/protobuf (envelope), meta/v1/generated.proto (field numbers).
Differs: every other body is refused.
"""

from collections.abc import Iterator
from typing import Any, Final

from kruise_probe_playground.apiserver.schema import Json

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
METADATA_ONLY: Final = frozenset({"Namespace", "ServiceAccount"})
"""Kinds that can be decoded."""

_MAGIC: Final = b"k8s\x00"
_TYPE_FIELD: Final = 1
_RAW_FIELD: Final = 2
_KIND_FIELD: Final = 2
_METADATA_FIELD: Final = 1
_TEXTS: Final = {1: "name", 2: "generateName", 3: "namespace"}
_PRECONDITIONS: Final = {1: "uid", 2: "resourceVersion"}
_MAPS: Final = {11: "labels", 12: "annotations"}


def read_metadata(body: bytes) -> Json:
    """Decode an object: its metadata only.

    Raises:
        ValueError: not Kubernetes protobuf.
    """
    metadata: Json = {}
    for number, value in _texts(_message(_fields(_raw(body)), _METADATA_FIELD)):
        if number in _TEXTS and value:
            metadata[_TEXTS[number]] = value.decode()
        elif number in _MAPS:
            entry = dict(_texts(value))
            metadata.setdefault(_MAPS[number], {})[entry.get(1, b"").decode()] = entry.get(
                2, b""
            ).decode()
    return {"metadata": metadata}


def read_delete_options(body: bytes) -> Json:
    """Decode DeleteOptions to their JSON form.

    Raises:
        ValueError: not Kubernetes protobuf, or another kind.
    """
    kind = _message(_fields(_message(_fields(_unwrapped(body)), _TYPE_FIELD)), _KIND_FIELD)
    if kind not in (b"", b"DeleteOptions"):
        raise ValueError(f"the body is of kind {kind.decode(errors='replace')!r}")
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
