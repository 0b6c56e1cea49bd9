"""Strategic merge patches: directives, orders, and what is refused."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe_playground.apiserver.schema import Compiler, Json
from kruise_probe_playground.apiserver.strategic import PatchFailed, strategic_merge_patch

SCHEMA = Compiler(typed=True).compile(
    {
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "type",
                "items": {"type": "object", "properties": {"type": {"type": "string"}}},
            },
            "finalizers": {
                "type": "array",
                "x-kubernetes-patch-strategy": "merge",
                "items": {"type": "string"},
            },
            "volumes": {
                "type": "array",
                "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "name",
                "items": {"type": "object", "additionalProperties": {}},
            },
            "atomic": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
)


def conditions(*pairs: tuple[str, Any]) -> list[Json]:
    return [{"type": kind, "status": status} for kind, status in pairs]


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param(
            {"conditions": conditions(("a", 1), ("b", 2))},
            {"conditions": conditions(("b", 3))},
            {"conditions": conditions(("a", 1), ("b", 3))},
            id="merge-by-key",
        ),
        pytest.param(
            {"conditions": conditions(("a", 1))},
            {"conditions": conditions(("b", 2))},
            {"conditions": conditions(("b", 2), ("a", 1))},
            id="new-items-first",
        ),
        pytest.param(
            {"conditions": conditions(("a", 1), ("b", 2), ("c", 3))},
            {"conditions": [{"type": "b", "$patch": "delete"}]},
            {"conditions": conditions(("a", 1), ("c", 3))},
            id="delete-item",
        ),
        pytest.param(
            {"conditions": conditions(("a", 1))},
            {"conditions": [{"$patch": "replace"}, *conditions(("b", 2))]},
            {"conditions": conditions(("b", 2))},
            id="replace-list",
        ),
        pytest.param(
            {"conditions": conditions(("a", 1), ("b", 2), ("c", 3))},
            {"$setElementOrder/conditions": [{"type": "c"}, {"type": "a"}]},
            {"conditions": conditions(("b", 2), ("c", 3), ("a", 1))},
            id="order",
        ),
        pytest.param(
            {},
            {"conditions": [{"type": "a", "$patch": "delete"}, *conditions(("b", 2))]},
            {"conditions": conditions(("b", 2))},
            id="directives-vanish-where-nothing-was",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"finalizers": ["c", "a"]},
            {"finalizers": ["c", "a", "b"]},
            id="scalars-merge",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
            id="delete-scalars",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": "/x"}]},
            {"volumes": [{"name": "v", "hostPath": "/x"}]},
            id="retain-keys",
        ),
        pytest.param({"atomic": ["a"]}, {"atomic": ["b"]}, {"atomic": ["b"]}, id="atomic-list"),
        pytest.param(
            {"labels": {"a": "1"}},
            {"labels": {"a": None, "b": "2"}},
            {"labels": {"b": "2"}},
            id="null-removes",
        ),
        pytest.param(
            {"labels": {"a": "1"}},
            {"labels": {"$patch": "replace", "b": "2"}},
            {"labels": {"b": "2"}},
            id="replace-map",
        ),
        pytest.param(
            {"labels": {"a": "1"}},
            {"labels": {"$patch": "delete"}},
            {"labels": {}},
            id="delete-map",
        ),
        pytest.param({}, {"labels": {"a": None}}, {"labels": {}}, id="nulls-vanish"),
    ],
)
def test_patches(target: Json, patch: Json, expected: Json) -> None:
    before = deepcopy(target)
    assert strategic_merge_patch(target, patch, SCHEMA) == expected
    assert target == before


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        pytest.param([], 400, id="no-object"),
        pytest.param({"conditions": [{"status": 1}]}, 500, id="no-merge-key"),
        pytest.param(
            {"conditions": [{"type": "a", "$patch": "invent"}]}, 500, id="unknown-directive"
        ),
        pytest.param({"labels": {"$patch": "invent"}}, 500, id="unknown-directive-of-a-map"),
        pytest.param({"labels": {"$patch": "merge"}}, 400, id="merge-directive"),
        pytest.param(
            {"labels": {"$retainKeys": ["b"], "a": "1"}}, 400, id="key-that-is-not-retained"
        ),
    ],
)
def test_invalid_strategic_patches_fail(patch: Any, code: int) -> None:
    with pytest.raises(PatchFailed) as refused:
        strategic_merge_patch(
            {"conditions": conditions(("a", 1)), "labels": {"z": "1"}}, patch, SCHEMA
        )
    assert refused.value.code == code


kinds = st.lists(st.sampled_from("abcdef"), unique=True)


@given(kinds, kinds)
def test_merged_conditions_contain_old_and_new_ones(old: list[str], new: list[str]) -> None:
    target = {"conditions": conditions(*((kind, "old") for kind in old))}
    patch = {"conditions": conditions(*((kind, "new") for kind in new))}
    merged = strategic_merge_patch(target, patch, SCHEMA)["conditions"]
    assert {each["type"]: each["status"] for each in merged} == {
        **dict.fromkeys(old, "old"),
        **dict.fromkeys(new, "new"),
    }
    assert len(merged) == len(set(old) | set(new))
    order = [each["type"] for each in merged]
    assert [kind for kind in order if kind in new] == new
    assert [kind for kind in order if kind not in new] == [kind for kind in old if kind not in new]
