"""REST paths, and lists with an invalid item."""

import msgspec
import pytest
from support.cases import cases
from support.computations import at_once

from kruise_probe.api.core import Node
from kruise_probe.api.meta import (
    BYTES_PER_STEP,
    MAX_DEPTH,
    TOKENS_PER_STEP,
    ListPage,
    decode_deep,
    without_depth,
)
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS

DEEP = b"[" * 5_000 + b"]" * 5_000
OURS = "/apis/apps.kruise.io/v1alpha1"


@cases(
    "path expected",
    all_namespaces=(PODS.path(), "/api/v1/pods"),
    subresource=(PODS.path("ns", "a", "status"), "/api/v1/namespaces/ns/pods/a/status"),
    cluster_scoped_has_no_namespace=(NODES.path("ns", "n"), "/api/v1/nodes/n"),
    custom_resource=(MARKERS.path("ns"), f"{OURS}/namespaces/ns/podprobemarkers"),
    names_are_quoted=(NODE_POD_PROBES.path(name="a/../b"), f"{OURS}/nodepodprobes/a%2F..%2Fb"),
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


@cases(
    "label node",
    virtual=("type: virtual-kubelet", Node("n", is_virtual=True)),
    windows=("kubernetes.io/os: windows", Node("n", is_windows=True)),
    neither=("kubernetes.io/os: linux", Node("n")),
)
def test_of_the_labels_and_annotations_of_a_node_two_facts_are_kept(label: str, node: Node) -> None:
    key, _, value = label.partition(": ")
    metadata = {"name": "n", "labels": {key: value}, "annotations": {"a": "x" * 1000}}
    assert NODES.decode(msgspec.json.encode({"metadata": metadata})) == node


def decoded(data: bytes) -> ListPage[Pod]:
    return at_once(PODS.decode_list(data))


def test_a_page_of_large_objects_is_decoded_in_steps() -> None:
    large = b'{"metadata":{"name":"large","annotations":{"a":"%b"}}}' % (b"x" * 100_000)
    items = b",".join([large] * 20)
    data = b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[%b]}' % items
    pauses = len(list(PODS.decode_list(data)))
    assert pauses >= len(data) // BYTES_PER_STEP - 1


def test_an_object_nested_deeply_is_left_out_in_steps() -> None:
    fields = b",".join([b'"f:a":{}'] * 100_000)
    data = b'{"a":%b,%b}' % (DEEP, fields)
    pauses = len(list(decode_deep(msgspec.json.decode, data)))
    assert pauses >= 300_000 // TOKENS_PER_STEP - 1


@cases(
    "more place",
    wrong_type=(b'"spec":{"nodeName":12}', "$.spec.nodeName"),
    nested_deeply=(b'"status":{"conditions":%b}' % DEEP, "$.status.conditions"),
)
def test_invalid_item_is_undecodable_alone(more: bytes, place: str) -> None:
    good = b'{"metadata":{"name":"good","namespace":"ns"}}'
    bad = b'{"metadata":{"name":"bad","namespace":"ns","resourceVersion":"5"},%b}' % more
    meta = b'{"resourceVersion":"7","continue":"next"}'
    page = decoded(b'{"kind":"PodList","metadata":%b,"items":[%b,%b]}' % (meta, good, bad))
    (item,) = page.items
    assert str(item.key) == "ns/good"
    (undecodable,) = page.undecodable
    assert str(undecodable.key) == "ns/bad"
    assert undecodable.resource_version == "5"
    assert place in undecodable.error
    assert page.resource_version == "7"
    assert page.continue_token == "next"


@pytest.mark.parametrize("items", ["", ',"items":null', ',"items":[]'])
def test_empty_list_in_any_notation_is_empty(items: str) -> None:
    page = decoded(b'{"kind":"PodList","metadata":{"resourceVersion":"7"}%s}' % items.encode())
    assert page == ([], [], "7", "")


@cases(
    "data",
    no_object=b'"no"',
    status=b'{"kind": "Status", "metadata": {}, "status": "Failure"}',
    one_object=b'{"kind": "Pod", "metadata": {"resourceVersion": "7"}}',
    empty=b"{}",
    of_a_proxy=b'{"message": "ok"}',
    another_kind=b'{"kind": "NodeList", "metadata": {"resourceVersion": "7"}, "items": []}',
    without_version=b'{"kind": "PodList", "metadata": {}, "items": []}',
)
def test_other_object_than_a_list_raises(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decoded(data)


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, 9_000])
def test_without_depth_only_deeper_values_are_missing(depth: int) -> None:
    def around(deep: bytes) -> bytes:
        return b'{"a":%b,"b":[1,{"c":"]\\"["}],"d":%b}' % (deep, deep)

    def nested(lists: int, value: bytes = b"") -> bytes:
        return b"[" * lists + value + b"]" * lists

    found = at_once(without_depth(around(nested(depth - 1))))
    if depth > MAX_DEPTH:
        assert found == around(nested(MAX_DEPTH - 1, b"null"))
    else:
        assert found == around(nested(depth - 1))
