"""Kubernetes' protobuf, as far as it is read."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe_playground.apiserver.protobuf import read_delete_options, read_metadata
from kruise_probe_playground.apiserver.schema import Json


def varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def text(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def envelope(metadata: bytes) -> bytes:
    kind = text(1, b"v1") + text(2, b"Namespace")
    return b"k8s\x00" + text(1, kind) + text(2, text(1, metadata)) + text(3, b"")


def test_names_and_labels_are_decoded() -> None:
    label = text(1, b"app") + text(2, b"x" * 200)
    metadata = text(1, b"n") + text(2, b"") + varint(7 << 3) + varint(300) + text(11, label)
    assert read_metadata(envelope(metadata)) == {
        "metadata": {"name": "n", "labels": {"app": "x" * 200}}
    }


@pytest.mark.parametrize("read", [read_metadata, read_delete_options])
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
    }


def test_json_is_not_protobuf() -> None:
    with pytest.raises(ValueError, match="does not start"):
        read_metadata(b"{}")
