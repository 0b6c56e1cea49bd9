"""The first broken or waiting link of a trace. Whole commands are tested in test/integration/usage."""

from typing import Any

import pytest
from support.builders import condition_wire, container_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.snapshots import healthy_pod, marker, seen_pod, snapshot, table
from support.wire import Json

from kruise_probe.inspection.link import Link, LinkState
from kruise_probe.inspection.result_links import SHORTENED_NOTE
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import traces_of

TABLE = table("traces")
OLD = "2026-01-01T00:00:00.000000Z"
NO_END = Link("", LinkState.NONE, "")
"""The end of the trace of a probe that works."""


def ends_of(there: Snapshot, *, pod: int = 0) -> list[Link]:
    """For each probe of the newest marker, the link that is not OK."""
    *_, newest = there.compiled.values()
    traces = traces_of(there, there.pods[pod], newest)
    return [trace.end or NO_END for trace in traces]


def end_of(**there: Any) -> Link:
    (end,) = ends_of(snapshot(**there))
    return end


def named(end: Link) -> str:
    return f"{end.name} {end.reason} {end.state}".strip()


def probing(**probe: Any) -> list[Json]:
    """A marker with one probe."""
    return [marker(probes=[probe_wire(**probe)])]


@pytest.mark.parametrize("name", TABLE["working"])
def test_working_probe_has_no_broken_link(name: str) -> None:
    (there,) = TABLE["working"][name]
    assert end_of(**there) is NO_END


@cases("there end says", **TABLE["ends"])
def test_trace_ends_at_the_first_link_that_is_not_ok(there: Json, end: str, says: str) -> None:
    found = end_of(**there)

    assert named(found) == end
    assert says in f"{found.text}; {found.remedy}"


@cases("probes ends", **TABLE["invalid"])
def test_invalid_probe_is_reported_as_invalid(probes: list[Json], ends: list[str]) -> None:
    found = ends_of(snapshot(markers=[marker(probes=probes)]))
    assert [named(end) for end in found] == ends


def test_each_probe_of_a_marker_is_compared_with_its_own_entry() -> None:
    second = probe_wire("second", condition="x.com/b", periodSeconds=7)
    conditions = [condition_wire("example.com/healthy"), condition_wire("x.com/b")]
    there = snapshot(
        markers=[marker(probes=[probe_wire(), second])],
        pods=[healthy_pod(conditions=conditions)],
        states=[state_wire(), state_wire("web#second")],
    )
    assert ends_of(there) == [NO_END, NO_END]


@cases("labels text", **TABLE["marks"])
def test_marks_must_be_those_of_the_newest_state(labels: dict[str, str], text: str) -> None:
    policies = [
        policy_wire("Succeeded", {"good": "yes"}),
        policy_wire("Failed", {"bad": "yes"}),
    ]
    found = end_of(
        markers=probing(policies=policies),
        pods=[healthy_pod(labels={"app": "web", **labels})],
        states=[state_wire(probed="2026-01-01T00:01:20Z")],  # recent, which only excuses values
    )
    assert found.text == text


def end_of_value(label: str, **state: Any) -> Link:
    value = {"label": "n", "regex": "n=(.*)"}
    policy = policy_wire("Succeeded", {"n": "0"}, from_message=[value])
    return end_of(
        markers=probing(policies=[policy]),
        pods=[healthy_pod(labels={"app": "web", "n": label})],
        states=[state_wire() | state],
    )


def test_a_shortened_message_keeps_the_values_and_says_so() -> None:
    found = end_of_value("1", message="n=", lastProbeTime=OLD, messageShortened=True)
    assert named(found) == "marks MessageShortened broken"
    assert found.text == f"{SHORTENED_NOTE}; kept as it is: label n"


@cases("message probed label end text", **TABLE["values"])
def test_values_must_be_those_of_the_newest_message(
    message: str, probed: str, label: str, end: str, text: str
) -> None:
    found = end_of_value(label, message=message, lastProbeTime=probed)
    assert named(found) == end
    assert found.text == text


@cases("value message says", **TABLE["invalid-values"])
def test_invalid_value_has_its_pattern_its_message_and_what_happens(
    value: Json, message: str, says: str
) -> None:
    markers = probing(policies=[policy_wire(from_message=[value])])
    states = [state_wire(message=message, probed=OLD)]
    found = end_of(markers=markers, states=states)
    assert found.text == says
    remedy = "print less" if "searched" in says else "correct regex"
    assert found.remedy.startswith(remedy)


def test_pattern_over_the_limit_of_a_pod_is_named() -> None:
    """The patterns of the older marker use the whole limit."""
    markers = []
    for name, created in (("a", "2020-01-01T00:00:00Z"), ("web", "2025-01-01T00:00:00Z")):
        policy = policy_wire(from_message=[{"label": name, "regex": ".{1,150}"}])
        probe = probe_wire(condition=f"example.com/{name}", policies=[policy])
        markers.append(marker(name=name, created=created, probes=[probe]))
    condition = condition_wire("example.com/web", message="3 players")

    found = end_of(
        markers=markers,
        pods=[healthy_pod(conditions=[condition])],
        states=[state_wire(message="3 players", probed=OLD)],
    )

    assert named(found) == "marks ValueInvalid broken"
    assert found.text == (
        "label web is not set: all patterns of this pod together are too large to search regex '.{1,150}' in \"3 players\""
    )


@cases("handler state message hint", **TABLE["hints"])
def test_failed_command_that_cannot_work_has_its_cause(
    handler: Json, state: str, message: str, hint: str
) -> None:
    condition = condition_wire("example.com/healthy", "True" if state == "Succeeded" else "False")
    there = snapshot(
        markers=probing(handler=handler),
        pods=[healthy_pod(conditions=[condition])],
        states=[state_wire(state=state, message=message)],
    )

    (trace,) = traces_of(there, there.pods[0], *there.compiled.values())

    (result,) = [link for link in trace.links if link.name == "result"]
    assert hint in f"{result.text} {result.remedy}"
    if not hint:
        assert result.text == f"{state}: {message}"
        assert result.remedy == ""


@cases("command there remedy", **TABLE["split"])
def test_command_of_one_word_with_spaces_has_a_hint(
    command: list[str], there: Json, remedy: str
) -> None:
    markers = probing(handler={"exec": {"command": command}})
    assert remedy in end_of(markers=markers, **there).remedy


@cases("containers text", **TABLE["not-initialised"])
def test_pod_that_is_not_initialised_lists_the_containers_that_do_not_run(
    containers: Json | None, text: str
) -> None:
    pod = healthy_pod(initialized=False, init_containers=[container_wire("init")])
    found = end_of(seen=[seen_pod(pod, containers=containers)])
    assert found.text == f"init containers of the pod have not completed{text}"


def test_refused_write_shows_the_message_of_the_api_server() -> None:
    refused = "The API server refuses to write results to 1 pod: default/web-0: policy says no."
    degraded = condition_wire("Degraded", reason="PodNotMarked", message=refused)
    there = snapshot(
        markers=[marker(status={"observedGeneration": 1, "conditions": [degraded]})],
        pods=[healthy_pod(), healthy_pod("web-01")],
        states=[state_wire(state="Failed")],
    )
    (found,) = ends_of(there)
    (other,) = ends_of(there, pod=1)
    assert named(found) == "condition PodNotMarked broken"
    assert "policy says no" in found.text
    assert named(other) == "condition ConditionBehind broken"
