"""Projection of pods: one recorded on a real cluster, and unusual ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import CREATED, condition_wire, owned_fields, pod
from support.cases import cases
from support.wire import Json

from kruise_probe.api.caches import BUDGET
from kruise_probe.api.pod_wire import SHARED_BYTES
from kruise_probe.api.pods import NOTHING_OWNED, Container, Mark, Owned, Pod, PodCondition
from kruise_probe.api.resources import PODS

RECORDED = Path(__file__).parents[2] / "data" / "pod.json"


def decoded(**metadata: Any) -> Pod:
    return PODS.decode(msgspec.json.encode({"metadata": {"name": "a", **metadata}}))


def recorded() -> Pod:
    return PODS.decode(RECORDED.read_bytes())


def test_recorded_pod_is_projected_without_native_conditions() -> None:
    pod = recorded()

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
    (condition,) = pod.conditions
    assert (condition.type, condition.message) == ("game.io/idle", "idle")


def test_last_applied_configuration_is_dropped() -> None:
    """What the manager writes it has to see; a label of that name is one like others."""
    kept = {"kubernetes.io/config.mirror": "x"}
    marks = kept | {"kubectl.kubernetes.io/last-applied-configuration": "x"}
    pod = decoded(labels=marks, annotations=marks)
    assert pod.labels == marks
    assert pod.annotations == kept
    assert pod.mirror


def managed(manager: str, *labels: str, **more: Any) -> Json:
    fields: Json = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}}
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
    pod = PODS.decode(msgspec.json.encode(document))
    assert (pod.labels, pod.annotations, pod.ip, pod.node) == ({}, {}, "", "")
    assert (pod.containers, pod.conditions, pod.owned) == ((), (), NOTHING_OWNED)
    assert not pod.initialized
    assert pod.active


def test_pods_of_one_template_share_their_parts() -> None:
    one = recorded()
    two = recorded()

    assert one.containers is two.containers
    assert one.owned is two.owned
    assert one.labels is two.labels


def test_pods_with_hundreds_of_conditions_share_them_or_their_texts_and_marks() -> None:
    types = [f"example.com/{number}" for number in range(384)]
    later = "2026-01-01T00:00:01Z"

    def probed_at(time: str) -> Pod:
        texts = {"reason": "TooManyProbes", "message": "Not probed.", "lastProbeTime": time}
        conditions = [condition_wire(type, "Unknown", **texts) for type in types]
        return pod(conditions=conditions, owned=owned_fields(conditions=types))

    one = probed_at(CREATED)
    two = probed_at(CREATED)
    third = probed_at(later)
    assert one.owned is two.owned is third.owned
    conditions = zip(
        one.conditions,
        two.conditions,
        third.conditions,
        strict=True,
    )
    for condition, same, other in conditions:
        assert condition is same
        assert other.last_probe_time == later
        assert condition.type is other.type
        assert condition.message is other.message


@pytest.mark.parametrize("field", ["type", "reason", "message"])
def test_a_shared_condition_counts_with_all_of_its_texts(field: str) -> None:
    conditions = []
    for number in range(20):
        text = f"c/{number}" + "x" * 10_000
        conditions.append(condition_wire(f"c/{number}") | {field: text})
    BUDGET.age()
    BUDGET.age()
    before = BUDGET.used_bytes
    pod(conditions=conditions)
    assert BUDGET.used_bytes - before > 20 * 10_000


@pytest.mark.parametrize("others", [0, 384])
def test_of_two_conditions_with_one_type_the_first_counts(others: int) -> None:
    first = condition_wire("c/twice")
    second = condition_wire("c/twice", "False")
    between = [condition_wire(f"c/{number}") for number in range(others)]
    found = pod(conditions=[first, *between, second])

    condition_of = found.condition_lookup()

    for type in ("c/twice", "c/absent", "c/0", "c/383"):
        assert condition_of(type) == found.condition(type)
    assert condition_of("c/twice") == PodCondition("c/twice", "True")


def test_pods_with_other_owners_share_what_their_managers_own() -> None:
    def owned(uid: str) -> Owned:
        entry = managed("jobs", "app")
        entry["fieldsV1"]["f:metadata"]["f:ownerReferences"] = {f'k:{{"uid":"{uid}"}}': {}}
        return decoded(managedFields=[entry]).owned_by_others

    assert owned("1") is owned("2")
    assert owned("1") == {Mark("labels", "app")}


def test_many_fields_of_two_managers_are_not_shared() -> None:
    def entry(manager: str, fields: int) -> Json:
        return managed(manager, *(f"{manager}-{number}" for number in range(fields)))

    def owned(fields: int) -> Owned:
        entries = [entry("a", fields), entry("b", fields)]
        return decoded(managedFields=entries).owned_by_others

    assert owned(2) is owned(2)
    assert owned(500) is not owned(500)
    assert len(owned(500)) == 1000


def test_long_annotations_are_not_shared() -> None:
    def annotations(note: str) -> Mapping[str, str]:
        decoded_annotations = decoded(annotations={"note": note}).annotations
        assert decoded_annotations == {"note": note}
        return decoded_annotations

    long = "x" * SHARED_BYTES
    assert annotations("short") is annotations("short")
    assert annotations(long) is not annotations(long)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"metadata": 1}', b"\xff"])
def test_invalid_pod_raises_decode_errors(data: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        PODS.decode(data)


MANY = [f"l{number}" for number in range(2_001)]


@cases(
    "metadata",
    labels={"labels": dict.fromkeys(MANY, "")},
    managed_fields={"managedFields": [managed("m", *MANY)]},
)
def test_a_pod_with_thousands_of_labels_does_not_decode(metadata: Json) -> None:
    """Kubernetes limits their length only, and each of them takes memory for every pod."""
    long_text = json.dumps({key: {} for key in MANY})
    assert decoded(annotations={"last-applied": long_text}).name == "a"
    with pytest.raises(msgspec.ValidationError, match="more than 2000 labels or annotations"):
        decoded(**metadata)
