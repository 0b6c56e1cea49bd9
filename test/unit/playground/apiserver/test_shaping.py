"""Pruning and defaulting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.manifests.crds import marker_crd
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.custom import custom_kind
from kruise_probe_playground.apiserver.schema import Compiler, Json
from kruise_probe_playground.apiserver.shaping import WrongType, apply_defaults, prune

KINDS = {each.kind: each for each in builtin_kinds()}
MARKER = custom_kind(marker_crd())


@pytest.mark.parametrize(
    ("sent", "kept", "unknown"),
    [
        pytest.param({"a": "x", "z": 1}, {"a": "x"}, ["z"], id="unknown"),
        pytest.param({"l": [{"a": "x", "z": 1}]}, {"l": [{"a": "x"}]}, ["l[0].z"], id="in-a-list"),
        pytest.param(
            {"m": {"k": {"a": "x", "z": 1}}}, {"m": {"k": {"a": "x"}}}, ["m.k.z"], id="in-a-map"
        ),
        pytest.param(
            {"free": {"z": [1, {"y": 2}]}}, {"free": {"z": [1, {"y": 2}]}}, [], id="preserved"
        ),
        pytest.param({"a": None}, {}, [], id="null-is-absent"),
        pytest.param({"m": {"k": None}}, {"m": {}}, [], id="null-in-a-map"),
        pytest.param({"l": [None]}, {"l": [None]}, [], id="null-in-a-list-stays-for-validation"),
        pytest.param({"n": None}, {"n": None}, [], id="nullable"),
        pytest.param({"free": {"z": None}}, {"free": {"z": None}}, [], id="null-preserved"),
        pytest.param({"l": "text"}, {"l": "text"}, [], id="wrong-type-stays-for-validation"),
    ],
)
def test_custom_resources_are_pruned(sent: Json, kept: Json, unknown: list[str]) -> None:
    one = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = Compiler().compile(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "n": {"type": "string", "nullable": True},
                "l": {"type": "array", "items": one},
                "m": {"type": "object", "additionalProperties": one},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    )
    found: list[str] = []
    assert prune(sent, schema, found) == kept
    assert found == unknown


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param({"metadata": {"labels": {}}}, {"metadata": {}}, id="empty-map"),
        pytest.param({"metadata": {"finalizers": []}}, {"metadata": {}}, id="empty-list"),
        pytest.param({"metadata": {"generateName": ""}}, {"metadata": {}}, id="empty-text"),
        pytest.param({"metadata": {"creationTimestamp": None}}, {"metadata": {}}, id="null"),
        pytest.param(
            {"metadata": {"labels": {"a": ""}}},
            {"metadata": {"labels": {"a": ""}}},
            id="empty-value",
        ),
        pytest.param(
            {"spec": {"securityContext": {}}}, {"spec": {"securityContext": {}}}, id="empty-struct"
        ),
    ],
)
def test_built_in_objects_drop_what_go_omits(sent: Json, kept: Json) -> None:
    assert prune(sent, KINDS["Pod"].schema, []) == kept


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        pytest.param({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a", id="label"),
        pytest.param({"spec": {"containers": {}}}, "spec.containers", id="list"),
        pytest.param(
            {"spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}},
            "spec.containers[0].ports[0].containerPort",
            id="number",
        ),
        pytest.param({"spec": {"hostNetwork": "yes"}}, "spec.hostNetwork", id="boolean"),
    ],
)
def test_built_in_objects_reject_wrong_types(sent: Json, path: str) -> None:
    with pytest.raises(WrongType) as refused:
        prune(sent, KINDS["Pod"].schema, [])
    assert refused.value.path == path


def test_defaults_apply_to_absent_fields_only() -> None:
    schema = Compiler().compile(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "default": "d"},
                "n": {"type": "string", "default": "d", "nullable": True},
                "o": {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}},
                "l": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"b": {"default": 1}}},
                },
            },
        }
    )
    empty: Json = {}
    apply_defaults(empty, schema)
    assert empty == {"a": "d", "n": "d"}
    partial: Json = {"a": "x", "n": None, "o": {}, "l": [{}, {"b": 2}]}
    apply_defaults(partial, schema)
    assert partial == {"a": "x", "n": None, "o": {"b": 1}, "l": [{"b": 1}, {"b": 2}]}
    null: Json = {"a": None}
    apply_defaults(null, schema)
    assert null["a"] == "d"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "probes", "probe", "httpGet", "port", "x"]), inner, max_size=3
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["spec", "status", "x"]), json_values))
def test_pruning_and_defaulting_are_idempotent(sent: Json) -> None:
    once = prune(sent, MARKER.schema, [])
    apply_defaults(once, MARKER.schema)
    unknown: list[str] = []
    twice = prune(once, MARKER.schema, unknown)
    apply_defaults(twice, MARKER.schema)
    assert twice == once
    assert unknown == []
