import dataclasses
import json
from pathlib import Path

import msgspec
from support.builders import (
    condition_wire,
    entry_of,
    owned_fields,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.snapshots import healthy_pod, marker, seen_pod, snapshot
from support.wire import Json

from kruise_probe.api.core import Probe
from kruise_probe.cli.tables import status_lines
from kruise_probe.cli.terminal import Terminal
from kruise_probe.hints.commands import handler_text
from kruise_probe.inspection.explanation import explanation
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe.inspection.views import MarkerView

OLD = "2026-01-01T00:00:00.000000Z"


def only(there: Snapshot) -> MarkerView:
    (view,) = status_view(there, there.markers, []).markers
    return view


COUNTED = {
    "succeeded": ([state_wire()], (1, 0, 0, 0)),
    "failed": ([state_wire(state="Failed")], (0, 1, 0, 0)),
    "unknown": ([state_wire(state="Unknown")], (0, 0, 1, 0)),
    "pending": ([], (0, 0, 1, 1)),
    "succeeded-before-an-edit": ([state_wire(probe_hash="0")], (0, 0, 1, 1)),
    "failed-before": ([state_wire(state="Failed", probe_hash="0")], (0, 0, 1, 1)),
}


@cases("state counted", **COUNTED)
def test_pods_are_counted_by_the_states_of_all_probes(
    state: list[Json], counted: tuple[int, int, int, int]
) -> None:
    counts = only(snapshot(states=state)).counts
    assert msgspec.structs.astuple(counts) == (1, *counted)


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


PAUSED = {"kruise-probe.io/paused": "true"}
LAST_RESULT = [condition_wire("example.com/healthy", "True", reason="ProbePaused", message="fine")]


@cases(
    "of_marker of_pod problem",
    marker=(PAUSED, None, ("marker", "", "this PodProbeMarker has")),
    pod=(None, PAUSED, ("pod", "web-0", "the pod has")),
    both=(PAUSED, PAUSED, ("marker", "", "this PodProbeMarker has")),
)
def test_paused_probe_shows_its_last_result_and_how_to_resume(
    of_marker: Json | None, of_pod: Json | None, problem: tuple[str, str, str]
) -> None:
    pods = [healthy_pod(annotations=of_pod, conditions=LAST_RESULT)]
    there = snapshot(markers=[marker(annotations=of_marker)], pods=pods, states=[], renewed=OLD)

    view = only(there)

    (result,) = view.pods[0].results
    assert (result.state, result.message) == ("Succeeded", "fine")
    assert (view.counts.succeeded, view.counts.unknown) == (1, 0)
    (found,) = view.problems
    assert (found.severity, found.reason) == ("waiting", "ProbePaused")
    assert (found.link, found.pod) == problem[:2]
    assert found.message.startswith(problem[2])
    assert "kruise-probe.io/paused-" in found.remedy
    explained = explanation(there, there.pods[0], [])
    assert explained.summary == "0 of 1 probes work, 1 paused"
    assert explained.matching[0].probes[0].result == result


MINUTE = "2026-01-01T00:01:00Z"
STALE: Json = {"states": [state_wire(probed=OLD, moved=OLD)], "renewed": OLD}
UNKNOWN_SINCE = [condition_wire("example.com/healthy", "Unknown", lastTransitionTime=MINUTE)]
TIMES = {"lastTransitionTime": OLD, "lastProbeTime": MINUTE}
BAD = [condition_wire("example.com/healthy", "False", message="bad", **TIMES)]
LARGE: Json = {"httpGet": {"port": 80, "path": "/" + "x" * 70_000}}
LEFT_OUT: Json = {"markers": [marker(probes=[probe_wire(handler=LARGE)])], "planned": False}
ENDED: Json = {"pods": [healthy_pod(phase="Succeeded", conditions=BAD)]}


BACKUP = {
    **owned_fields(labels=["role"], conditions=["example.com/healthy"]),
    "manager": "velero",
    "subresource": "",
}
RESTORED = pod_wire(
    phase="Failed", labels={"app": "web", "role": "primary"}, conditions=BAD, owned=BACKUP
)


def completed(exit_code: int) -> SeenPod:
    """A pod with a container that is not restarted."""
    wire = healthy_pod()
    wire["spec"]["restartPolicy"] = "Never"
    state = {"terminated": {"exitCode": exit_code, "reason": "Completed"}}
    return seen_pod(wire, containers={"main": state})


SILENT = healthy_pod(
    conditions=[
        {**UNKNOWN_SINCE[0], "reason": "ProbeDaemonStale", "message": "It is silent. Check it."}
    ],
    owned=owned_fields(conditions=["example.com/healthy"]),
)


NEWEST = {
    "stale": ({**STALE, "pods": [healthy_pod(conditions=UNKNOWN_SINCE)]}, ("Unknown", MINUTE)),
    "stale-and-kept": ({**STALE, "markers": [marker(probes=[{**probe_wire(), "whenStale": "Keep"}])]}, ("Succeeded", OLD)),
    "stale-without-its-lease": ({**STALE, "renewed": None, "pods": [SILENT]}, ("Unknown", MINUTE)),
    "stale-and-not-written-yet": ({**STALE, "pods": [healthy_pod(conditions=[])]}, ("Unknown", "")),
    "nodepodprobes-forbidden": ({"pods": [healthy_pod(conditions=BAD)], "forbidden": ["nodepodprobes"]}, ("Failed", OLD)),
    "completed": ({"states": [], **ENDED}, ("Failed", OLD)),
    "never-probed": ({"states": [], "pods": [healthy_pod(phase="Succeeded", conditions=[])]}, ("Unknown", "")),
    "running-without-a-result": ({"states": [], "pods": [healthy_pod(conditions=BAD)]}, ("Pending", "")),
    "left-out": ({**LEFT_OUT, "pods": [healthy_pod(conditions=UNKNOWN_SINCE)]}, ("Unknown", MINUTE)),
    "completed-and-still-reported": (ENDED, ("Failed", OLD)),
    "restored-from-a-backup": ({"states": [], "pods": [RESTORED]}, ("Unknown", "")),
    "container-completed": ({"seen": [completed(0)]}, ("Unknown", "")),
}  # fmt: skip


def test_a_value_of_a_backup_is_not_a_result() -> None:
    probe = probe_wire(policies=[policy_wire("Succeeded", {"role": "primary"})])
    there = snapshot(pods=[RESTORED], states=[], markers=[marker(probes=[probe])])
    (result,) = only(there).pods[0].results
    assert (result.labels, result.not_written) == ({}, {"role": "primary"})
    assert result.message == "The pod has finished (Failed)."


@cases("exit_code problems", as_planned=(0, []), failed=(3, ["ContainerFinished"]))
def test_a_container_that_ended_for_good_is_a_problem_only_if_it_failed(
    exit_code: int, problems: list[str]
) -> None:
    view = only(snapshot(seen=[completed(exit_code)]))
    assert view.pods[0].results[0].message == f"exit code {exit_code}"
    assert [problem.reason for problem in view.problems] == problems
    assert all("--previous" not in problem.remedy for problem in view.problems)


@cases("there shown", **NEWEST)
def test_result_is_the_newest_that_is_known(there: Json, shown: tuple[str, str]) -> None:
    (result,) = only(snapshot(**there)).pods[0].results
    assert (result.state, result.since) == shown
    if result.state == "Failed":
        assert (result.message, result.last_probe_time) == ("bad", MINUTE)


def test_condition_of_another_probe_is_no_result() -> None:
    mine, other = marker(name="a"), marker(name="b")
    pod = healthy_pod(conditions=[condition_wire("example.com/healthy", "True")])
    there = snapshot(markers=[mine, other], pods=[pod], states=[], forbidden=["nodepodprobes"])
    views = status_view(there, there.markers, []).markers
    assert [each.pods[0].results[0].state for each in views] == ["Succeeded", "Pending"]


@cases(
    "labels closest create",
    no_pods=([], "the namespace has no pods", "the labels of its pods"),
    another_value=(
        [{}, {"app": "shop"}],
        "closest is pod b: the selector requires app=web, but the pod has app=shop",
        "the labels of its pods",
    ),
    typo=(
        [{"app": "shop"}, {"app": "wbe"}],
        "closest is pod b: the selector requires app=web, but the pod has app=wbe (did you mean 'wbe'?)",
        "app=wbe",
    ),
    typo_in_a_key=([{"app": "shop"}, {"ap": "web"}], "closest is pod b: ", "ap=web"),
)
def test_marker_without_pods_shows_its_selector_and_the_closest_pod(
    labels: list[Json], closest: str, create: str
) -> None:
    pods = [healthy_pod(name, labels=each) for name, each in zip("ab", labels, strict=False)]
    (problem,) = only(snapshot(pods=pods)).problems
    assert (problem.severity, problem.link, problem.reason) == ("waiting", "selector", "NoPods")
    assert problem.message.startswith(f"no pod of namespace default has app=web; {closest}")
    assert problem.remedy.startswith(
        f"if the selector is wrong, write {create} in the file and run kubectl replace --force -f FILE, "
        "as the selector of a marker cannot be changed; otherwise label the pod template as the selector requires; "
    )


HELD = marker(deleting=True, finalizers=["kruise.io/node-pod-probe-cleanup"])
FOREIGN = marker(deleting=True, finalizers=["example.com/audit"])
HOST = marker(probes=[probe_wire(handler={"tcpSocket": {"port": 1, "host": "elsewhere"}})])


def with_condition(kind: str, status: str, reason: str, message: str) -> Json:
    said = condition_wire(kind, status, reason=reason, message=message)
    return marker(status={"observedGeneration": 1, "conditions": [said]})


CROWDED = with_condition("Degraded", "True", "NoRoom", "their node is full: node-1 (1 pods).")
BEHIND = with_condition("Synced", "False", "NodesBehind", "1 node is behind")


PROBLEMS = {
    "typo-in-a-gate-and-a-gate-of-others": (
        {"pods": [healthy_pod(readiness_gates=["example.com/helathy", "balancer.example.com/in"])]},
        "broken readiness gate GateUnwritten web-0 node-1", "example.com/helathy is missing on the pod",
    ),
    "invalid-field-once-for-all-pods": (
        {"markers": [HOST], "pods": [healthy_pod("a"), healthy_pod("b")]},
        "broken marker InvalidSpec  ", "spec.probes[0].probe.tcpSocket.host",
    ),
    "deletion": ({"markers": [HELD]}, "waiting marker MarkerDeleting  ", "check that a manager runs"),
    "finalizer": ({"markers": [HELD], "pods": []}, "waiting marker MarkerDeleting  ", "kruise.io/node-pod-probe-cleanup"),
    "foreign-finalizer": ({"markers": [FOREIGN], "pods": []}, "waiting marker MarkerHeld  ", ": example.com/audit; "),
    "its-remedy": ({"markers": [FOREIGN]}, "waiting marker MarkerHeld  ", "component that added it"),
    "no-room": ({"markers": [CROWDED]}, "broken marker NoRoom  ", "full: node-1 (1 pods).; use fewer probes"),
    "no-room-once": ({"markers": [CROWDED], "planned": False}, "broken NodePodProbe NoRoom web-0 node-1", "full: node-1"),
    "behind": ({"markers": [BEHIND], "forbidden": ["nodepodprobes"]}, "broken marker NodesBehind  ", "1 node is behind"),
}  # fmt: skip


@cases("there problem says", **PROBLEMS)
def test_problem_is_reported_once_with_its_cause(there: Json, problem: str, says: str) -> None:
    view = only(snapshot(**there))
    (found,) = view.problems
    assert f"{found.severity} {found.link} {found.reason} {found.pod} {found.node}" == problem
    assert says in f"{found.message}; {found.remedy}"


def test_nodes_behind_are_found_in_nodepodprobes_if_readable() -> None:
    assert only(snapshot(markers=[BEHIND])).problems == []


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
    waits = {**off, "message": "waiting for pod web-1 to lose role=primary: 403 no"}
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
    assert [trace.reason for trace in traces] == ["", "", "NotHolder"]


HANDLERS = {
    "exec": ({"exec": {"command": ["sh", "-c", "a b"]}}, "exec sh -c 'a b'"),
    "exec-of-several-lines": ({"exec": {"command": ["sh", "-c", "echo 'ä'\n\\x"]}}, r"exec sh -c $'echo \'ä\'\n\\x'"),
    "http": ({"httpGet": {"port": 80}}, "http-get http://:80/"),
    "https": ({"httpGet": {"port": "web", "path": "/x", "scheme": "HTTPS"}}, "http-get https://:web/x"),
    "tcp": ({"tcpSocket": {"port": "game"}}, "tcp-socket :game"),
    "grpc": ({"grpc": {"port": 9, "service": "shop", "mode": "TLS"}}, "grpc :9 shop TLS"),
    "nothing": ({}, "none"),
}  # fmt: skip


@cases("probe text", **HANDLERS)
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
