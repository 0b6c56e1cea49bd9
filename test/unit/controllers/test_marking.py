"""The changes of a pod: tables for each rule, properties for all rules together."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import strategies
from support.builders import (
    CREATED,
    condition_wire,
    owned_fields,
    pod,
    policy_wire,
    probe_wire,
    state,
    states,
)
from support.cases import cases
from support.fake_api import patched_pod
from support.wire import Json, decoded
from unit.controllers.common import by_field, compiled

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

Wires = list[Json]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW_STAMP = "2026-01-01T12:00:00Z"
MINUTE_1 = "2026-01-01T00:01:00Z"
"""The time of all results, if they have no other."""
C = "example.com/healthy"
BOTH = [
    policy_wire("Succeeded", {"same": "ok", "ok": "1"}, {"cost": "10"}),
    policy_wire("Failed", {"same": "bad", "bad": "1"}),
]


def claims(*policies: Json, condition: str | None = C) -> Claims:
    probe = probe_wire(policies=policies, condition=condition)
    return claims_of((compiled(probe),))


def mark(of: Pod, by: Claims, results: States, stale: str = "") -> Changes | None:
    return marking(of, by.on(of), PodResults(results, stale), now=NOW)


def one_result(name: str = "web#healthy", **more: str) -> States:
    """The result of one probe."""
    return states(state(name, **more))


def changes_of(of: Pod, by: Claims, results: States, stale: str = "") -> Changes:
    """Compute the changes; fail if there are none."""
    changes = mark(of, by, results, stale)
    assert changes is not None
    return changes


def at(moved: str) -> Json:
    """A condition that became False at this time."""
    return condition_wire(C, "False", lastTransitionTime=moved)


@cases(
    "reported sent",
    as_it_should_be=(MINUTE_1, MINUTE_1),
    lower_case=("2026-01-01t00:01:00Z", MINUTE_1),
    of_another_zone=("2026-01-01T02:01:00.5+02:00", MINUTE_1),
    first_year=("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
)
def test_times_are_sent_in_the_format_of_the_api_server(reported: str, sent: str) -> None:
    """A malformed time would make the API server refuse the whole patch."""
    result = state(probed=reported, moved=reported)
    (condition,) = changes_of(pod(), claims(), states(result)).conditions
    assert condition.last_probe_time == sent
    assert condition.last_transition_time == sent


@cases(
    "current result stale moved",
    unchanged_status=([condition_wire(C, message="old")], state(message="new"), "", None),
    of_the_node=([at("2025-01-01T00:00:00Z")], state(), "", MINUTE_1),
    twice_in_a_second=([at(MINUTE_1)], state(), "", MINUTE_1),
    never_back=([at("2026-01-01T11:00:00Z")], state(), "", NOW_STAMP),
    none_reported=([], state(moved=""), "", NOW_STAMP),
    malformed=([], state(moved="yesterday"), "", NOW_STAMP),
    decided_by_the_manager=([condition_wire(C)], state(), "expired", NOW_STAMP),
)
def test_the_transition_time_is(
    current: list[Json],
    result: ContainerProbeState,
    stale: str,
    moved: str | None,
) -> None:
    changes = changes_of(
        pod(conditions=current),
        claims(),
        states(result),
        stale,
    )
    assert changes.conditions[0].last_transition_time == moved


def test_without_a_state_conditions_of_others_are_kept() -> None:
    assert mark(pod(conditions=[condition_wire(C)]), claims(), {}, stale="expired") is None


def test_a_pod_without_labels_and_annotations_is_marked() -> None:
    wire = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
    policy = policy_wire("Succeeded", {"ok": "1"}, {"why": "idle"})
    changes = changes_of(
        decoded(PODS, wire),
        claims(policy),
        one_result(),
    )
    assert by_field(changes.keys) == ({"ok": "1"}, {"why": "idle"})


def test_values_of_a_probe_without_a_state_hide_no_invalid_value_of_another() -> None:
    policy = policy_wire(from_message=[{"label": "l", "regex": "x"}])
    two = compiled(
        probe_wire("a", condition="c/a"),
        probe_wire("b", condition="c/b", policies=[policy]),
    )
    results = one_result("web#b", message="y")
    found = invalid_values(claims_of((two,)), results)
    assert found == {"web#b": [InvalidValue("b", "label", "l")]}


def test_a_condition_that_the_pod_lacks_is_not_removed() -> None:
    there = pod(
        conditions=[condition_wire("c/y")],
        owned=owned_fields(conditions=["c/x", "c/y"]),
    )
    assert mark(there, claims_of(()), {}) == Changes({}, [], ["c/y"])


def gated(type: str, **condition: str) -> Pod:
    """A pod whose readiness gate has a condition of ours."""
    return pod(
        conditions=[condition_wire(type, **condition)],
        readiness_gates=[type],
        owned=owned_fields(conditions=[type]),
    )


def test_a_readiness_gate_keeps_its_status_with_reason_probe_removed() -> None:
    there = gated("c/x", message="fine", lastProbeTime=CREATED)
    changes = changes_of(there, claims_of(()), {})
    (condition,) = changes.conditions
    assert condition.status == "True"
    assert condition.reason == "ProbeRemoved"
    assert condition.message == "fine"
    assert condition.last_transition_time is None
    assert changes.deleted == []


def test_a_condition_of_a_reserved_gate_is_not_written() -> None:
    """Kruise writes it without a reason: each of our writes would cause one of its own, and so on."""
    assert mark(gated("InPlaceUpdateReady"), claims_of(()), {}) is None


@cases(
    "shown result",
    of_a_stale_daemon=({"status": "Unknown", "reason": "ProbeDaemonStale"}, "Unknown"),
    of_a_removed_probe=({"reason": "ProbeRemoved"}, "Succeeded"),
)
def test_a_result_replaces_a_reason(shown: Json, result: str) -> None:
    there = gated(C, **shown)
    changes = changes_of(
        there,
        claims(),
        one_result(state=result),
    )
    body = msgspec.json.decode(encode_patch(there, changes))
    assert body["status"]["conditions"][0]["reason"] is None


@cases(
    "results",
    no_state_yet={},
    unknown=one_result(state="Unknown"),
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

    changes = changes_of(
        there,
        claims(*BOTH),
        results,
    )

    assert by_field(changes.keys) == ({"same": None}, {"cost": None})


FROM_ROLE = {"label": "role", "regex": "role=(.*)"}
WHY = {"annotation": "why"}
ROLE = [
    policy_wire("Succeeded", {"role": "none"}, from_message=[FROM_ROLE]),
    policy_wire("Failed", from_message=[WHY]),
]
UNKNOWN = policy_wire("Unknown", {"role": "unknown"}, from_message=[WHY])


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
    result: str,
    message: str,
    labels: Json,
    annotations: Json,
) -> None:
    results = one_result(state=result, message=message)
    changes = mark(
        pod(),
        claims(*ROLE, condition=None),
        results,
    )
    written = by_field(changes.keys) if changes else ({}, {})
    assert written == (labels, annotations)


@pytest.mark.parametrize("message", ["role=prim", "", "starting"])
@cases("role", changed="primary", never_set=None)
def test_keys_keep_their_values_while_the_message_is_shortened(
    role: str | None,
    message: str,
) -> None:
    labels = {"app": "web", "role": role} if role else {"app": "web"}
    there = pod(labels=labels)
    result = msgspec.structs.replace(
        state(message=message),
        message_shortened=True,
    )
    by = claims(*ROLE, condition=None)
    assert mark(there, by, states(result)) is None
    assert invalid_values(by.on(there), states(result)) == {}


@cases(
    "results stale left_out annotations",
    reported=(one_result(state="Unknown", message="gone"), "", {}, {"why": "gone"}),
    stale_daemon=(one_result(message="role=a"), "no Lease", {}, {}),
    stale_daemon_without_a_state=({}, "no Lease", {}, {}),
    left_out=(one_result(message="role=a"), "", {"web": NO_ROOM}, {}),
)
def test_the_policy_for_unknown_is_applied_to(
    results: States,
    stale: str,
    left_out: dict[str, LeftOut],
    annotations: Json,
) -> None:
    """No value is extracted from a reason that the manager sets."""
    marked = pod(
        labels={"app": "web", "role": "a"},
        owned=owned_fields(labels=["role"]),
    )
    changes = marking(
        marked,
        claims(*ROLE, UNKNOWN, condition=None),
        PodResults(results, stale, left_out=left_out),
        now=NOW,
    )
    assert changes is not None
    assert by_field(changes.keys) == ({"role": "unknown"}, annotations)


def applied(wire: Json, changes: Changes) -> Json:
    """The pod as the API server has it after the patch."""
    body = msgspec.json.decode(
        encode_patch(
            decoded(PODS, wire),
            changes,
        )
    )
    return patched_pod(wire, body, MANAGER_FIELD_MANAGER)


def claims_on(of: Pod, wires: Wires) -> Claims:
    """Claims of the markers that select the pod. All are in its namespace."""
    markers = [compile_marker(decoded(MARKERS, wire)) for wire in wires]
    return claims_of(tuple(marker for marker in markers if marker.selector.matches(of.labels)))


def settled(wire: Json, wires: Wires, results: Wires, stale: str = "") -> Json:
    """The pod after marking has been applied once."""
    recorded = states(*msgspec.convert(results, list[ContainerProbeState]))
    of = decoded(PODS, wire)
    changes = mark(
        of,
        claims_on(of, wires),
        recorded,
        stale,
    )
    return wire if changes is None else applied(wire, changes)


def looks(wire: Json) -> tuple[Json, Json, dict[str, tuple[str, str]]]:
    metadata = wire["metadata"]
    conditions = {}
    for condition in wire["status"]["conditions"]:
        conditions[condition["type"]] = (condition["status"], condition.get("message", ""))
    return metadata["labels"], metadata.get("annotations", {}), conditions


some_pods = strategies.pods(namespace="default")
some_markers = strategies.marker_sets(namespaces=("default",))


@given(some_pods, some_markers, strategies.results())
def test_marking_is_idempotent(wire: Json, wires: Wires, results: Wires) -> None:
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
    wire: Json,
    wires: Wires,
    stale: str,
    by_provider: bool,
) -> None:
    of = decoded(PODS, wire)
    results = PodResults(why_stale=stale, by_provider=by_provider)
    assert not may_change(of, results)
    assert marking(of, claims_on(of, wires), results, now=NOW) is None


@given(some_pods, some_markers, strategies.results(), strategies.results())
def test_marking_a_stale_pod_is_idempotent_and_leaves_no_result(
    wire: Json,
    wires: Wires,
    older: Wires,
    left: Wires,
) -> None:
    """For any part of the recorded states that is `left`."""
    stale = settled(
        settled(wire, wires, older),
        wires,
        left,
        "expired",
    )
    of = decoded(PODS, stale)
    claimed = names_of(
        claims_on(of, wires).owners.keys() & of.owned,
        "conditions",
    )
    for condition in of.conditions:
        assert condition.type not in claimed or condition.status == "Unknown"
    assert settled(stale, wires, left, "expired") is stale


@given(some_pods, some_markers, strategies.results(), strategies.results())
def test_only_the_newest_results_are_written(
    wire: Json,
    wires: Wires,
    older: Wires,
    newer: Wires,
) -> None:
    """A pod with definite results equals one that never had the older results."""
    names = {result["name"] for result in newer if result["state"] != "Unknown"}
    older = [result for result in older if result["name"] in names]
    newer = [result for result in newer if result["name"] in names]
    direct = settled(wire, wires, newer)
    detour = settled(
        settled(wire, wires, older),
        wires,
        newer,
    )
    assert looks(detour) == looks(direct)


@given(some_pods, some_markers, strategies.results())
def test_without_markers_only_readiness_gates_remain(
    wire: Json,
    wires: Wires,
    results: Wires,
) -> None:
    marked = settled(wire, wires, results)
    bare = decoded(
        PODS,
        settled(marked, [], []),
    )
    assert bare.owned <= {Mark("conditions", gate) for gate in bare.readiness_gates}


@given(some_pods, some_markers, strategies.states())
def test_a_deleted_marker_leaves_only_marks_of_the_others(
    wire: Json,
    wires: Wires,
    results: Wires,
) -> None:
    """For keys without an earlier value (those are not restored), once every probe has a result.

    Until its first result, the new owner of a key keeps a value that one of its policies writes.
    """
    wire["metadata"]["labels"] = {"app": wire["metadata"]["labels"]["app"]}
    wire["metadata"]["annotations"] = {}
    wire["status"]["conditions"] = wire["status"]["conditions"][:1]
    wire["spec"]["readinessGates"] = []
    detour = settled(
        settled(wire, wires, results),
        wires[1:],
        results,
    )
    direct = settled(wire, wires[1:], results)
    assert looks(detour) == looks(direct)
