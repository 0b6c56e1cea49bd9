"""What each field manager owns of a pod, according to its `managedFields`.

Source: structured-merge-diff's fieldsV1 format.
Differs: only condition types and the keys of labels and annotations.
"""

from collections.abc import Iterable
from sys import getsizeof, intern

import msgspec

from kruise_probe.api.caches import (
    OBJECT_BYTES,
    Cache,
    sizes_of,
)
from kruise_probe.api.names import (
    ANCIENT_FIELD_MANAGER,
    MANAGER_FIELD_MANAGER,
    NATIVE_POD_CONDITIONS,
)
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Writers, marks_of
from kruise_probe.api.structs import Wire

SHARED_FIELDS_BYTES = 4096
"""Larger `managedFields` are of pods with many probes and change with each result: what is owned is cached, not the bytes."""


SHARED_MARKS = 64
"""The same for the marks that other field managers own."""


MAX_KEYS = 2000
"""Labels or annotations of one pod. A pod with more does not decode: each of them takes 250 bytes here."""


KUBELET_FIELD_MANAGER = "kubelet"


ABSENT = msgspec.Raw()  # Raw cannot be `| None`: a JSON null arrives as the bytes `null`


class ManagedFields(Wire, frozen=True):
    manager: str | None = None
    subresource: str | None = None
    fields_v1: msgspec.Raw = ABSENT


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def check_keys(encoded: bytes | msgspec.Raw, mark: bytes) -> None:
    """Raises: ValidationError, if an encoded map has more than MAX_KEYS keys. Kubernetes does not limit the labels.

    `mark` is what follows each name. It cannot be in a text, where quotes are escaped.
    """
    if bytes(encoded).count(mark) > MAX_KEYS:
        raise msgspec.ValidationError(f"has more than {MAX_KEYS} labels or annotations")


def owned_in(entries: Iterable[ManagedFields]) -> tuple[Owned, Owned, Owned, Writers]:
    """What our manager owns, what others own, what has no owner, and who the others are.

    The kubelet writes neither labels nor annotations. What the API server merged from the oldest managers may have been
    ours, so it has no owner here.
    """
    ours = NOTHING_OWNED
    others = NOTHING_OWNED
    merged = NOTHING_OWNED
    writers: Writers = ()
    for entry in entries:
        if entry.manager == MANAGER_FIELD_MANAGER and entry.subresource == "status":
            ours = _shared_owned(entry)
        elif entry.manager == ANCIENT_FIELD_MANAGER:
            merged = _shared_owned(entry)
        elif entry.manager != KUBELET_FIELD_MANAGER:
            found = _shared_owned(entry)
            others = found if others is NOTHING_OWNED else _union(others, found)
            if found:
                writers = (*writers, (intern(entry.manager or ""), found))
    return ours, others, merged, _shared_writers(writers)


def _shared_writers(writers: Writers) -> Writers:
    if sum(len(owned) for _, owned in writers) > SHARED_MARKS:
        return writers
    return _writers[writers]


def _shared_owned(entry: ManagedFields) -> Owned:
    fields = bytes(entry.fields_v1)
    if len(fields) > SHARED_FIELDS_BYTES:
        return _unions[_owned_of(fields)]
    return _owned_fields[fields]


def _union(left: Owned, right: Owned) -> Owned:
    union = left | right
    if sum(len(mark.name) for mark in union) > SHARED_FIELDS_BYTES:
        return union
    return _unions[union]


def _owned_of(fields: bytes) -> Owned:
    """Parse `{"f:metadata": {"f:labels": {"f:a": {}}}, "f:status": {"f:conditions": {'k:{"type":"x"}': {}}}}`."""
    top = _decoded_fields(fields)
    check_keys(top.get("f:metadata", b""), b'":{')
    metadata = _subfields(top, "f:metadata")
    types = list[str]()
    for key in _subfields(_subfields(top, "f:status"), "f:conditions"):
        if key.startswith('k:{"type":"'):
            kind = msgspec.json.decode(
                key[2:],
                type=dict[str, str],
            )["type"]
            if kind not in NATIVE_POD_CONDITIONS:
                types.append(intern(kind))
    return marks_of(
        types,
        _leaf_names(_subfields(metadata, "f:labels")),
        _leaf_names(_subfields(metadata, "f:annotations")),
    )


def _decoded_fields(fields: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    return (fields and _fields_decoder.decode(fields)) or {}


def _subfields(fields: dict[str, msgspec.Raw], name: str) -> dict[str, msgspec.Raw]:
    return _decoded_fields(fields.get(name, b""))


def _leaf_names(fields: dict[str, msgspec.Raw]) -> list[str]:
    return [intern(key[2:]) for key in fields if key.startswith("f:")]


def _owned_bytes(owned: Owned) -> int:
    names = [mark.name for mark in owned]
    return sizes_of(names) + getsizeof(owned) + OBJECT_BYTES * len(names)


def _writers_bytes(writers: Writers) -> int:
    return sum(OBJECT_BYTES + _owned_bytes(owned) for _, owned in writers)


_writers = Cache[Writers, Writers](
    lambda writers, _: _writers_bytes(writers), lambda writers: writers
)


_unions = Cache[Owned, Owned](lambda owned, _: _owned_bytes(owned), lambda owned: owned)


# Fields may contain the uid of one pod's Job; what is owned is still the same for many pods.
_owned_fields = Cache[bytes, Owned](
    lambda fields, owned: getsizeof(fields) + _owned_bytes(owned),
    lambda fields: _union(NOTHING_OWNED, _owned_of(fields)),
)
