"""Any CustomResourceDefinition, not only ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe_playground.apiserver.custom import custom_kind
from kruise_probe_playground.apiserver.schema import Json


def definition(schema: Json, **version: object) -> Json:
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def problems(schema: Json, spec: object) -> list[str]:
    rules = {"type": "object", "properties": {"spec": schema}}
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {}, "spec": spec}
    found = custom_kind(definition(rules)).rules.validate(thing)
    return [f"{each.field}: {each.message}" for each in found]


@pytest.mark.parametrize(
    ("schema", "good", "bad", "message"),
    [
        pytest.param(
            {"type": "string", "pattern": "^a+$"}, "aa", "b", "should match '^a+$'", id="pattern"
        ),
        pytest.param(
            {"type": "string", "minLength": 2}, "aa", "a", "at least 2 chars", id="min-length"
        ),
        pytest.param({"type": "string", "maxLength": 2}, "aa", "aaa", "Too long", id="max-length"),
        pytest.param(
            {"type": "string", "enum": ["a", "b"]},
            "a",
            "c",
            'supported values: "a", "b"',
            id="enum",
        ),
        pytest.param(
            {"type": "integer", "minimum": 1}, 1, 0, "greater than or equal to 1", id="minimum"
        ),
        pytest.param(
            {"type": "integer", "maximum": 1}, 1, 2, "less than or equal to 1", id="maximum"
        ),
        pytest.param({"type": "integer", "format": "int32"}, 2**31 - 1, 2**31, "int32", id="int32"),
        pytest.param({"type": "array", "minItems": 1}, [1], [], "at least 1 items", id="min-items"),
        pytest.param({"type": "array", "maxItems": 1}, [1], [1, 2], "Too many: 2", id="max-items"),
        pytest.param(
            {"type": "object", "minProperties": 1, "additionalProperties": True},
            {"a": 1},
            {},
            "at least 1 properties",
            id="min-properties",
        ),
        pytest.param(
            {"type": "object", "maxProperties": 1, "additionalProperties": True},
            {"a": 1},
            {"a": 1, "b": 2},
            "Too many: 2",
            id="max-properties",
        ),
        pytest.param(
            {"type": "object", "required": ["a"]},
            {"a": 1},
            {},
            "spec.a: Required value",
            id="required",
        ),
        pytest.param(
            {"type": "string", "format": "date-time"},
            "2026-01-02T03:04:05Z",
            "today",
            "date-time",
            id="time",
        ),
        pytest.param({"type": "boolean"}, True, 1, "must be of type boolean", id="boolean"),
        pytest.param({"type": "number"}, 1, "1", "must be of type number", id="number"),
        pytest.param(
            {"type": "string", "nullable": True}, None, 1, "must be of type string", id="nullable"
        ),
        pytest.param(
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            ["a", "b"],
            ["a", "a"],
            "Duplicate value",
            id="set",
        ),
        pytest.param(
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "string"}}},
            },
            [{"n": "a"}, {"n": "b"}],
            [{"n": "a"}, {"n": "a"}],
            "Duplicate value",
            id="map",
        ),
        pytest.param(
            {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"b": 1},
            {},
            "anyOf",
            id="any-of",
        ),
    ],
)
def test_schema_keywords_are_enforced(
    schema: Json, good: object, bad: object, message: str
) -> None:
    assert problems(schema, good) == []
    found = problems(schema, bad)
    assert any(message in each for each in found), found


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
        max_leaves=10,
    )
)
def test_validation_accepts_any_value_without_an_exception(value: object) -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "integer", "minimum": 0},
            "b": {"type": "array", "items": {"type": "string", "pattern": "x"}},
            "c": {"x-kubernetes-int-or-string": True},
        },
    }
    assert all(isinstance(each, str) for each in problems(schema, value))
