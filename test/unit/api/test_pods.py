"""Projection of pods: one recorded on a real cluster, and unusual ones."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import CREATED, condition_wire, owned_fields, pod, pod_wire
from support.cases import cases
from support.wire import Json

from kruise_probe.api.caches import BUDGET
from kruise_probe.api.pod_wire import SHARED_BYTES
from kruise_probe.api.pods import NOTHING_OWNED, Container, Mark, Owned, Pod, PodCondition
from kruise_probe.api.resources import PODS

RECORDED = Path(__file__).parents[2] / "data" / "pod.json"


def decoded(**metadata: Any) -> Pod:
    return PODS.decode(msgspec.json.encode({"metadata": {"name": "a", **metadata}}))


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
    assert pod.owned == {
        Mark("conditions", "game.io/idle"),
        Mark("labels", "idle"),
        Mark("annotations", "controller.kubernetes.io/pod-deletion-cost"),
    }, "our entry of the status subresource"
    assert [(found.type, found.message) for found in pod.conditions] == [("game.io/idle", "idle")]


def test_last_applied_configuration_is_dropped() -> None:
    """What the manager writes it has to see; a label of that name is one like others."""
    key = "kubectl.kubernetes.io/last-applied-configuration"
    marks = {key: "x", "kubernetes.io/config.mirror": "x"}
    pod = decoded(labels=marks, annotations=marks)
    assert (pod.labels, pod.annotations) == (marks, {"kubernetes.io/config.mirror": "x"})
    assert pod.mirror


def managed(manager: str, *labels: str, **more: Any) -> Json:
    fields: Json = {"f:metadata": {"f:labels": {f"f:{each}": {} for each in labels}}}
    return {"manager": manager, "fieldsV1": fields, **more}


@cases(
    "entry",
    another_manager=managed("kubelet", "idle", subresource="status"),
    not_the_status_subresource=managed("kruise-probe-manager", "idle"),
    no_fields={"manager": "kruise-probe-manager", "subresource": "status"},
    nulls={"manager": None, "fieldsV1": None},
)
def test_other_entries_are_not_owned(entry: Json) -> None:
    assert decoded(managedFields=[entry]).owned == NOTHING_OWNED


@cases(
    "document",
    absent={"metadata": {"name": "a"}},
    null={
        "metadata": dict.fromkeys(("labels", "annotations", "managedFields")),
        "spec": dict.fromkeys(("containers", "initContainers", "readinessGates")),
        "status": dict.fromkeys(("conditions", "containerStatuses", "podIP")),
    },
)
def test_absent_and_null_decode_alike(document: Json) -> None:
    pod = PODS.decode(json.dumps(document).encode())
    assert (pod.labels, pod.annotations, pod.ip, pod.node) == ({}, {}, "", "")
    assert (pod.containers, pod.conditions, pod.owned) == ((), (), NOTHING_OWNED)
    assert (pod.initialized, pod.active) == (False, True)


def test_pods_of_one_template_share_their_parts() -> None:
    one = PODS.decode(RECORDED.read_bytes())
    two = PODS.decode(RECORDED.read_bytes())

    assert one.containers is two.containers
    assert one.owned is two.owned
    assert one.labels is two.labels


def test_pods_with_hundreds_of_conditions_share_them_or_their_texts_and_marks() -> None:
    kinds = [f"example.com/{number}" for number in range(384)]
    later = "2026-01-01T00:00:01Z"
    pods = []
    for probed_at in (CREATED, CREATED, later):
        more = {"reason": "TooManyProbes", "message": "Not probed.", "lastProbeTime": probed_at}
        conditions = [condition_wire(kind, "Unknown", **more) for kind in kinds]
        wire = pod_wire(conditions=conditions, owned=owned_fields(conditions=kinds))
        pods.append(PODS.decode(msgspec.json.encode(wire)))
    one, two, third = pods
    assert one.owned is two.owned is third.owned
    for condition, same, other in zip(
        one.conditions, two.conditions, third.conditions, strict=True
    ):
        assert condition is same
        assert other.last_probe_time == later
        assert condition.type is other.type
        assert condition.message is other.message


@pytest.mark.parametrize("field", ["type", "reason", "message"])
def test_a_shared_condition_counts_with_all_of_its_texts(field: str) -> None:
    conditions = [
        {"type": f"c/{number}", "status": "True", field: f"c/{number}" + "x" * 10_000}
        for number in range(20)
    ]
    BUDGET.age()
    BUDGET.age()
    before = BUDGET.used_bytes
    PODS.decode(msgspec.json.encode(pod_wire(conditions=conditions)))
    assert BUDGET.used_bytes - before > 20 * 10_000


@pytest.mark.parametrize("others", [0, 384])
def test_of_two_conditions_with_one_type_the_first_counts(others: int) -> None:
    first, second = condition_wire("c/twice"), condition_wire("c/twice", "False")
    more = [condition_wire(f"c/{number}") for number in range(others)]
    of_pod = pod(conditions=[first, *more, second])

    condition_of = of_pod.condition_lookup()

    types = ("c/twice", "c/absent", "c/0", "c/383")
    assert [*map(condition_of, types)] == [*map(of_pod.condition, types)]
    assert condition_of("c/twice") == PodCondition("c/twice", "True")


def test_pods_with_other_owners_share_what_their_managers_own() -> None:
    def owned(uid: str) -> Owned:
        entry = managed("jobs", "app")
        entry["fieldsV1"]["f:metadata"]["f:ownerReferences"] = {f'k:{{"uid":"{uid}"}}': {}}
        return decoded(managedFields=[entry]).owned_by_others

    assert owned("1") is owned("2")
    assert owned("1") == {Mark("labels", "app")}


def test_many_fields_of_two_managers_are_not_shared() -> None:
    def owned(count: int) -> Owned:
        entries = [managed(each, *(f"{each}-{n}" for n in range(count))) for each in "ab"]
        return decoded(managedFields=entries).owned_by_others

    assert owned(2) is owned(2)
    assert owned(500) is not owned(500)
    assert len(owned(500)) == 1000


def test_long_annotations_are_not_shared() -> None:
    for note, shared in (("short", True), ("x" * SHARED_BYTES, False)):
        one, two = (decoded(annotations={"note": note}).annotations for _ in range(2))
        assert (one is two) is shared
        assert one == {"note": note}


@pytest.mark.parametrize("data", [b"", b"[]", b'{"metadata": 1}', b"\xff"])
def test_invalid_pod_raises_decode_errors(data: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        PODS.decode(data)


MANY = [f"l{number}" for number in range(2_001)]
TEXT = json.dumps({key: {} for key in MANY})


@cases(
    "metadata",
    labels={"labels": dict.fromkeys(MANY, "")},
    managed_fields={"managedFields": [managed("m", *MANY)]},
)
def test_a_pod_with_thousands_of_labels_does_not_decode(metadata: Json) -> None:
    """Kubernetes limits their length only, and each of them takes memory for every pod."""
    assert decoded(annotations={"last-applied": TEXT}).name == "a"
    with pytest.raises(msgspec.ValidationError, match="more than 2000 labels or annotations"):
        PODS.decode(msgspec.json.encode({"metadata": {"name": "a", **metadata}}))
