"""What `try` runs, what keeps a probe from running, and the marks of its result."""

from typing import Any

from support.builders import container_wire, marker_wire, pod_wire, policy_wire, probe_wire
from support.cases import cases
from support.snapshots import NOW, seen_pod, snapshot
from support.wire import Json

from kruise_probe.api.names import PAUSED_ANNOTATION
from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.inspection.attempts import (
    HOST_NETWORK,
    AttemptsView,
    TrialResult,
    attempts_view,
    blocking_link,
    not_run,
)
from kruise_probe.inspection.link import Link, ProbeContext
from kruise_probe.inspection.result_links import NOTHING_LISTENS
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import contexts_of


def cluster(*markers: Json, pod: SeenPod | None = None) -> tuple[Snapshot, SeenPod]:
    seen = pod or seen_pod(pod_wire("web-0"))
    decoded = snapshot(markers=markers).markers
    return Snapshot(now=NOW, markers=decoded, pods=(seen,)), seen


def contexts(*markers: Json, pod: SeenPod | None = None) -> list[ProbeContext]:
    there, seen = cluster(*markers, pod=pod)
    return [
        each
        for marker in there.matching.markers_of(seen)
        for each in contexts_of(there, seen, marker)
    ]


def entries(*markers: Json, pod: SeenPod | None = None) -> list[ContainerProbe | Link]:
    """Of each probe what blocks it, or the probe as `try` runs it."""
    return [
        blocking_link(each) or each.planned(frozenset(one.name for one in each.pod.containers))
        for each in contexts(*markers, pod=pod)
    ]


SAID = TrialResult(ProbeState.SUCCEEDED, "said")


def view(*markers: Json, pod: SeenPod | None = None, result: TrialResult = SAID) -> AttemptsView:
    """The view after each probe had this result."""
    there, seen = cluster(*markers, pod=pod)
    results = [(each, result) for each in contexts(*markers, pod=pod)]
    return attempts_view(there, seen, results, ["a note"])


def with_policies(*policies: Json) -> Json:
    return marker_wire(probes=[probe_wire(policies=policies)])


def pod_with(*containers: Json, state: Json | None = None, **more: Any) -> SeenPod:
    states = {"main": state} if state else None
    wire = pod_wire("web-0", containers=list(containers) or None, **more)
    return seen_pod(wire, containers=states)


def test_probe_is_the_one_that_the_manager_sends_to_the_node() -> None:
    probe = probe_wire(handler={"httpGet": {"port": "http"}}, timeoutSeconds=7)
    pod = pod_with(container_wire(ports={"http": 8080}))
    (entry,) = entries(marker_wire(probes=[probe]), pod=pod)
    assert isinstance(entry, ContainerProbe)
    assert entry.probe.http_get is not None
    assert (entry.probe.http_get.port, entry.probe.http_get.path) == (8080, "/")
    assert entry.probe.effective_timeout_seconds == 7


@cases(
    "container",
    sidecar=container_wire(sidecar=True),
    startup_probe_has_not_succeeded=container_wire(startup_probe=True),
)
def test_running_container_is_probed(container: Json) -> None:
    (entry,) = entries(marker_wire(), pod=pod_with(container))
    assert isinstance(entry, ContainerProbe)


HOST = probe_wire(handler={"tcpSocket": {"port": 80, "host": "example.com"}})
NAMED_PORT = probe_wire(handler={"tcpSocket": {"port": "htpt"}})
LARGE = [
    probe_wire(f"p{number}", handler={"exec": {"command": ["x" * 8000]}}) for number in range(9)
]
CRASHED = {"terminated": {"reason": "Error", "exitCode": 1}}


BLOCKED = {
    "crashed": (marker_wire(), pod_with(state=CRASHED), "ContainerNotRunning: "),
    "host-is-set": (marker_wire(probes=[HOST]), pod_with(), "InvalidSpec: "),
    "unknown-port-name": (
        marker_wire(probes=[NAMED_PORT]),
        pod_with(container_wire(ports={"http": 80})), "PortNameUnknown: ",
    ),
    "too-large": (marker_wire(probes=LARGE), pod_with(), "EntryTooLarge: "),
    "deleted": (marker_wire(deleting=True, finalizers=["x"]), pod_with(), "MarkerHeld: PodProbeMarker default/web is being deleted; finalizers that block it: x"),
    "not-scheduled": (marker_wire(), pod_with(node=""), "PodNotScheduled: "),
}  # fmt: skip


@cases("marker pod text", **BLOCKED)
def test_a_blocked_probe_has_the_broken_link_of_explain(
    marker: Json, pod: SeenPod, text: str
) -> None:
    first, *_ = entries(marker, pod=pod)
    assert isinstance(first, Link)
    assert f"{first.reason}: {first.text}; {first.remedy}".startswith(text)


POLICIES = [
    policy_wire("Succeeded", labels={"idle": "true"}, annotations={"example.com/cost": "-5"}),
    policy_wire("Failed", labels={"busy": "true"}),
]


PLAYERS = policy_wire(from_message=[{"label": "players", "regex": "([0-9]+) players"}])
FIRST_LINE = policy_wire(from_message=[{"label": "players"}])
ROLE = policy_wire("Unknown", labels={"role": "unknown"})
COST = {"example.com/cost": "-5"}


@cases(
    "policies state message labels annotations",
    succeeded=(POLICIES, "Succeeded", "", {"idle": "true", "busy": None}, COST),
    failed_as_the_pod_has_it=(POLICIES, "Failed", "", {"busy": "true"}, {}),
    unknown=(POLICIES, "Unknown", "", {}, {}),
    policy_for_unknown=([ROLE], "Unknown", "", {"role": "unknown"}, {}),
    value=([PLAYERS], "Succeeded", "3 players, map forest", {"players": "3"}, {}),
    first_line=([FIRST_LINE], "Succeeded", "3\nmap forest", {"players": "3"}, {}),
)
def test_marks_are_those_that_the_manager_writes(
    policies: list[Json], state: str, message: str, labels: Json, annotations: Json
) -> None:
    pod = pod_with(labels={"app": "web", "busy": "true"})
    marker = with_policies(*policies)
    (attempt,) = view(marker, pod=pod, result=TrialResult(ProbeState(state), message)).attempts
    condition = {"Succeeded": "True", "Failed": "False"}.get(state, "Unknown")
    assert (attempt.labels, attempt.annotations) == (labels, annotations)
    written = (attempt.pod_condition_type, attempt.condition_status)
    assert written == ("example.com/healthy", condition)


def test_probe_that_could_not_run_from_here_has_no_marks_and_no_note_on_its_values() -> None:
    """The daemon may still have a result, with a message of its own."""
    policy = policy_wire("Unknown", {"a": "b"}, from_message=[{"label": "n", "regex": "[0-9]+"}])
    found = view(with_policies(policy), result=not_run("Forbidden"))
    (attempt,) = found.attempts
    assert (attempt.state, attempt.message) == ("Unknown", "Forbidden")
    assert (attempt.pod_condition_type, attempt.labels, attempt.annotations) == ("", {}, {})
    assert found.notes == ["a note"]


@cases(
    "state message note remedy",
    no_value=(ProbeState.SUCCEEDED, "starting", "label players is not set: ", "correct regex in"),
    no_program=(ProbeState.FAILED, "sh: pgrep: not found", "", "the container has no such program"),
    no_start=(ProbeState.UNKNOWN, "ExecImpossible: exec format error", "", "begin the script with"),
)
def test_attempt_has_its_own_notes_and_its_remedy(
    state: ProbeState, message: str, note: str, remedy: str
) -> None:
    found = view(with_policies(PLAYERS), result=TrialResult(state, message))
    (attempt,) = found.attempts
    assert found.notes == ["a note"]
    assert "".join(attempt.notes).startswith(note)
    assert attempt.remedy.startswith(remedy)


def test_try_shows_the_stderr_of_a_command_that_succeeded() -> None:
    result = TrialResult(ProbeState.SUCCEEDED, "0", stderr="sh: 1: pgrep: not found\nbye")
    (attempt,) = view(with_policies(), result=result).attempts
    text = "the command succeeded, but stderr is not empty: sh: 1: pgrep: not found bye"
    assert attempt.notes == [text]
    assert attempt.remedy.startswith("the container has no such program")


def test_durations_are_rounded_to_milliseconds() -> None:
    result = TrialResult(ProbeState.SUCCEEDED, "0", 0.007687795000038022)
    (attempt,) = view(with_policies(), result=result).attempts
    assert attempt.duration_seconds == 0.008


PAUSED = {PAUSED_ANNOTATION: "true"}


@cases(
    "of_marker of_pod what",
    marker=(PAUSED, None, "PodProbeMarker default/web"),
    pod=(None, PAUSED, "the pod"),
    both=(PAUSED, PAUSED, "the pod"),
)
def test_paused_probe_is_tried_with_a_note_and_without_marks(
    of_marker: Json | None, of_pod: Json | None, what: str
) -> None:
    found = view(marker_wire(annotations=of_marker), pod=pod_with(annotations=of_pod))
    assert [each.partition(" has the annotation")[0] for each in found.notes] == ["a note", what]
    assert found.attempts[0].pod_condition_type == ""


def test_host_network_is_a_note_and_a_port_that_refuses_has_a_remedy() -> None:
    wire = pod_wire("web-0")
    wire["spec"]["hostNetwork"] = True
    marker = marker_wire(probes=[probe_wire(handler={"tcpSocket": {"port": 80}})])
    refused = TrialResult(ProbeState.FAILED, "connect: connection refused")
    found = view(marker, pod=seen_pod(wire), result=refused)
    assert found.notes == ["a note", HOST_NETWORK]
    assert found.attempts[0].remedy == NOTHING_LISTENS
