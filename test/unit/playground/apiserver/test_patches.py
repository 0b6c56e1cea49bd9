"""JSON merge patch and JSON patch, by the examples of their RFCs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe_playground.apiserver.patches import PatchFailed, json_patch, merge_patch


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_examples_of_rfc_7386(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values, json_values)
def test_merge_patch_is_idempotent(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@pytest.mark.parametrize(
    ("target", "operation", "expected"),
    [
        pytest.param(
            {"foo": "bar"},
            {"op": "add", "path": "/baz", "value": "qux"},
            {"foo": "bar", "baz": "qux"},
            id="add-member",
        ),
        pytest.param(
            {"foo": ["bar", "baz"]},
            {"op": "add", "path": "/foo/1", "value": "qux"},
            {"foo": ["bar", "qux", "baz"]},
            id="add-element",
        ),
        pytest.param(
            {"foo": ["bar"]},
            {"op": "add", "path": "/foo/-", "value": "x"},
            {"foo": ["bar", "x"]},
            id="append",
        ),
        pytest.param(
            {"foo": ["bar", "qux", "baz"]},
            {"op": "remove", "path": "/foo/1"},
            {"foo": ["bar", "baz"]},
            id="remove-element",
        ),
        pytest.param(
            {"baz": "qux", "foo": "bar"},
            {"op": "replace", "path": "/baz", "value": "boo"},
            {"baz": "boo", "foo": "bar"},
            id="replace",
        ),
        pytest.param(
            {"a": {"b": 1}, "c": {}},
            {"op": "move", "from": "/a/b", "path": "/c/d"},
            {"a": {}, "c": {"d": 1}},
            id="move",
        ),
        pytest.param(
            {"foo": [1, 2, 3]},
            {"op": "move", "from": "/foo/0", "path": "/foo/2"},
            {"foo": [2, 3, 1]},
            id="move-element",
        ),
        pytest.param(
            {"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}, id="copy"
        ),
        pytest.param({"a": 1}, {"op": "test", "path": "/a", "value": 1}, {"a": 1}, id="test"),
        pytest.param({}, {"op": "replace", "path": "/a", "value": 1}, {"a": 1}, id="replace-none"),
        pytest.param({}, {"op": "add", "path": "/a"}, {"a": None}, id="no-value"),
        pytest.param({}, {"op": "copy", "from": "/b", "path": "/a"}, {"a": None}, id="copy-none"),
        pytest.param({}, {"op": "test", "path": "/a", "value": None}, {}, id="test-none"),
        pytest.param(
            {"a": [1, 2]}, {"op": "remove", "path": "/a/-1"}, {"a": [1]}, id="from-the-end"
        ),
        pytest.param(
            {"a/b": 1, "m~n": 2},
            {"op": "replace", "path": "/m~0n", "value": 3},
            {"a/b": 1, "m~n": 3},
            id="escaped",
        ),
    ],
)
def test_json_patch_operations(target: Any, operation: Any, expected: Any) -> None:
    assert json_patch(target, [operation]) == expected


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        pytest.param({"op": "remove", "path": "/none"}, 422, id="remove-nothing"),
        pytest.param({"op": "add", "path": "", "value": {}}, 422, id="whole-document"),
        pytest.param({"op": "add", "path": "/x/y", "value": 1}, 422, id="no-parent"),
        pytest.param({"op": "add", "path": "/list/9", "value": 1}, 422, id="beyond-the-list"),
        pytest.param({"op": "test", "path": "/a", "value": 2}, 422, id="failed-test"),
        pytest.param({"op": "add", "path": "/a/b", "value": 1}, 422, id="into-a-number"),
        pytest.param({"op": "invent", "path": "/a"}, 422, id="unknown-operation"),
        pytest.param({"path": "/a"}, 422, id="no-operation"),
        pytest.param("add", 400, id="no-object"),
    ],
)
def test_inapplicable_json_patches_fail(operation: Any, code: int) -> None:
    with pytest.raises(PatchFailed) as refused:
        json_patch({"a": 1, "list": []}, [operation])
    assert refused.value.code == code


def test_failed_json_patch_changes_nothing() -> None:
    target = {"a": [1]}
    with pytest.raises(PatchFailed):
        json_patch(
            target, [{"op": "add", "path": "/a/-", "value": 2}, {"op": "remove", "path": "/x"}]
        )
    assert target == {"a": [1]}
