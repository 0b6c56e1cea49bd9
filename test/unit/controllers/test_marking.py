"""The changes of a pod: tables for each rule, properties for all rules together."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import strategies
from support.builders import (
    condition_wire,
    marker,
    owned_fields,
    pod,
    policy_wire,
    probe_wire,
    state,
    states,
)
from support.cases import cases
from support.fake_api import patched_pod
from support.wire import Json

from kruise_probe.api.names import MANAGER_FIELD_MANAGER
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.pods import Mark, Pod, names_of
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.controllers.claims import Claims, claims_of
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.counts import InvalidValue, invalid_values
from kruise_probe.controllers.limits import NO_ROOM, LeftOut
from kruise_probe.controllers.marking import Changes, PodResults, States, marking, may_change
from kruise_probe.controllers.writes import encode_patch

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
C = "example.com/healthy"
BOTH = [
    policy_wire("Succeeded", {"same": "ok", "ok": "1"}, {"cost": "10"}),
    policy_wire("Failed", {"same": "bad", "bad": "1"}),
]


def claims(*policies: Json, condition: str | None = C) -> Claims:
    wire = probe_wire(policies=policies, condition=condition)
    return claims_of((compile_marker(marker(probes=[wire])),))


def mark(of: Pod, by: Claims, results: States, stale: str = "") -> Changes | None:
    return marking(of, by.on(of), PodResults(results, stale), now=NOW)


def at(moved: str) -> Json:
    """A condition that became False at this time."""
    return condition_wire(C, "False", lastTransitionTime=moved)


@cases(
    "reported sent",
    as_it_should_be=("2026-01-01T00:01:00Z", "2026-01-01T00:01:00Z"),
    lower_case=("2026-01-01t00:01:00Z", "2026-01-01T00:01:00Z"),
    of_another_zone=("2026-01-01T02:01:00.5+02:00", "2026-01-01T00:01:00Z"),
    first_year=("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
)
def test_times_are_sent_in_the_format_of_the_api_server(reported: str, sent: str) -> None:
    """A malformed time would make the API server refuse the whole patch."""
    changes = mark(pod(), claims(), states(state(probed=reported, moved=reported)))
    assert changes is not None
    (condition,) = changes.conditions
    assert (condition.last_probe_time, condition.last_transition_time) == (sent, sent)


@cases(
    "current result stale moved",
    unchanged_status=(condition_wire(C, message="old"), state(message="new"), "", None),
    of_the_node=(at("2025-01-01T00:00:00Z"), state(), "", "2026-01-01T00:01:00Z"),
    twice_in_a_second=(at("2026-01-01T00:01:00Z"), state(), "", "2026-01-01T00:01:00Z"),
    never_back=(at("2026-01-01T11:00:00Z"), state(), "", "2026-01-01T12:00:00Z"),
    none_reported=(None, state(moved=""), "", "2026-01-01T12:00:00Z"),
    malformed=(None, state(moved="yesterday"), "", "2026-01-01T12:00:00Z"),
    decided_by_the_manager=(condition_wire(C), state(), "expired", "2026-01-01T12:00:00Z"),
)
def test_the_transition_time_is(
    current: Json | None, result: ContainerProbeState, stale: str, moved: str | None
) -> None:
    there = pod(conditions=[current] if current else [])
    changes = mark(there, claims(), states(result), stale)
    assert changes is not None
    assert changes.conditions[0].last_transition_time == moved


def test_without_a_state_conditions_of_others_are_kept() -> None:
    assert mark(pod(conditions=[condition_wire(C)]), claims(), {}, stale="expired") is None


def test_a_pod_without_labels_and_annotations_is_marked() -> None:
    bare = decoded({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}})
    policy = policy_wire("Succeeded", {"ok": "1"}, {"why": "idle"})
    changes = mark(bare, claims(policy), states(state()))
    assert changes is not None
    assert keys_of(changes) == ({"ok": "1"}, {"why": "idle"})


def test_values_of_a_probe_without_a_state_hide_no_invalid_value_of_another() -> None:
    policy = policy_wire(from_message=[{"label": "l", "regex": "x"}])
    probes = [probe_wire("a", condition="c/a"), probe_wire("b", condition="c/b", policies=[policy])]
    compiled = compile_marker(marker(probes=probes))
    results = states(state("web#b", message="y"))
    assert invalid_values(claims_of((compiled,)), results) == {
        "web#b": [InvalidValue("b", "label", "l")]
    }


def keys_of(changes: Changes) -> tuple[Json, Json]:
    """The changes of labels and of annotations."""
    keys: dict[str, Json] = {"labels": {}, "annotations": {}}
    for mark, value in changes.keys.items():
        keys[mark.field][mark.name] = value
    return keys["labels"], keys["annotations"]


def test_a_condition_that_the_pod_lacks_is_not_removed() -> None:
    there = pod(conditions=[condition_wire("c/y")], owned=owned_fields(conditions=["c/x", "c/y"]))
    assert mark(there, claims_of(()), {}) == Changes({}, [], ["c/y"])


def gated(type: str, **condition: str) -> Pod:
    """A pod whose readiness gate has a condition of ours."""
    return pod(
        conditions=[condition_wire(type, **condition)],
        readiness_gates=[type],
        owned=owned_fields(conditions=[type]),
    )


def test_a_readiness_gate_keeps_its_status_with_reason_probe_removed() -> None:
    there = gated("c/x", message="fine", lastProbeTime="2026-01-01T00:00:00Z")
    changes = mark(there, claims_of(()), {})
    assert changes is not None
    (condition,) = changes.conditions
    assert (condition.status, condition.reason) == ("True", "ProbeRemoved")
    assert (condition.message, condition.last_transition_time) == ("fine", None)
    assert changes.deleted == []


def test_a_condition_of_a_reserved_gate_is_not_written() -> None:
    """Kruise writes it without a reason: each of our writes would cause one of its own, and so on."""
    assert mark(gated("InPlaceUpdateReady"), claims_of(()), {}) is None


@cases(
    "shown result",
    of_a_stale_daemon=({"status": "Unknown", "reason": "ProbeDaemonStale"}, "Unknown"),
    of_a_removed_probe=({"reason": "ProbeRemoved"}, "Succeeded"),
)
def test_a_result_replaces_a_reason(shown: dict[str, str], result: str) -> None:
    there = gated(C, **shown)
    changes = mark(there, claims(), states(state(state=result)))
    assert changes is not None
    body = msgspec.json.decode(encode_patch(there, changes))
    assert body["status"]["conditions"][0]["reason"] is None


@cases(
    "results",
    no_state_yet={},
    unknown=states(state(state="Unknown")),
)
def test_a_value_that_the_new_owner_never_writes_is_removed_at_once(
    results: dict[str, ContainerProbeState],
) -> None:
    """The pod has moved from one marker to another that names the same keys, or the policy has been edited."""
    there = pod(
        labels={"same": "another's", "ok": "1"},
        annotations={"cost": "99"},
        owned=owned_fields(labels=["same", "ok"], annotations=["cost"]),
    )

    changes = mark(there, claims(*BOTH), results)

    assert changes is not None
    assert keys_of(changes) == ({"same": None}, {"cost": None})


ROLE = [
    policy_wire(
        "Succeeded", {"role": "none"}, from_message=[{"label": "role", "regex": "role=(.*)"}]
    ),
    policy_wire("Failed", from_message=[{"annotation": "why"}]),
]
UNKNOWN = policy_wire("Unknown", {"role": "unknown"}, from_message=[{"annotation": "why"}])


@cases(
    "result message labels annotations",
    value=("Succeeded", "role=primary", {"role": "primary"}, {}),
    static_if_nothing_matches=("Succeeded", "starting", {"role": "none"}, {}),
    static_if_invalid=("Succeeded", "role=a b", {"role": "none"}, {}),
    first_line=("Failed", "no disk\nmore", {}, {"why": "no disk"}),
    no_value_and_no_static_value=("Failed", "", {}, {}),
    unknown_without_a_policy=("Unknown", "role=x", {}, {}),
)
def test_values_come_from_the_message_of_the_result(
    result: str, message: str, labels: Json, annotations: Json
) -> None:
    changes = mark(
        pod(), claims(*ROLE, condition=None), states(state(state=result, message=message))
    )
    assert keys_of(changes) == (labels, annotations) if changes else not labels


@pytest.mark.parametrize("message", ["role=prim", "", "starting"])
@cases("role", changed="primary", never_set=None)
def test_keys_keep_their_values_while_the_message_is_shortened(
    role: str | None, message: str
) -> None:
    there = pod(labels={"app": "web"} | ({"role": role} if role else {}))
    result = msgspec.structs.replace(state(message=message), message_shortened=True)
    assert mark(there, claims(*ROLE, condition=None), states(result)) is None
    compiled = compile_marker(marker(probes=[probe_wire(policies=ROLE)]))
    assert invalid_values(claims_of((compiled,)).on(there), states(result)) == {}


@cases(
    "results stale left_out",
    reported=(states(state(state="Unknown", message="gone")), "", {}),
    stale_daemon=(states(state(message="role=a")), "no Lease", {}),
    stale_daemon_without_a_state=({}, "no Lease", {}),
    left_out=(states(state(message="role=a")), "", {"web": NO_ROOM}),
)
def test_the_policy_for_unknown_is_applied_to(
    results: States, stale: str, left_out: dict[str, LeftOut]
) -> None:
    marked = pod(labels={"app": "web", "role": "a"}, owned=owned_fields(labels=["role"]))
    changes = marking(
        marked,
        claims(*ROLE, UNKNOWN, condition=None),
        PodResults(results, stale, left_out=left_out),
        now=NOW,
    )
    assert changes is not None
    # The manager's own reasons are no message of a result.
    assert keys_of(changes) == ({"role": "unknown"}, {} if stale or left_out else {"why": "gone"})


def applied(wire: Json, changes: Changes) -> Json:
    """The pod as the API server has it after the patch."""
    body = msgspec.json.decode(encode_patch(decoded(wire), changes))
    return patched_pod(wire, body, MANAGER_FIELD_MANAGER)


def decoded(wire: Json) -> Pod:
    return PODS.decode(msgspec.json.encode(wire))


def claims_on(of: Pod, wires: list[Json]) -> Claims:
    markers = [compile_marker(MARKERS.decode(msgspec.json.encode(each))) for each in wires]
    return claims_of(
        tuple(
            each
            for each in markers
            if each.key.namespace == of.namespace and each.selector.matches(of.labels)
        )
    )


def settled(wire: Json, wires: list[Json], results: list[Json], stale: str = "") -> Json:
    """The pod after marking has been applied once."""
    recorded = {each["name"]: msgspec.convert(each, ContainerProbeState) for each in results}
    of = decoded(wire)
    changes = mark(of, claims_on(of, wires), recorded, stale)
    return wire if changes is None else applied(wire, changes)


def looks(wire: Json) -> tuple[Json, Json, dict[str, tuple[str, str]]]:
    conditions = {
        each["type"]: (each["status"], each.get("message", ""))
        for each in wire["status"]["conditions"]
    }
    return wire["metadata"]["labels"], wire["metadata"].get("annotations", {}), conditions


some_pods = strategies.pods(namespace="default")
some_markers = strategies.marker_sets(namespaces=("default",))


@given(some_pods, some_markers, strategies.results())
def test_marking_is_idempotent(wire: Json, wires: list[Json], results: list[Json]) -> None:
    once = settled(wire, wires, results)
    assert settled(once, wires, results) is once


@cases(
    "of results",
    mark=(pod(owned=owned_fields(labels=["l1"])), PodResults()),
    result=(pod(), PodResults({"way#p": state("way#p")})),
    limit=(pod(), PodResults(left_out={"way": NO_ROOM})),
)
def test_a_pod_with_a_mark_a_result_or_a_limit_may_change(of: Pod, results: PodResults) -> None:
    assert may_change(of, results)


@given(some_pods, some_markers, st.sampled_from(["", "expired"]), st.booleans())
def test_a_pod_without_marks_results_and_limits_needs_no_changes(
    wire: Json, wires: list[Json], stale: str, by_provider: bool
) -> None:
    of = decoded(wire)
    results = PodResults(why_stale=stale, by_provider=by_provider)
    assert not may_change(of, results)
    assert marking(of, claims_on(of, wires), results, now=NOW) is None


@given(some_pods, some_markers, strategies.results(), strategies.results())
def test_marking_a_stale_pod_is_idempotent_and_leaves_no_result(
    wire: Json, wires: list[Json], older: list[Json], left: list[Json]
) -> None:
    """For any part of the recorded states that is `left`."""
    stale = settled(settled(wire, wires, older), wires, left, "expired")
    of = decoded(stale)
    claimed = names_of(claims_on(of, wires).owners.keys() & of.owned, "conditions")
    shown = [each.status for each in of.conditions if each.type in claimed]
    assert set(shown) <= {"Unknown"}
    assert settled(stale, wires, left, "expired") is stale


@given(some_pods, some_markers, strategies.results(), strategies.results())
def test_only_the_newest_results_are_written(
    wire: Json, wires: list[Json], older: list[Json], newer: list[Json]
) -> None:
    """A pod with definite results equals one that never had the older results."""
    names = {each["name"] for each in newer if each["state"] != "Unknown"}
    older = [each for each in older if each["name"] in names]
    newer = [each for each in newer if each["name"] in names]
    direct = settled(wire, wires, newer)
    detour = settled(settled(wire, wires, older), wires, newer)
    assert looks(detour) == looks(direct)


@given(some_pods, some_markers, strategies.results())
def test_without_markers_only_readiness_gates_remain(
    wire: Json, wires: list[Json], results: list[Json]
) -> None:
    marked = settled(wire, wires, results)
    bare = decoded(settled(marked, [], []))
    assert bare.owned <= {Mark("conditions", each) for each in bare.readiness_gates}


@given(some_pods, some_markers, strategies.states())
def test_a_deleted_marker_leaves_only_marks_of_the_others(
    wire: Json, wires: list[Json], results: list[Json]
) -> None:
    """For keys without an earlier value (those are not restored), once every probe has a result.

    Until its first result, the new owner of a key keeps a value that one of its policies writes.
    """
    wire["metadata"]["labels"] = {"app": wire["metadata"]["labels"]["app"]}
    wire["metadata"]["annotations"] = {}
    wire["status"]["conditions"] = wire["status"]["conditions"][:1]
    wire["spec"]["readinessGates"] = []
    detour = settled(settled(wire, wires, results), wires[1:], results)
    direct = settled(wire, wires[1:], results)
    assert looks(detour) == looks(direct)
