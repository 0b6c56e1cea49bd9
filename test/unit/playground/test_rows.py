"""What a person is shown of a pod."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from support.builders import condition_wire, policy_wire, probe_wire, state_wire
from support.node_records import node_pod
from support.snapshots import healthy_pod, marker, seen_pod, snapshot

from kruise_probe.api.names import ProbeName
from kruise_probe.inspection.status import status_view
from kruise_probe_playground.node.pods import NODE_PODS, NodePod
from kruise_probe_playground.rows import Mark, PodRow, ProbeRow, pod_rows, summaries

KIND = "example.com/healthy"
AT = "2026-01-01T00:01:00Z"
DONE = {"terminated": {"reason": "Completed", "exitCode": 0}}


def row(pod: Any = None, *, states: Sequence[Any] | None = None, **more: Any) -> PodRow:
    wire = healthy_pod() if pod is None else pod
    markers = more.pop("markers", [marker()])
    stopped = {"main": DONE} if wire["status"]["phase"] == "Succeeded" else None
    found = snapshot(markers=markers, seen=[seen_pod(wire, containers=stopped)], states=states)
    nodes = [NODE_PODS.decode(msgspec.json.encode(wire))]
    (only,) = pod_rows(nodes, status_view(found, found.markers, ()), found.pods_by_key)
    return only


def test_probe_shows_its_newest_result_its_check_and_its_gate() -> None:
    found = row(states=[state_wire(state="Failed", message="no")])
    name = ProbeName("web", "healthy")
    assert found.probes == (ProbeRow(name, "Failed", AT, "no", False, "1s exec true"),)
    assert row(healthy_pod(readiness_gates=[KIND])).probes[0].gate
    assert row(healthy_pod(conditions=()), states=[]).probes[0].state == ""
    unwritten = state_wire(state="Failed", moved="2026-01-01T00:01:29Z")
    assert row(states=[unwritten]).probes[0].state == "Succeeded", "as the marks"


def test_completed_pod_shows_its_condition_as_status_does() -> None:
    conditions = [condition_wire(KIND, "False", message="late")]
    found = row(healthy_pod(phase="Succeeded", conditions=conditions), states=[])
    assert (found.probes[0].state, found.probes[0].message) == ("Failed", "late")


def test_probe_of_a_claimed_condition_shows_its_own_result() -> None:
    older = marker(name="a", created="2025-01-01T00:00:00Z")
    results = [state_wire("a#healthy", "Succeeded"), state_wire("web#healthy", "Failed")]
    found = row(states=results, markers=[marker(), older])
    assert [(each.probe.marker, each.state) for each in found.probes] == [
        ("a", "Succeeded"),
        ("web", "Failed"),
    ]


def test_marks_are_those_that_the_probe_owns() -> None:
    values = [{"label": "role"}, {"annotation": "model"}]
    policy = policy_wire("Succeeded", {"state": "idle"}, {"cost": "1", "absent": "1"}, values)
    pod = healthy_pod(
        labels={"app": "web", "state": "idle", "role": "main"},
        annotations={"cost": "1", "own": "y", "model": "m"},
    )
    found = row(pod, markers=[marker(probes=[probe_wire(policies=[policy])])])
    assert found.probes[0].marks == (
        Mark("annotation", "cost", "1"),
        Mark("annotation", "model", "m"),
        Mark("label", "role", "main"),
        Mark("label", "state", "idle"),
    )


def bare(pod: NodePod) -> PodRow:
    found = snapshot(markers=[], pods=[])
    (only,) = pod_rows([pod], status_view(found, (), ()), {})
    return only


CRASHING = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


@pytest.mark.parametrize(
    ("more", "status"),
    [
        pytest.param({}, "Pending", id="nothing-known"),
        pytest.param({"status": {"phase": "Running"}}, "Running", id="phase"),
        pytest.param({"metadata": {"deletionTimestamp": AT}}, "Terminating", id="deleting"),
        pytest.param({"status": {"containerStatuses": [CRASHING]}}, "CrashLoopBackOff", id="waits"),
    ],
)
def test_status_is_that_of_kubectl(more: Any, status: str) -> None:
    assert bare(node_pod("main", **more)).status == status


def test_title_contains_a_namespace_other_than_default() -> None:
    assert bare(node_pod("main")).title == "web"
    assert bare(node_pod("main", metadata={"namespace": "game"})).title == "game/web"


def test_problems_that_need_action_are_summarized_by_kind() -> None:
    wrong = [probe_wire(each, container="mian", condition=f"c/{each}") for each in ("a", "b")]
    pods = [healthy_pod(each) for each in ("game-0", "game-1", "game-2")]
    found = snapshot(markers=[marker(probes=wrong)], pods=pods, states=[])
    view = status_view(found, found.markers, ())
    told = [each.text.partition(": ")[0] for each in summaries(view)]
    assert told == ["web#a on game-0 and 2 more", "web#b on game-0 and 2 more"]
    other = marker(name="other", selector={"matchLabels": {"app": "none"}})
    empty = snapshot(markers=[other], states=[])
    (only,) = summaries(status_view(empty, empty.markers, ()))
    assert only.text.startswith("other: ")
