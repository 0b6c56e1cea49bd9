"""Invalid entries of a marker are ignored one by one; the others are used."""

from typing import Any

import pytest
from support.builders import marker, policy_wire, probe_wire

from kruise_probe.api.extraction import FromMessage
from kruise_probe.controllers.compiled import Wanted, compile_marker

Json = dict[str, Any]
RESERVED = (
    "kruise.io/podprobe",
    "kruise.io/podprobemarker-list",
    "kubectl.kubernetes.io/last-applied-configuration",
    "kubernetes.io/config.mirror",
    "container.apparmor.security.beta.kubernetes.io/main",
)
COST = "controller.kubernetes.io/pod-deletion-cost"


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(probe_wire(""), id="no-name"),
        pytest.param(probe_wire("a#b"), id="hash-in-the-name"),
        pytest.param(probe_wire(container=""), id="no-container"),
        pytest.param(probe_wire(handler={"httpGet": {"port": 0}}), id="port-0"),
        pytest.param(
            probe_wire(handler={"tcpSocket": {"port": 80, "host": "10.0.0.1"}}), id="host"
        ),
        pytest.param(
            probe_wire(handler={"exec": {"command": ["a"]}, "grpc": {"port": 1}}), id="two-handlers"
        ),
        pytest.param({**probe_wire(), "probe": {}}, id="no-handler"),
        pytest.param(probe_wire(periodSeconds=-1), id="negative-number"),
        pytest.param(probe_wire(periodSeconds=2**40), id="number-that-go-cannot-read"),
    ],
)
def test_an_invalid_probe_is_left_out_and_the_others_stay(bad: Json) -> None:
    compiled = compile_marker(marker(probes=[bad, probe_wire("good", condition="good")]))
    assert [each.probe for each in compiled.probes] == ["good"]
    assert compiled.errors


@pytest.mark.parametrize(
    "action",
    [
        pytest.param({"path": "/50%"}, id="broken-escape"),
        pytest.param({"path": "/a\tb"}, id="control-character"),
        pytest.param({"path": "localhost:80/a"}, id="host-in-the-path"),
        pytest.param({"httpHeaders": [{"name": "X_Name", "value": ""}]}, id="header-name"),
    ],
)
def test_a_request_from_before_the_rules_is_sent_and_reported(action: Json) -> None:
    compiled = compile_marker(
        marker(probes=[probe_wire(handler={"httpGet": {"port": 80, **action}})])
    )
    assert len(compiled.probes) == 1
    assert len(compiled.errors) == 1


@pytest.mark.parametrize(
    ("labels", "annotations", "kept"),
    [
        pytest.param({"app": "x"}, {}, ({}, {}), id="own-selector-key"),
        pytest.param({"-": "x", "ok": "1"}, {}, ({"ok": "1"}, {}), id="bad-key"),
        pytest.param({"a": "b c"}, {}, ({}, {}), id="bad-value"),
        pytest.param({}, dict.fromkeys(RESERVED, "x"), ({}, {}), id="reserved-annotations"),
        pytest.param({}, {COST: "low", "cost": "low"}, ({}, {"cost": "low"}), id="deletion-cost-that-is-no-number"),
        pytest.param({}, {COST: "-10"}, ({}, {COST: "-10"}), id="deletion-cost"),
        pytest.param({}, {"any": "text of any kind"}, ({}, {"any": "text of any kind"}), id="annotation-values-are-free"),
    ],
)  # fmt: skip
def test_reserved_and_invalid_policy_entries_are_ignored(
    labels: Json, annotations: Json, kept: tuple[Json, Json]
) -> None:
    policies = [policy_wire("Succeeded", labels, annotations)]
    (probe,) = compile_marker(marker(probes=[probe_wire(policies=policies)])).probes
    assert shown(probe.wanted["Succeeded"]) == kept


STATIC = {"a": "static"}


@pytest.mark.parametrize(
    ("values", "labels", "annotations"),
    [
        pytest.param([{"label": "a", "regex": "x"}], {"a": ("x", "static")}, {}, id="label"),
        pytest.param([{"annotation": "a"}], STATIC, {"a": ("", None)}, id="annotation"),
        pytest.param([{"label": "a", "regex": "("}], STATIC, {}, id="invalid-pattern"),
        pytest.param([{"label": "a b"}], STATIC, {}, id="invalid-key"),
        pytest.param([{"label": "app"}], STATIC, {}, id="own-selector-key"),
        pytest.param([{"label": "job-name"}], STATIC, {}, id="reserved-label"),
        pytest.param([{"label": "my.k8s.io/x"}], STATIC | {"my.k8s.io/x": ("", None)}, {}, id="allowed-label"),
        pytest.param([{"annotation": "kruise.io/podprobe"}], STATIC, {}, id="reserved-annotation"),
        pytest.param([{"label": "b", "annotation": "b"}], STATIC, {}, id="two-keys"),
        pytest.param([{"regex": "x"}], STATIC, {}, id="no-key"),
        pytest.param([{"label": "a", "regex": "x"}, {"label": "a"}], {"a": ("x", "static")}, {}, id="key-twice"),
    ],
)  # fmt: skip
def test_values_from_messages_keep_their_static_value(
    values: list[Json], labels: Json, annotations: Json
) -> None:
    policy = policy_wire("Succeeded", STATIC, from_message=values)
    wire = marker(probes=[probe_wire(policies=[policy])])
    compiled = compile_marker(wire, allowed_labels=["my.k8s.io/x"])
    assert shown(compiled.probes[0].wanted["Succeeded"]) == (labels, annotations)
    assert compiled.marks == {*compiled.probes[0].marks}
    assert compiled.from_message is ((labels, annotations) != (STATIC, {}))


def shown(wanted: Wanted) -> tuple[Json, Json]:
    """Labels and annotations; pattern and static value of those from the message."""
    found: dict[str, Json] = {"labels": {}, "annotations": {}}
    for mark, value in wanted.items():
        found[mark.field][mark.name] = value[:2] if isinstance(value, FromMessage) else value
    return found["labels"], found["annotations"]


def test_a_timeout_over_the_maximum_is_clamped_and_reported() -> None:
    compiled = compile_marker(marker(probes=[probe_wire(timeoutSeconds=100_000)]))

    assert compiled.probes[0].container_probe.probe.timeout_seconds == 3600
    (error,) = compiled.errors
    assert str(error).startswith(
        "spec.probes[0].probe.timeoutSeconds: Invalid value: 100000: must be between 0 and 3600"
    )


@pytest.mark.parametrize(
    "type", ["Ready", "ContainersReady", "InPlaceUpdateReady", "KruisePodReady", "bad type", "/x"]
)
def test_reserved_and_invalid_condition_types_are_ignored(type: str) -> None:
    (probe,) = compile_marker(marker(probes=[probe_wire(condition=type)])).probes
    assert probe.condition_type == ""


def test_of_probes_with_one_name_the_first_is_used() -> None:
    twice = [probe_wire("a", condition="one"), probe_wire("a", condition="two")]
    compiled = compile_marker(marker(probes=twice))
    assert [each.condition_type for each in compiled.probes] == ["one"]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"key": "a", "operator": "Almost"}, id="operator"),
        pytest.param({"key": "a", "operator": "Exists", "values": ["1"]}, id="values"),
        pytest.param({"key": "-bad", "operator": "DoesNotExist"}, id="key"),
    ],
)
def test_an_invalid_selector_matches_nothing(bad: Json) -> None:
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": [bad]}
    compiled = compile_marker(marker(selector=selector))
    assert not compiled.selector.matches({"a": "1"})
    assert compiled.errors


def test_a_stored_marker_beyond_the_bounds_still_works() -> None:
    many = [probe_wire(f"p{n}", condition=f"c{n}") for n in range(40)]
    compiled = compile_marker(marker(probes=many))
    assert len(compiled.probes) == 40
    assert compiled.errors == ()
