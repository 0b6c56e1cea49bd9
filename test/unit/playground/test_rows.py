"""What a person is shown of a pod."""

from datetime import UTC, datetime
from typing import Any

import pytest
from support.builders import (
    condition_wire,
    marker,
    npp,
    pod_status_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.node_records import node_pod

from kruise_probe.api.keys import ProbeName
from kruise_probe_playground.rows import Mark, PodRow, ProbeRow, pod_row, reports_of

KIND = "example.com/healthy"
AT = "2026-01-01T00:00:00Z"
NAME = ProbeName("web", "healthy")
WITHOUT_CONDITION = marker(probes=[probe_wire(condition=None, policies=[policy_wire()])])


def row(pod: Any, *markers: Any, reported: str = "") -> PodRow:
    meta = {"name": "web", "namespace": "default", "uid": "uid-1"}
    states = [state_wire(state=reported, message="no", moved=AT)] if reported else []
    return pod_row(
        pod, markers, reports_of([npp(statuses=[pod_status_wire({"metadata": meta}, *states)])])
    )


def web(*conditions: Any, **more: Any) -> Any:
    metadata = {"labels": {"app": "web"}, **more.pop("metadata", {})}
    return node_pod("main", metadata=metadata, status={"conditions": list(conditions)}, **more)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        pytest.param("True", "Succeeded", id="true"),
        pytest.param("False", "Failed", id="false"),
        pytest.param("Unknown", "Unknown", id="unknown"),
        pytest.param("odd", "Unknown", id="odd"),
    ],
)
def test_probe_with_a_condition_shows_the_condition(status: str, state: str) -> None:
    pod = web(condition_wire(KIND, status, message="hi", lastTransitionTime=AT))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert row(pod, marker(), reported="Failed").probes == (
        ProbeRow(NAME, state, at, "hi", "Failed", False, "1s exec true"),
    )


def test_probe_without_a_condition_shows_the_report() -> None:
    found = row(web(), WITHOUT_CONDITION, reported="Failed").probes[0]
    assert (found.state, found.message) == ("Failed", "no")


def test_report_without_its_condition_is_not_shown() -> None:
    found = row(web(), marker(), reported="Failed").probes[0]
    assert (found.state, found.reported) == ("", "Failed")


def test_condition_belongs_to_the_first_probe_that_names_it() -> None:
    older = marker("a", created="2025-01-01T00:00:00Z")
    younger = marker("web", created="2026-01-01T00:00:00Z")
    found = row(web(condition_wire(KIND, "True")), younger, older, reported="Failed").probes
    assert [(each.probe.marker, each.state) for each in found] == [
        ("a", "Succeeded"),
        ("web", "Failed"),
    ]


def test_only_markers_that_select_the_pod_count() -> None:
    found = row(
        web(),
        marker("b"),
        marker("a"),
        marker("other", namespace="elsewhere"),
        marker("unmatched", selector={"matchLabels": {"app": "no"}}),
        marker("broken", selector={"matchExpressions": [{"key": "app", "operator": "Odd"}]}),
        marker("going", deleting=True),
    )
    assert [each.probe.marker for each in found.probes] == ["a", "b"]


def test_marks_are_those_that_a_policy_names() -> None:
    values = [{"label": "role"}, {"annotation": "model"}, {"label": "none"}, {"annotation": "none"}]
    policy = policy_wire("Succeeded", {"state": "idle"}, {"cost": "1", "absent": "1"}, values)
    pod = web(
        metadata={
            "labels": {"app": "web", "state": "idle", "role": "main"},
            "annotations": {"cost": "1", "own": "y", "model": "m"},
        }
    )
    found = row(pod, marker(probes=[probe_wire(policies=[policy])]))
    assert found.marks == (
        Mark("annotation", "cost", "1"),
        Mark("annotation", "model", "m"),
        Mark("label", "role", "main"),
        Mark("label", "state", "idle"),
    )


def test_readiness_gate_is_marked() -> None:
    gated = web(readinessGates=[{"conditionType": KIND}])
    assert [row(pod, marker()).probes[0].gate for pod in (gated, web())] == [True, False]


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
    assert row(node_pod("main", **more)).status == status


@pytest.mark.parametrize(
    ("namespace", "title"),
    [pytest.param("default", "web", id="usual"), pytest.param("game", "game/web", id="other")],
)
def test_title_contains_a_namespace_other_than_default(namespace: str, title: str) -> None:
    assert row(web(metadata={"namespace": namespace})).title == title
