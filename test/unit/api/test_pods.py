"""Projection of pods: one recorded on a real cluster, and unusual ones."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kruise_probe.api.pods import SHARED_BYTES, Container, Owned, Pod
from kruise_probe.api.resources import PODS

RECORDED = Path(__file__).parents[2] / "data" / "pod.json"


def decoded(document: dict[str, Any]) -> Pod:
    return PODS.decode(json.dumps(document).encode())


def test_recorded_pod_is_projected_without_native_conditions() -> None:
    pod = PODS.decode(RECORDED.read_bytes())

    assert str(pod.key) == "default/recorded"
    assert pod.node == "kruise-probe-node"
    assert pod.ip.startswith("10.88.")
    assert pod.active
    assert pod.initialized
    assert not pod.mirror
    assert pod.labels == {"app": "recorded", "idle": "true"}
    assert pod.annotations["example.com/note"] == "kept"
    assert "kubectl.kubernetes.io/last-applied-configuration" not in pod.annotations
    assert pod.readiness_gates == {"game.io/idle"}
    assert pod.containers == (
        Container("main", (("http", 8080),), has_startup_probe=True),
        Container("sidecar", (("metrics", 9102),), has_startup_probe=False),
    ), "a sidecar is a container, another init container is not"
    assert {"main", "sidecar"} <= pod.started
    assert pod.owned == Owned(
        condition_types=frozenset({"game.io/idle"}),
        labels=frozenset({"idle"}),
        annotations=frozenset({"controller.kubernetes.io/pod-deletion-cost"}),
    ), "our entry of the status subresource"
    assert [(found.type, found.message) for found in pod.conditions] == [("game.io/idle", "idle")]


def test_last_applied_configuration_is_dropped() -> None:
    """What the manager writes it has to see; a label of that name is one like others."""
    key = "kubectl.kubernetes.io/last-applied-configuration"
    marks = {key: "x", "kubernetes.io/config.mirror": "x"}
    pod = decoded({"metadata": {"name": "a", "labels": marks, "annotations": marks}})
    assert (pod.labels, pod.annotations) == (marks, {"kubernetes.io/config.mirror": "x"})
    assert pod.mirror


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"manager": "kubelet", "subresource": "status"}, id="another-manager"),
        pytest.param({"manager": "kruise-probe-manager"}, id="not-the-status-subresource"),
    ],
)
def test_entries_of_other_managers_are_not_owned(entry: dict[str, str]) -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {"f:idle": {}}}}

    pod = decoded({"metadata": {"name": "a", "managedFields": [{**entry, "fieldsV1": fields}]}})

    assert pod.owned == Owned()


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"metadata": {"name": "a"}}, id="no-spec-no-status"),
        pytest.param(
            {
                "metadata": {
                    "name": "a",
                    "labels": None,
                    "annotations": None,
                    "managedFields": None,
                },
                "spec": {"containers": None, "initContainers": None, "readinessGates": None},
                "status": {"conditions": None, "containerStatuses": None, "podIP": None},
            },
            id="nulls-everywhere",
        ),
        pytest.param(
            {
                "metadata": {
                    "name": "a",
                    "managedFields": [
                        {"manager": "kruise-probe-manager", "subresource": "status"},
                        {"manager": None, "fieldsV1": None},
                    ],
                }
            },
            id="entries-without-fields",
        ),
    ],
)
def test_absent_and_null_decode_alike(document: dict[str, Any]) -> None:
    pod = decoded(document)

    assert (pod.labels, pod.annotations, pod.ip, pod.node) == ({}, {}, "", "")
    assert (pod.containers, pod.conditions, pod.owned) == ((), (), Owned())
    assert not pod.initialized
    assert pod.active


@pytest.mark.parametrize(
    ("metadata", "phase", "active"),
    [
        pytest.param({}, "Running", True, id="running"),
        pytest.param({}, "Pending", True, id="pending"),
        pytest.param({}, "Succeeded", False, id="succeeded"),
        pytest.param({}, "Failed", False, id="failed"),
        pytest.param(
            {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Running", False, id="terminating"
        ),
    ],
)
def test_active_pod_is_neither_terminating_nor_finished(
    metadata: dict[str, str], phase: str, active: bool
) -> None:
    pod = decoded({"metadata": {"name": "a", **metadata}, "status": {"phase": phase}})

    assert pod.active is active


def test_pods_of_one_template_share_their_parts() -> None:
    one = PODS.decode(RECORDED.read_bytes())
    two = PODS.decode(RECORDED.read_bytes())

    assert one.containers is two.containers
    assert one.owned is two.owned
    assert one.labels is two.labels


def test_pods_with_other_owners_share_what_their_managers_own() -> None:
    def owned(uid: str) -> Owned:
        metadata: dict[str, Any] = {
            "f:labels": {"f:app": {}},
            "f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {}},
        }
        entry = {"manager": "jobs", "fieldsV1": {"f:metadata": metadata}}
        return decoded({"metadata": {"name": "a", "managedFields": [entry]}}).owned_by_others

    assert owned("1") is owned("2")
    assert owned("1").labels == {"app"}


def test_many_fields_of_two_managers_are_not_shared() -> None:
    def owned(count: int) -> Owned:
        managed: list[Any] = [
            {
                "manager": manager,
                "fieldsV1": {
                    "f:metadata": {"f:labels": {f"f:{manager}-{n}": {} for n in range(count)}}
                },
            }
            for manager in ("one", "two")
        ]
        return decoded({"metadata": {"name": "a", "managedFields": managed}}).owned_by_others

    assert owned(2) is owned(2)
    assert owned(500) is not owned(500)
    assert len(owned(500).labels) == 1000


def test_long_annotations_are_not_shared() -> None:
    def annotated(text: str) -> Pod:
        return decoded({"metadata": {"name": "a", "annotations": {"note": text}}})

    assert annotated("short").annotations is annotated("short").annotations
    long = "x" * SHARED_BYTES
    assert annotated(long).annotations is not annotated(long).annotations
    assert annotated(long).annotations == {"note": long}


@pytest.mark.parametrize("data", [b"", b"[]", b'{"metadata": 1}', b"\xff"])
def test_invalid_pod_raises_decode_errors(data: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        PODS.decode(data)
