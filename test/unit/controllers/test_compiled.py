"""Invalid entries of a marker are ignored one by one; the others are used."""

from typing import Any

import pytest
from support.builders import marker, policy_wire, probe_wire
from support.cases import cases
from support.marker_table import VALID, Row
from support.wire import Json
from unit.controllers.common import by_field, compiled, numbered_probes

from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.names import PAUSED_ANNOTATION
from kruise_probe.api.pods import Mark
from kruise_probe.controllers.compiled import CompiledProbe, Wanted, compile_marker
from kruise_probe.daemon.desired import invalid_reason

RESERVED = (PAUSED_ANNOTATION, "kubectl.kubernetes.io/last-applied-configuration")
COST = "controller.kubernetes.io/pod-deletion-cost"
FREE = {"any": "text of any kind"}


def only_probe(probe: Json) -> CompiledProbe:
    """Compile a marker with this one probe."""
    (found,) = compiled(probe).probes
    return found


@cases(
    "bad",
    no_name=probe_wire(""),
    hash_in_the_name=probe_wire("a#b"),
    no_container=probe_wire(container=""),
    host=probe_wire(handler={"tcpSocket": {"port": 80, "host": "10.0.0.1"}}),
    two_handlers=probe_wire(handler={"exec": {"command": ["a"]}, "grpc": {"port": 1}}),
    number_that_go_cannot_read=probe_wire(periodSeconds=2**40),
)
def test_an_invalid_probe_is_left_out_and_the_others_stay(bad: Json) -> None:
    found = compiled(
        bad,
        probe_wire("good", condition="good"),
    )
    assert [probe.probe for probe in found.probes] == ["good"]
    assert found.errors


@cases(
    "action",
    broken_escape={"path": "/50%"},
    header_name={"httpHeaders": [{"name": "X_Name", "value": ""}]},
)
def test_a_request_from_before_the_rules_is_sent_and_reported(action: Json) -> None:
    handler = {"httpGet": {"port": 80, **action}}
    found = compiled(probe_wire(handler=handler))
    assert len(found.probes) == 1
    assert len(found.errors) == 1


@pytest.mark.parametrize("row", VALID, ids=[row.id for row in VALID])
def test_the_daemon_runs_the_entries_of_a_valid_marker(row: Row) -> None:
    for probe in compile_marker(marker(**row.spec)).probes:
        assert not invalid_reason(probe.container_probe)


@cases("written", integer=10, text="10", fraction="10.0", zeros="010.00")
def test_equal_decimals_have_one_hash(written: int | str) -> None:
    def hash_of(number: int | str) -> str:
        value = {"extract": {"regex": "x", "step": number}, "successWhen": {"max": number}}
        return only_probe(probe_wire() | value).container_probe.hash

    assert hash_of(written) == hash_of("10")


@cases(
    "labels annotations kept",
    bad_key=({"-": "x", "ok": "1"}, {}, ({"ok": "1"}, {})),
    bad_value=({"a": "b c"}, {}, ({}, {})),
    reserved_annotations=({}, dict.fromkeys(RESERVED, "x"), ({}, {})),
    deletion_cost_that_is_no_number=({}, {COST: "low", "cost": "low"}, ({}, {"cost": "low"})),
    annotation_values_are_free=({}, FREE, ({}, FREE)),
)
def test_reserved_and_invalid_policy_entries_are_ignored(
    labels: Json,
    annotations: Json,
    kept: tuple[Json, Json],
) -> None:
    policy = policy_wire("Succeeded", labels, annotations)
    probe = only_probe(probe_wire(policies=[policy]))
    assert shown(probe.wanted()["Succeeded"]) == kept


STATIC = {"a": "static"}


@cases(
    "values labels annotations",
    label=([{"label": "a", "regex": "x"}], {"a": ("x", "static")}, {}),
    annotation=([{"annotation": "a"}], STATIC, {"a": ("", None)}),
    invalid_pattern=([{"label": "a", "regex": "("}], STATIC, {}),
    invalid_key=([{"label": "a b"}], STATIC, {}),
    allowed_label=([{"label": "my.k8s.io/x"}], STATIC | {"my.k8s.io/x": ("", None)}, {}),
    reserved_annotation=([{"annotation": "kruise.io/podprobe"}], STATIC, {}),
    two_keys=([{"label": "b", "annotation": "b"}], STATIC, {}),
    key_twice=([{"label": "a", "regex": "x"}, {"label": "a"}], {"a": ("x", "static")}, {}),
)
def test_values_from_messages_keep_their_static_value(
    values: list[Json],
    labels: Json,
    annotations: Json,
) -> None:
    policy = policy_wire("Succeeded", STATIC, from_message=values)
    wire = marker(probes=[probe_wire(policies=[policy])])
    found = compile_marker(wire, allowed_labels=["my.k8s.io/x"])
    (probe,) = found.probes
    assert shown(probe.wanted()["Succeeded"]) == (labels, annotations)
    assert found.marks == {*probe.marks}


def shown(wanted: Wanted) -> tuple[Json, Json]:
    """Labels and annotations; pattern and static value of those from the message."""
    values: dict[Mark, Any] = {}
    for mark, value in wanted.items():
        values[mark] = value[:2] if isinstance(value, FromMessage) else value
    return by_field(values)


def test_a_timeout_over_the_maximum_is_clamped_and_reported() -> None:
    found = compiled(probe_wire(timeoutSeconds=100_000))

    assert found.probes[0].container_probe.probe.timeout_seconds == 3600
    (error,) = found.errors
    assert str(error).startswith(
        "spec.probes[0].probe.timeoutSeconds: Invalid value: 100000: must be between 0 and 3600"
    )


@pytest.mark.parametrize(
    "type", ["Ready", "ContainersReady", "InPlaceUpdateReady", "KruisePodReady", "bad type", "/x"]
)
def test_reserved_and_invalid_condition_types_are_ignored(type: str) -> None:
    assert only_probe(probe_wire(condition=type)).condition_type == ""


def test_of_probes_with_one_name_the_first_is_used() -> None:
    found = compiled(
        probe_wire("a", condition="one"),
        probe_wire("a", condition="two"),
    )
    assert [probe.condition_type for probe in found.probes] == ["one"]


@cases(
    "bad",
    operator={"key": "a", "operator": "Almost"},
    values={"key": "a", "operator": "Exists", "values": ["1"]},
    key={"key": "-bad", "operator": "DoesNotExist"},
)
def test_an_invalid_selector_matches_nothing(bad: Json) -> None:
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": [bad]}
    found = compile_marker(marker(selector=selector))
    assert not found.selector.matches({"a": "1"})
    assert found.errors


def test_a_stored_marker_beyond_the_bounds_still_works() -> None:
    found = compiled(*numbered_probes(40))
    assert len(found.probes) == 40
    assert found.errors == ()
