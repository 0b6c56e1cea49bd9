"""Kubernetes' protobuf, as far as it is read."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe_playground.apiserver.protobuf import read_object
from kruise_probe_playground.apiserver.schema import Json


def varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def text(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def envelope(metadata: bytes, more: bytes = b"", kind: bytes = b"Namespace") -> bytes:
    envelope = text(1, text(1, b"v1") + text(2, kind))
    return b"k8s\x00" + envelope + text(2, text(1, metadata) + more) + text(3, b"")


def read_namespace(body: bytes) -> Json:
    return read_object("Namespace", body)


def read_delete_options(body: bytes) -> Json:
    return read_object("DeleteOptions", body)


def test_names_and_labels_are_decoded() -> None:
    label = text(1, b"app") + text(2, b"x" * 200)
    metadata = text(1, b"n") + text(2, b"") + varint(7 << 3) + varint(300) + text(11, label)
    assert read_namespace(envelope(metadata)) == {
        "metadata": {"name": "n", "generation": 300, "labels": {"app": "x" * 200}}
    }


def test_all_fields_of_a_config_map_are_decoded() -> None:
    entry = text(1, b"k") + text(2, b"v")
    metadata = text(1, b"c") + text(6, b"7") + text(8, varint(8) + varint(0)) + text(14, b"a.b/c")
    body = envelope(metadata, text(2, entry) + text(3, entry) + bytes([4 << 3, 0]), b"ConfigMap")
    assert read_object("ConfigMap", body) == {
        "metadata": {
            "name": "c",
            "resourceVersion": "7",
            "creationTimestamp": "1970-01-01T00:00:00Z",
            "finalizers": ["a.b/c"],
        },
        "data": {"k": "v"},
        "binaryData": {"k": "dg=="},
        "immutable": False,
    }


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(envelope(text(13, b"")), "ObjectMeta has the field 13", id="an-owner"),
        pytest.param(envelope(b"", text(9, b"")), "Namespace has the field 9", id="unknown-field"),
        pytest.param(envelope(bytes([1 << 3, 1])), "name has the wrong type", id="wrong-type"),
        pytest.param(envelope(b"", kind=b"Pod"), "of kind 'Pod'", id="another-kind"),
    ],
)
def test_what_is_not_decoded_completely_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_namespace(body)


@pytest.mark.parametrize("read", [read_namespace, read_delete_options])
@given(body=st.binary(max_size=60))
def test_invalid_protobuf_raises_value_error(read: Callable[[bytes], Json], body: bytes) -> None:
    for sent in (body, b"k8s\x00" + body, b"k8s\x00" + text(2, body)):
        try:
            read(sent)
        except (ValueError, KeyError, UnicodeDecodeError):
            continue


def test_delete_options_are_decoded_to_their_json_form() -> None:
    preconditions = text(1, b"u") + text(2, b"7")
    raw = varint(1 << 3) + varint(2**64 - 1) + text(2, preconditions) + varint(3 << 3) + varint(0)
    raw += text(4, b"Orphan") + text(5, b"All") + text(5, b"x") + varint(6 << 3) + varint(1)
    assert read_delete_options(b"k8s\x00" + text(2, raw)) == {
        "gracePeriodSeconds": -1,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "orphanDependents": False,
        "propagationPolicy": "Orphan",
        "dryRun": ["All", "x"],
        "ignoreStoreReadErrorWithClusterBreakingPotential": True,
    }


def test_json_is_not_protobuf() -> None:
    with pytest.raises(ValueError, match="does not start"):
        read_namespace(b"{}")
