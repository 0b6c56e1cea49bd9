"""Decodes the protobuf that kubectl sends: `create namespace`, `create configmap`, `drain` and the like.

A message is decoded completely, or refused: an unknown field is an error. Go's typed clients can be configured to send
JSON.

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


def _message(*fields: str) -> Mapping[int, tuple[str, str]]:
    """Name and type of each field by its number: from 1, text by default, empty for a number that is refused."""
    split = [each.partition(":") for each in fields]
    return {at: (name, kind or "text") for at, (name, _, kind) in enumerate(split, 1) if name}


_MESSAGES: Final[Mapping[str, Mapping[int, tuple[str, str]]]] = {
    "Unknown": _message("typeMeta:TypeMeta", "raw:raw", "contentEncoding", "contentType"),
    "TypeMeta": _message("apiVersion", "kind"),
    "DeleteOptions": _message(
        "gracePeriodSeconds:number",
        "preconditions:Preconditions",
        "orphanDependents:boolean",
        "propagationPolicy",
        "dryRun:list",
        "ignoreStoreReadErrorWithClusterBreakingPotential:boolean",
    ),
    "Preconditions": _message("uid", "resourceVersion"),
    "MapEntry": _message("key", "value"),
    "BytesEntry": _message("key", "value:base64"),
    "Timestamp": _message("seconds:number", "nanos:number"),
    "ObjectMeta": _message(
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation:positive",
        "creationTimestamp:Time",
        "",
        "",
        "labels:MapEntry",
        "annotations:MapEntry",
        "",
        "finalizers:list",
    ),
    "Namespace": _message("metadata:ObjectMeta", "spec:NamespaceSpec", "status:NamespaceStatus"),
    "NamespaceSpec": _message("finalizers:list"),
    "NamespaceStatus": _message("phase"),
    "ServiceAccount": _message(
        "metadata:ObjectMeta", "", "", "automountServiceAccountToken:boolean"
    ),
    "ConfigMap": _message(
        "metadata:ObjectMeta", "data:MapEntry", "binaryData:BytesEntry", "immutable:boolean"
    ),
    "Secret": _message(
        "metadata:ObjectMeta", "data:BytesEntry", "type", "stringData:MapEntry", "immutable:boolean"
    ),
}
"""`list` is a list of text; `positive` is a number that is absent if it is zero."""

_NUMBERS: Final = ("number", "positive", "boolean")


def read_object(kind: str, body: bytes) -> Json:
    """Decode an object of one of the kinds that kubectl sends, or DeleteOptions.

    Raises:
        ValueError: not Kubernetes protobuf, another kind, or a field that is not decoded.
    """
    if kind not in _MESSAGES:
        raise ValueError(f"a {kind}")
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not start with the prefix of Kubernetes protobuf")
    envelope = _decode("Unknown", body[len(_MAGIC) :])
    sent = envelope.get("typeMeta", {}).get("kind", kind)
    if sent != kind:
        raise ValueError(f"the body is of kind {sent!r}")
    return _decode(kind, envelope.get("raw", b""))


def _decode(message: str, data: bytes) -> Json:
    decoded: Json = {}
    for number, value in _fields(data):
        if number not in _MESSAGES[message]:
            raise ValueError(f"{message} has the field {number}")
        name, kind = _MESSAGES[message][number]
        if (kind in _NUMBERS) != isinstance(value, int):
            raise ValueError(f"{message}.{name} has the wrong type")
        part = _DECODERS[kind](value) if kind in _DECODERS else _decode(kind, value)
        if kind == "list":
            decoded.setdefault(name, []).append(part)
        elif kind in ("MapEntry", "BytesEntry"):
            decoded.setdefault(name, {})[part.get("key", "")] = part.get("value", "")
        else:
            decoded[name] = part
    return {key: value for key, value in decoded.items() if value not in ("", None)}


def _integer(unsigned: int) -> int:
    return unsigned - (unsigned >> 63 << 64)


def _time(data: bytes) -> str | None:
    seconds = _decode("Timestamp", data).get("seconds", 0)
    return format_time(datetime.fromtimestamp(seconds, UTC)) if seconds >= 0 else None


_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "text": bytes.decode,
    "list": bytes.decode,
    "raw": bytes,
    "base64": lambda value: b64encode(value).decode(),
    "number": _integer,
    "positive": lambda value: value or None,
    "boolean": bool,
    "Time": _time,
}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The (field number, value) pairs of one message; length-delimited values as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        value: Any
        match key & 7:
            case 0:
                value, place = _varint(data, place)
            case 2:
                size, place = _varint(data, place)
                value, place = data[place : place + size], place + size
            case other:
                raise ValueError(f"unexpected wire type {other}")
        if place > len(data):
            raise ValueError("the message is truncated")
        yield key >> 3, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ValueError("a number does not end")
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, place
