import dataclasses
import json
from pathlib import Path

import msgspec
from support.builders import (
    condition_wire,
    entry_of,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.snapshots import ended, healthy_pod, marker, snapshot, table
from support.wire import Json

from kruise_probe.api.probe import Probe
from kruise_probe.cli.tables import status_lines
from kruise_probe.cli.terminal import Terminal
from kruise_probe.hints.commands import handler_text
from kruise_probe.inspection.explanation import explanation
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe.inspection.views import MarkerView

TABLE = table("status")


def only(there: Snapshot) -> MarkerView:
    (view,) = status_view(there, there.markers, []).markers
    return view


@cases("states counted", **TABLE["counts"])
def test_pods_are_counted_by_the_states_of_all_probes(
    states: list[Json], counted: list[int]
) -> None:
    counts = only(snapshot(states=states)).counts
    assert list(msgspec.structs.astuple(counts)) == [1, *counted]


def test_all_markers_together_count_each_pod_once() -> None:
    there = snapshot(
        markers=[marker(), marker(name="other"), marker(name="third")],
        pods=[healthy_pod("a"), healthy_pod("b"), healthy_pod("c", phase="Succeeded")],
        states=[state_wire(), state_wire("other#healthy", state="Failed")],
    )
    counts = status_view(there, there.markers, []).counts
    assert msgspec.structs.astuple(counts) == (2, 0, 2, 0, 0)


@cases(
    "more phase",
    ended=({"phase": "Succeeded"}, "Succeeded"),
    ending=({"deleting": True}, "Terminating"),
)
def test_completed_pod_is_neither_counted_nor_a_problem(more: Json, phase: str) -> None:
    view = only(snapshot(pods=[healthy_pod("a"), healthy_pod("b", **more)]))
    assert (view.counts.pods, view.counts.succeeded) == (1, 1)
    assert [(each.name, each.phase) for each in view.pods] == [("a", "Running"), ("b", phase)]
    assert view.problems == []


def test_pods_are_those_of_the_markers_namespace() -> None:
    pods = [healthy_pod("a"), healthy_pod("b", namespace="other")]
    there = snapshot(pods=pods)
    assert [each.name for each in only(there).pods] == ["a"]


LAST_RESULT = condition_wire("example.com/healthy", "True", reason="ProbePaused", message="fine")


@cases("of_marker of_pod link pod begins", **TABLE["paused"])
def test_paused_probe_shows_its_last_result_and_how_to_resume(
    of_marker: Json | None, of_pod: Json | None, link: str, pod: str, begins: str
) -> None:
    pods = [healthy_pod(annotations=of_pod, conditions=[LAST_RESULT])]
    there = snapshot(
        markers=[marker(annotations=of_marker)],
        pods=pods,
        states=[],
        renewed="2026-01-01T00:00:00.000000Z",
    )

    view = only(there)

    (result,) = view.pods[0].results
    assert (result.state, result.message) == ("Succeeded", "fine")
    assert (view.counts.succeeded, view.counts.unknown) == (1, 0)
    (found,) = view.problems
    assert (found.severity, found.reason) == ("waiting", "ProbePaused")
    assert (found.link, found.pod) == (link, pod)
    assert found.message.startswith(begins)
    assert "kruise-probe.io/paused-" in found.remedy
    explained = explanation(there, there.pods[0], [])
    assert explained.summary == "0 of 1 probes work, 1 paused"
    assert explained.matching[0].probes[0].result == result


@cases(
    "state ready problems",
    failing=("Failed", "False", ["GateClosed"]),
    succeeding=("Succeeded", "True", []),
)
def test_a_failing_probe_that_keeps_its_pod_unready_is_reported(
    state: str, ready: str, problems: list[str]
) -> None:
    pod = healthy_pod(
        conditions=[condition_wire("example.com/healthy", ready)],
        readiness_gates=["example.com/healthy"],
    )
    view = only(snapshot(pods=[pod], states=[state_wire(state=state)]))
    assert [problem.reason for problem in view.problems] == problems
    for problem in view.problems:
        assert (problem.severity, problem.pod, problem.probe) == ("waiting", "web-0", "healthy")
        assert problem.message == (
            "the pod is not Ready while its readiness gate example.com/healthy is False"
        )


def test_no_pods_in_the_namespace_has_a_command_that_finds_the_pods() -> None:
    (problem,) = only(snapshot(pods=[])).problems
    assert problem.message.endswith("; the namespace has no pods")
    assert problem.remedy == (
        "create pods there, or the marker in the namespace of its pods: kubectl get pods -A -l app=web"
    )


def test_a_value_of_a_backup_is_not_a_result() -> None:
    probe = probe_wire(policies=[policy_wire("Succeeded", {"role": "primary"})])
    there = snapshot(pods=[TABLE["restored"]], states=[], markers=[marker(probes=[probe])])
    (result,) = only(there).pods[0].results
    assert (result.labels, result.not_written) == ({}, {"role": "primary"})
    assert result.message == "The pod has finished (Failed)."


@cases("exit_code problems", as_planned=(0, []), failed=(3, ["ContainerFinished"]))
def test_a_container_that_ended_for_good_is_a_problem_only_if_it_failed(
    exit_code: int, problems: list[str]
) -> None:
    view = only(snapshot(seen=[ended(exit_code)]))
    assert view.pods[0].results[0].message == f"exit code {exit_code}"
    assert [problem.reason for problem in view.problems] == problems
    assert all("--previous" not in problem.remedy for problem in view.problems)


@cases("there state since", **TABLE["results"])
def test_result_is_the_newest_that_is_known(there: Json, state: str, since: str) -> None:
    (result,) = only(snapshot(**there)).pods[0].results
    assert (result.state, result.since) == (state, since)
    if result.state == "Failed":
        assert (result.message, result.last_probe_time) == ("bad", "2026-01-01T00:01:00Z")


def test_condition_of_another_probe_is_no_result() -> None:
    mine, other = marker(name="a"), marker(name="b")
    pod = healthy_pod(conditions=[condition_wire("example.com/healthy", "True")])
    there = snapshot(markers=[mine, other], pods=[pod], states=[], forbidden=["nodepodprobes"])
    views = status_view(there, there.markers, []).markers
    assert [each.pods[0].results[0].state for each in views] == ["Succeeded", "Pending"]


@cases("labels closest create", **TABLE["closest"])
def test_marker_without_pods_shows_its_selector_and_the_closest_pod(
    labels: list[Json], closest: str, create: str
) -> None:
    pods = [healthy_pod(name, labels=each) for name, each in zip("ab", labels, strict=False)]
    (problem,) = only(snapshot(pods=pods)).problems
    assert (problem.severity, problem.link, problem.reason) == ("waiting", "selector", "NoPods")
    assert problem.message.startswith(f"no pod of namespace default has app=web; {closest}")
    assert problem.remedy.startswith(
        f"unless the labels of the pod template are wrong, write {create} in the file and create the marker again, "
        "as a selector cannot be changed: kubectl delete podprobemarker web -n default; kubectl apply -f FILE"
    )


@cases("there problem says", **TABLE["problems"])
def test_problem_is_reported_once_with_its_cause(there: Json, problem: str, says: str) -> None:
    view = only(snapshot(**there))
    (found,) = view.problems
    where = f"{found.link} {found.reason} {found.pod} {found.node}".rstrip()
    assert f"{found.severity} {where}" == problem
    assert says in f"{found.message}; {found.remedy}"


def test_nodes_behind_are_found_in_nodepodprobes_if_readable() -> None:
    markers = TABLE["problems"]["behind"][0]["markers"]
    assert only(snapshot(markers=markers)).problems == []


def test_reserved_label_is_a_problem_unless_allowed() -> None:
    policy = policy_wire("Succeeded", {"pod-template-hash": "x"})
    labelled = marker(probes=[probe_wire(policies=[policy])])
    there = snapshot(markers=[labelled], pods=[healthy_pod(labels={"app": "web"})])

    (problem,) = only(there).problems
    assert problem.reason == "InvalidSpec"
    assert "--allowed-label-keys" in problem.message

    allowed = dataclasses.replace(there, allowed_labels=frozenset({"pod-template-hash"}))
    assert "InvalidSpec" not in {each.reason for each in only(allowed).problems}


def test_view_has_the_documented_fields() -> None:
    view = status_view(snapshot(), (), [])
    assert list(msgspec.to_builtins(view)) == ["version", "time", "notes", "counts", "markers"]
    of_marker = only(snapshot())
    documented = Path(__file__).parents[2] / "data" / "status-view.json"
    assert msgspec.to_builtins(of_marker) == json.loads(documented.read_text())


def test_a_role_has_one_line_with_its_holder_and_the_pods_that_are_held_off() -> None:
    policies = [
        policy_wire("Succeeded", {"role": "primary"}),
        policy_wire("Failed", {"role": "replica"}),
    ]
    probe = probe_wire(policies=policies) | {"exclusive": {}}
    off = condition_wire("example.com/healthy", reason="NotHolder")
    waits = {**off, "message": "WaitingForPod: waiting for pod web-1 to lose role=primary: 403 no"}
    pods = [
        healthy_pod("web-0", labels={"app": "web", "role": "replica"}, conditions=[off]),
        healthy_pod("web-1", labels={"app": "web", "role": "primary"}),
        healthy_pod("web-2", labels={"app": "web", "role": "replica"}, conditions=[waits]),
    ]
    there = snapshot(markers=[marker(probes=[probe])], pods=pods)
    view = status_view(there, there.markers, [])
    (role,) = view.markers[0].roles
    assert (role.role, role.holders, role.held_off) == (
        "role=primary",
        ["web-1"],
        ["web-0", "web-2"],
    )
    text = "\n".join(status_lines(view, Terminal(width=200), wide=False))
    assert "role=primary  web-1 (since 30s)  held off: web-0, web-2\n" in text
    traces = [explanation(there, pod, []).matching[0].probes[0] for pod in there.pods]
    assert [trace.links[-1].text for trace in traces] == [
        "pod web-1 holds the role role=primary",
        "role=primary",
        waits["message"],
    ]
    assert [trace.reason for trace in traces] == ["", "", "WaitingForPod"]


@cases("probe text", **TABLE["handlers"])
def test_handler_text_is_one_line_that_can_be_copied(probe: Json, text: str) -> None:
    assert handler_text(entry_of(msgspec.convert(probe, Probe))) == text


def test_result_that_the_manager_is_about_to_write_is_no_problem() -> None:
    """A probe that changes often would be reported, and its pod moved, all the time."""
    states = [state_wire(state="Failed", moved="2026-01-01T00:01:28Z")]
    there = snapshot(states=states)
    (trace,) = explanation(there, there.pods[0], []).matching[0].probes
    assert trace.reason == "ResultNew"
    assert trace.links[-1].text.endswith("The manager has not written this result yet (2 s)")
    assert only(there).problems == []
