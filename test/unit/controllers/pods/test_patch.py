"""The encoding of a patch, and the meaning of errors."""

import msgspec
import pytest
from support.builders import condition_wire, marker, pod, policy_wire, probe_wire

from kruise_probe.api.errors import (
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
)
from kruise_probe.api.pods import PodCondition
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.pods.claims import claims_of
from kruise_probe.controllers.pods.marking import Changes
from kruise_probe.controllers.pods.patch import encode_patch, parts_of, pod_is_gone


def test_a_patch_contains_the_uid_and_only_our_keys() -> None:
    there = pod(conditions=[condition_wire("c/x", reason="old", message="old")])
    changes = Changes(
        {"l": None, "m": "1"},
        {"a": "1"},
        [
            PodCondition("c/x", "True", last_probe_time="t1"),
            PodCondition("c/plain", "True"),
            PodCondition("c/new", "False", message="why", last_transition_time="t2"),
        ],
        ["c/gone"],
    )
    assert msgspec.json.decode(encode_patch(there, changes)) == {
        "metadata": {
            "uid": there.uid,
            "labels": {"l": None, "m": "1"},
            "annotations": {"a": "1"},
        },
        "status": {
            "conditions": [
                {
                    "type": "c/x",
                    "status": "True",
                    "reason": None,
                    "message": None,
                    "lastProbeTime": "t1",
                },
                {"type": "c/plain", "status": "True"},
                {
                    "type": "c/new",
                    "status": "False",
                    "message": "why",
                    "lastTransitionTime": "t2",
                },
                {"$patch": "delete", "type": "c/gone"},
            ]
        },
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param(Changes({"l": "1"}, {}, [], []), "labels", id="labels"),
        pytest.param(Changes({}, {"a": "1"}, [], []), "annotations", id="annotations"),
    ],
)
def test_a_patch_contains_only_fields_that_change(changes: Changes, field: str) -> None:
    body = msgspec.json.decode(encode_patch(pod(), changes))
    assert body.keys() == {"metadata"}
    assert body["metadata"].keys() == {"uid", field}


def test_parts_are_the_common_changes_and_those_of_each_marker() -> None:
    both = [policy_wire("Succeeded", {"l": "1"}, {"a": "1"}), policy_wire("Failed", {"m": "1"})]
    first = marker("one", probes=[probe_wire("p", policies=both)])
    policies = [policy_wire("Succeeded", None, {"b": "2"})]
    other = marker("two", probes=[probe_wire("p", condition="c/y", policies=policies)])
    claims = claims_of((compile_marker(first), compile_marker(other)))
    condition = PodCondition("c/x", "True")
    changes = Changes({"l": "1", "m": None}, {"a": "1", "b": "2"}, [condition], ["c/gone"])

    assert parts_of(changes, claims) == [
        ("", Changes({"m": None}, {}, [condition], ["c/gone"])),
        ("one", Changes({"l": "1"}, {"a": "1"}, [], [])),
        ("two", Changes({}, {"b": "2"}, [], [])),
    ]
    assert parts_of(Changes({}, {"b": "2"}, [], []), claims) == [
        ("two", Changes({}, {"b": "2"}, [], []))
    ]
    assert changes.labels == {"l": "1", "m": None}


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        pytest.param(NotFound("pods web-0 not found"), True, id="404"),
        pytest.param(Invalid("metadata.uid: Invalid value: field is immutable"), True, id="uid"),
        pytest.param(Conflict("Precondition failed: UID in precondition"), True, id="precondition"),
        pytest.param(Invalid("metadata.labels: Invalid value"), False, id="another-422"),
        pytest.param(Conflict("the object has been modified"), False, id="another-409"),
        pytest.param(Forbidden("no"), False, id="403"),
        pytest.param(ServerError("no"), False, id="500"),
        pytest.param(ConnectionFailed("reset"), False, id="connection"),
    ],
)
def test_only_some_errors_mean_that_the_pod_is_gone(error: KubeError, gone: bool) -> None:
    assert pod_is_gone(error) is gone
