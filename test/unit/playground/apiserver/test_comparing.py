"""Which fields changed: as structured-merge-diff tells it."""

from typing import Any

import pytest

from kruise_probe_playground.apiserver.field_sets import compare
from kruise_probe_playground.apiserver.schema import Compiler, Json

NAMED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
    },
}
SCHEMA = Compiler().compile(
    {
        "type": "object",
        "properties": {
            "scalar": {"type": "string"},
            "struct": {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "atomic": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"type": "string"},
            },
            "list": {"type": "array", "items": {"type": "string"}},
            "set": {
                "type": "array",
                "x-kubernetes-list-type": "set",
                "items": {"type": "string"},
            },
            "named": NAMED,
            "any": {"x-kubernetes-preserve-unknown-fields": True},
        },
    }
)


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        pytest.param({}, {"scalar": "x"}, {"f:scalar": {}}, {}, id="added"),
        pytest.param({"scalar": "x"}, {"scalar": "y"}, {"f:scalar": {}}, {}, id="changed"),
        pytest.param({"scalar": "x"}, {}, {}, {"f:scalar": {}}, id="removed"),
        pytest.param({"scalar": "x"}, {"scalar": "x"}, {}, {}, id="same"),
        pytest.param(
            {},
            {"struct": {"a": "x"}},
            {"f:struct": {".": {}, "f:a": {}}},
            {},
            id="new-struct-counts-itself",
        ),
        pytest.param(
            {"struct": {}},
            {"struct": {"a": "x"}},
            {"f:struct": {"f:a": {}}},
            {},
            id="struct-that-was-there-does-not-count",
        ),
        pytest.param({}, {"struct": {}}, {"f:struct": {}}, {}, id="empty-struct-is-a-leaf"),
        pytest.param(
            {"labels": {"a": "1", "b": "2"}},
            {"labels": {"b": "3", "c": "4"}},
            {"f:labels": {"f:b": {}, "f:c": {}}},
            {"f:labels": {"f:a": {}}},
            id="map-key-by-key",
        ),
        pytest.param(
            {"atomic": {"a": "1"}}, {"atomic": {"b": "1"}}, {"f:atomic": {}}, {}, id="atomic-map"
        ),
        pytest.param({"list": ["a"]}, {"list": ["a", "b"]}, {"f:list": {}}, {}, id="atomic-list"),
        pytest.param(
            {"set": ["a", "b"]},
            {"set": ["b", "c"]},
            {"f:set": {'v:"c"': {}}},
            {"f:set": {'v:"a"': {}}},
            id="set-element-by-element",
        ),
        pytest.param(
            {"named": [{"name": "a", "value": "1"}, {"name": "b"}]},
            {"named": [{"name": "b"}, {"name": "a", "value": "2"}]},
            {"f:named": {'k:{"name":"a"}': {"f:value": {}}}},
            {},
            id="items-by-key-whatever-their-order",
        ),
        pytest.param(
            {"named": [{"name": "a", "value": "1"}]},
            {"named": []},
            {},
            {"f:named": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:value": {}}}},
            id="last-item-removed",
        ),
        pytest.param(
            {},
            {"named": [{"name": "a"}, {"name": "a"}]},
            {"f:named": {".": {}, 'k:{"name":"a"}': {}}},
            {},
            id="duplicates-count-as-one-leaf",
        ),
        pytest.param(
            {"any": {"x": {"y": 1}, "l": [1]}},
            {"any": {"x": {"y": 2}, "l": [2]}},
            {"f:any": {"f:l": {}, "f:x": {"f:y": {}}}},
            {},
            id="untyped-maps-are-granular-and-lists-atomic",
        ),
        pytest.param({"list": None}, {"list": ["a"]}, {"f:list": {}}, {}, id="null-becomes-a-list"),
        pytest.param(
            {"labels": {"a": "1"}},
            {},
            {},
            {"f:labels": {".": {}, "f:a": {}}},
            id="whole-map-removed",
        ),
        pytest.param(
            {"any": {"a": 1}}, {"any": "text"}, {"f:any": {}}, {}, id="another-type-is-a-leaf"
        ),
    ],
)
def test_changes(old: Json, new: Json, changed: Any, removed: Any) -> None:
    comparison = compare(old, new, SCHEMA)
    assert comparison.changed == changed
    assert comparison.removed == removed
