import dataclasses
import json
from pathlib import Path

import msgspec
from support.builders import condition_wire, entry_of, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.snapshots import ended, healthy_pod, marker, snapshot, table
from support.wire import Json

from kruise_probe.api.probe import Probe
from kruise_probe.cli.tables import status_lines
from kruise_probe.cli.terminal import Terminal
from kruise_probe.hints.commands import handler_text
from kruise_probe.inspection.explanation import TraceView, explanation
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe.inspection.views import MarkerView, ProblemView, ResultView, StatusView

TABLE = table("status")


def view_of(there: Snapshot) -> StatusView:
    return status_view(there, there.markers, [])


def only(there: Snapshot) -> MarkerView:
    (view,) = view_of(there).markers
    return view


def only_result(there: Snapshot) -> ResultView:
    (result,) = only(there).pods[0].results
    return result


def only_problem(there: Snapshot) -> ProblemView:
    (problem,) = only(there).problems
    return problem


def trace_of(there: Snapshot, pod: SeenPod) -> TraceView:
    """What `explain` shows of the probe of a pod."""
    (matching,) = explanation(there, pod, []).matching
    (trace,) = matching.probes
    return trace


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
    assert msgspec.structs.astuple(view_of(there).counts) == (2, 0, 2, 0, 0)


@cases(
    "more phase",
    ended=({"phase": "Succeeded"}, "Succeeded"),
    ending=({"deleting": True}, "Terminating"),
)
def test_completed_pod_is_neither_counted_nor_a_problem(more: Json, phase: str) -> None:
    view = only(snapshot(pods=[healthy_pod("a"), healthy_pod("b", **more)]))
    assert view.counts.pods == 1
    assert view.counts.succeeded == 1
    phases = [(pod.name, pod.phase) for pod in view.pods]
    assert phases == [("a", "Running"), ("b", phase)]
    assert view.problems == []


def test_pods_are_those_of_the_markers_namespace() -> None:
    pods = [healthy_pod("a"), healthy_pod("b", namespace="other")]
    (pod,) = only(snapshot(pods=pods)).pods
    assert pod.name == "a"


@cases("of_marker of_pod link pod begins", **TABLE["paused"])
def test_paused_probe_shows_its_last_result_and_how_to_resume(
    of_marker: Json | None, of_pod: Json | None, link: str, pod: str, begins: str
) -> None:
    last_result = condition_wire("example.com/healthy", reason="ProbePaused", message="fine")
    there = snapshot(
        markers=[marker(annotations=of_marker)],
        pods=[healthy_pod(annotations=of_pod, conditions=[last_result])],
        states=[],
        renewed="2026-01-01T00:00:00.000000Z",
    )

    result = only_result(there)
    assert result.state == "Succeeded"
    assert result.message == "fine"
    counts = only(there).counts
    assert counts.succeeded == 1
    assert counts.unknown == 0
    problem = only_problem(there)
    assert problem.severity == "waiting"
    assert problem.reason == "ProbePaused"
    assert problem.link == link
    assert problem.pod == pod
    assert problem.message.startswith(begins)
    assert "kruise-probe.io/paused-" in problem.remedy
    assert explanation(there, there.pods[0], []).summary == "0 of 1 probes work, 1 paused"
    assert trace_of(there, there.pods[0]).result == result


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
        assert problem.severity == "waiting"
        assert problem.pod == "web-0"
        assert problem.probe == "healthy"
        assert problem.message == (
            "the pod is not Ready while its readiness gate example.com/healthy is False"
        )


def test_no_pods_in_the_namespace_has_a_command_that_finds_the_pods() -> None:
    problem = only_problem(snapshot(pods=[]))
    assert problem.message.endswith("; the namespace has no pods")
    assert problem.remedy == (
        "create pods there, or the marker in the namespace of its pods: kubectl get pods -A -l app=web"
    )


def marker_with(*policies: Json) -> Json:
    """A marker whose probe has these policies."""
    return marker(probes=[probe_wire(policies=policies)])


def test_a_value_of_a_backup_is_not_a_result() -> None:
    primary = {"role": "primary"}
    there = snapshot(
        markers=[marker_with(policy_wire(labels=primary))],
        pods=[TABLE["restored"]],
        states=[],
    )
    result = only_result(there)
    assert result.labels == {}
    assert result.not_written == primary
    assert result.message == "The pod has finished (Failed)."


@cases("exit_code problems", as_planned=(0, []), failed=(3, ["ContainerFinished"]))
def test_a_container_that_ended_for_good_is_a_problem_only_if_it_failed(
    exit_code: int, problems: list[str]
) -> None:
    there = snapshot(seen=[ended(exit_code)])
    assert only_result(there).message == f"exit code {exit_code}"
    found = only(there).problems
    assert [problem.reason for problem in found] == problems
    assert not any("--previous" in problem.remedy for problem in found)


@cases("there state since", **TABLE["results"])
def test_result_is_the_newest_that_is_known(there: Json, state: str, since: str) -> None:
    result = only_result(snapshot(**there))
    assert result.state == state
    assert result.since == since
    if state == "Failed":
        assert result.message == "bad"
        assert result.last_probe_time == "2026-01-01T00:01:00Z"


def test_condition_of_another_probe_is_no_result() -> None:
    there = snapshot(
        markers=[marker(name="a"), marker(name="b")],
        states=[],
        forbidden=["nodepodprobes"],
    )
    mine, other = view_of(there).markers
    assert mine.pods[0].results[0].state == "Succeeded"
    assert other.pods[0].results[0].state == "Pending"


@cases("labels closest create", **TABLE["closest"])
def test_marker_without_pods_shows_its_selector_and_the_closest_pod(
    labels: list[Json], closest: str, create: str
) -> None:
    of_a, of_b = labels
    pods = [healthy_pod("a", labels=of_a), healthy_pod("b", labels=of_b)]
    problem = only_problem(snapshot(pods=pods))
    assert problem.severity == "waiting"
    assert problem.link == "selector"
    assert problem.reason == "NoPods"
    assert problem.message.startswith(f"no pod of namespace default has app=web; {closest}")
    assert problem.remedy.startswith(
        f"unless the labels of the pod template are wrong, write {create} in the file and create the marker again, "
        "as a selector cannot be changed: kubectl delete podprobemarker web -n default; kubectl apply -f FILE"
    )


@cases("there problem says", **TABLE["problems"])
def test_problem_is_reported_once_with_its_cause(there: Json, problem: str, says: str) -> None:
    found = only_problem(snapshot(**there))
    shown = f"{found.severity} {found.link} {found.reason} {found.pod} {found.node}"
    assert shown.rstrip() == problem
    assert says in f"{found.message}; {found.remedy}"


def test_nodes_behind_are_found_in_nodepodprobes_if_readable() -> None:
    markers = TABLE["problems"]["behind"][0]["markers"]
    assert only(snapshot(markers=markers)).problems == []


def test_reserved_label_is_a_problem_unless_allowed() -> None:
    policy = policy_wire(labels={"pod-template-hash": "x"})
    there = snapshot(markers=[marker_with(policy)])

    problem = only_problem(there)
    assert problem.reason == "InvalidSpec"
    assert "--allowed-label-keys" in problem.message

    allowed = dataclasses.replace(there, allowed_labels=frozenset({"pod-template-hash"}))
    assert "InvalidSpec" not in {problem.reason for problem in only(allowed).problems}


def test_view_has_the_documented_fields() -> None:
    view = msgspec.to_builtins(view_of(snapshot()))
    documented = Path(__file__).parents[2] / "data" / "status-view.json"
    assert list(view) == ["version", "time", "notes", "counts", "markers"]
    assert view["markers"] == [json.loads(documented.read_text())]


def test_a_role_has_one_line_with_its_holder_and_the_pods_that_are_held_off() -> None:
    primary = {"app": "web", "role": "primary"}
    replica = {"app": "web", "role": "replica"}
    policies = [
        policy_wire("Succeeded", {"role": "primary"}),
        policy_wire("Failed", {"role": "replica"}),
    ]
    probe = probe_wire(policies=policies) | {"exclusive": {}}
    off = condition_wire("example.com/healthy", reason="NotHolder")
    waits = {**off, "message": "WaitingForPod: waiting for pod web-1 to lose role=primary: 403 no"}
    pods = [
        healthy_pod("web-0", labels=replica, conditions=[off]),
        healthy_pod("web-1", labels=primary),
        healthy_pod("web-2", labels=replica, conditions=[waits]),
    ]
    there = snapshot(markers=[marker(probes=[probe])], pods=pods)

    view = view_of(there)

    (role,) = view.markers[0].roles
    assert role.role == "role=primary"
    assert role.holders == ["web-1"]
    assert role.held_off == ["web-0", "web-2"]
    text = "\n".join(status_lines(view, Terminal(width=200), wide=False))
    assert "role=primary  web-1 (since 30s)  held off: web-0, web-2\n" in text
    traces = [trace_of(there, pod) for pod in there.pods]
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
    """Otherwise a probe that changes often would always be reported, and its pod would always be listed first."""
    there = snapshot(states=[state_wire(state="Failed", moved="2026-01-01T00:01:28Z")])
    trace = trace_of(there, there.pods[0])
    assert trace.reason == "ResultNew"
    assert trace.links[-1].text.endswith("The manager has not written this result yet (2 s)")
    assert only(there).problems == []
