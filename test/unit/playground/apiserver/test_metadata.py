"""Rules of metadata."""

from random import Random
from typing import Any

import pytest

from kruise_probe.playground.apiserver.builtin import builtin_kinds
from kruise_probe.playground.apiserver.metadata import (
    carry_over,
    name_error,
    name_generated,
    problems,
    update_problems,
)
from kruise_probe.playground.apiserver.schema import Json

KINDS = {each.kind: each for each in builtin_kinds()}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        pytest.param({}, "metadata.name", id="no-name"),
        pytest.param({"name": "A"}, "metadata.name", id="upper-case"),
        pytest.param({"name": "a" * 254}, "metadata.name", id="long-name"),
        pytest.param({"name": "a", "labels": {"-": "b"}}, "metadata.labels", id="label-key"),
        pytest.param({"name": "a", "labels": {"a": "-"}}, "metadata.labels", id="label-value"),
        pytest.param(
            {"name": "a", "annotations": {"-": "b"}}, "metadata.annotations", id="annotation-key"
        ),
        pytest.param(
            {"name": "a", "annotations": {"a": "b" * (256 << 10)}},
            "metadata.annotations",
            id="annotations",
        ),
        pytest.param({"name": "a", "finalizers": ["a b"]}, "metadata.finalizers", id="finalizer"),
        pytest.param(
            {"name": "a", "ownerReferences": [{**OWNER, "uid": ""}]},
            "metadata.ownerReferences.uid",
            id="owner",
        ),
    ],
)
def test_what_is_wrong_is_named(metadata: Json, field: str) -> None:
    assert [each.field for each in problems(metadata, KINDS["Pod"])] == [field]


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    found = problems({"name": "n", "namespace": "ns"}, KINDS["Node"])
    assert [each.field for each in found] == ["metadata.namespace"]


@pytest.mark.parametrize(
    ("name", "label", "good"),
    [("a.b", False, True), ("a.b", True, False), ("a" * 63, True, True), ("a" * 64, True, False)],
)
def test_names_of_namespaces_are_labels(name: str, label: bool, good: bool) -> None:
    assert (name_error(name, label=label) is None) is good


def test_good_metadata_has_no_problems() -> None:
    metadata = {
        "name": "a",
        "labels": {"example.com/a": "b"},
        "annotations": {"Example.com/a": "anything at all"},
        "finalizers": ["example.com/f"],
        "ownerReferences": [OWNER],
    }
    assert list(problems(metadata, KINDS["Pod"])) == []


def test_a_generated_name_has_five_letters_more_and_room_for_them() -> None:
    metadata: Json = {"generateName": "x" * 100}
    name_generated(metadata, Random(1))
    assert len(metadata["name"]) == 63
    named: Json = {"generateName": "x-", "name": "n"}
    name_generated(named, Random(1))
    assert named["name"] == "n"


@pytest.mark.parametrize(
    ("new", "old", "fields"),
    [
        pytest.param({"uid": "a"}, {"uid": "b"}, ["metadata.uid"], id="uid"),
        pytest.param(
            {"uid": "a", "deletionTimestamp": "t"},
            {"uid": "a"},
            ["metadata.deletionTimestamp"],
            id="deletion-by-update",
        ),
        pytest.param(
            {"uid": "a", "deletionTimestamp": "t", "finalizers": ["x", "y"]},
            {"uid": "a", "deletionTimestamp": "t", "finalizers": ["x"]},
            ["metadata.finalizers"],
            id="late-finalizer",
        ),
        pytest.param(
            {"uid": "a", "deletionTimestamp": "t", "finalizers": []},
            {"uid": "a", "deletionTimestamp": "t", "finalizers": ["x"]},
            [],
            id="finalizer-leaves",
        ),
    ],
)
def test_what_an_update_must_not_do(new: Json, old: Json, fields: list[str]) -> None:
    assert [each.field for each in update_problems(new, old)] == fields


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param({}, {"uid": "u", "creationTimestamp": "c", "generation": 3}, id="filled"),
        pytest.param(
            {"uid": "v", "creationTimestamp": "x", "generation": 9, "selfLink": "/x"},
            {"uid": "v", "creationTimestamp": "c", "generation": 3},
            id="only-a-uid-is-taken-as-sent",
        ),
    ],
)
def test_identity_is_carried_over(sent: dict[str, Any], expected: Json) -> None:
    carry_over(sent, {"uid": "u", "creationTimestamp": "c", "generation": 3})
    assert sent == expected


def test_a_deletion_is_carried_over() -> None:
    new: Json = {}
    old = {
        "uid": "u",
        "creationTimestamp": "c",
        "deletionTimestamp": "d",
        "deletionGracePeriodSeconds": 5,
    }
    carry_over(new, old)
    assert new == old
