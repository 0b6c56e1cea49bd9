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

POD = seen_pod(pod_wire())
SAID = TrialResult(ProbeState.SUCCEEDED, "said")


def cluster(marker: Json, pod: SeenPod) -> Snapshot:
    markers = snapshot(markers=[marker]).markers
    return Snapshot(now=NOW, markers=markers, pods=(pod,))


def contexts(there: Snapshot) -> list[ProbeContext]:
    (pod,) = there.pods
    (marker,) = there.matching.markers_of(pod)
    return contexts_of(there, pod, marker)


def entry(marker: Json, pod: SeenPod) -> ContainerProbe | Link:
    """The link that blocks the first probe, or the probe as `try` runs it."""
    first, *_ = contexts(cluster(marker, pod))
    names = frozenset(container.name for container in pod.containers)
    return blocking_link(first) or first.planned(names)


def view(marker: Json, *, pod: SeenPod = POD, result: TrialResult = SAID) -> AttemptsView:
    """The view after each probe had this result."""
    there = cluster(marker, pod)
    results = [(context, result) for context in contexts(there)]
    return attempts_view(there, pod, results, ["a note"])


def with_policies(*policies: Json) -> Json:
    return marker_wire(probes=[probe_wire(policies=policies)])


def pod_with(*containers: Json, **more: Any) -> SeenPod:
    return seen_pod(pod_wire(containers=list(containers) or None, **more))


def test_probe_is_the_one_that_the_manager_sends_to_the_node() -> None:
    probe = probe_wire(handler={"httpGet": {"port": "http"}}, timeoutSeconds=7)
    pod = pod_with(container_wire(ports={"http": 8080}))

    found = entry(marker_wire(probes=[probe]), pod)

    assert isinstance(found, ContainerProbe)
    action = found.probe.http_get
    assert action is not None
    assert action.port == 8080
    assert action.path == "/"
    assert found.probe.effective_timeout_seconds == 7


@cases(
    "container",
    sidecar=container_wire(sidecar=True),
    startup_probe_has_not_succeeded=container_wire(startup_probe=True),
)
def test_running_container_is_probed(container: Json) -> None:
    assert isinstance(entry(marker_wire(), pod_with(container)), ContainerProbe)


HOST = probe_wire(handler={"tcpSocket": {"port": 80, "host": "example.com"}})
NAMED_PORT = probe_wire(handler={"tcpSocket": {"port": "htpt"}})
LARGE_COMMAND = {"exec": {"command": ["x" * 8000]}}
LARGE = [probe_wire(f"p{number}", handler=LARGE_COMMAND) for number in range(9)]
CRASHED = {"terminated": {"reason": "Error", "exitCode": 1}}
HELD = marker_wire(deleting=True, finalizers=["x"])


@cases(
    "marker pod text",
    crashed=(
        marker_wire(),
        seen_pod(pod_wire(), containers={"main": CRASHED}),
        "ContainerNotRunning: ",
    ),
    host_is_set=(marker_wire(probes=[HOST]), POD, "InvalidSpec: "),
    unknown_port_name=(
        marker_wire(probes=[NAMED_PORT]),
        pod_with(container_wire(ports={"http": 80})),
        "PortNameUnknown: ",
    ),
    too_large=(marker_wire(probes=LARGE), POD, "EntryTooLarge: "),
    deleted=(
        HELD,
        POD,
        "MarkerHeld: PodProbeMarker default/web is being deleted; finalizers that block it: x",
    ),
    not_scheduled=(marker_wire(), pod_with(node=""), "PodNotScheduled: "),
)
def test_a_blocked_probe_has_the_broken_link_of_explain(
    marker: Json, pod: SeenPod, text: str
) -> None:
    found = entry(marker, pod)
    assert isinstance(found, Link)
    assert f"{found.reason}: {found.text}; {found.remedy}".startswith(text)


BUSY = {"busy": "true"}
IDLE = {"idle": "true"}
COST = {"example.com/cost": "-5"}
POLICIES = [
    policy_wire("Succeeded", labels=IDLE, annotations=COST),
    policy_wire("Failed", labels=BUSY),
]
PLAYERS = policy_wire(from_message=[{"label": "players", "regex": "([0-9]+) players"}])
FIRST_LINE = policy_wire(from_message=[{"label": "players"}])
ROLE = policy_wire("Unknown", labels={"role": "unknown"})


@cases(
    "policies state message labels annotations",
    succeeded=(POLICIES, "Succeeded", "", {**IDLE, "busy": None}, COST),
    failed_as_the_pod_has_it=(POLICIES, "Failed", "", BUSY, {}),
    unknown=(POLICIES, "Unknown", "", {}, {}),
    policy_for_unknown=([ROLE], "Unknown", "", {"role": "unknown"}, {}),
    value=([PLAYERS], "Succeeded", "3 players, map forest", {"players": "3"}, {}),
    first_line=([FIRST_LINE], "Succeeded", "3\nmap forest", {"players": "3"}, {}),
)
def test_marks_are_those_that_the_manager_writes(
    policies: list[Json], state: str, message: str, labels: Json, annotations: Json
) -> None:
    pod = pod_with(labels={"app": "web", **BUSY})
    result = TrialResult(ProbeState(state), message)

    (attempt,) = view(with_policies(*policies), pod=pod, result=result).attempts

    assert attempt.labels == labels
    assert attempt.annotations == annotations
    assert attempt.pod_condition_type == "example.com/healthy"
    statuses = {"Succeeded": "True", "Failed": "False"}
    assert attempt.condition_status == statuses.get(state, "Unknown")


def test_probe_that_could_not_run_from_here_has_no_marks_and_no_note_on_its_values() -> None:
    """The daemon may still have a result, with a message of its own."""
    value = {"label": "n", "regex": "[0-9]+"}
    policy = policy_wire("Unknown", {"a": "b"}, from_message=[value])

    found = view(with_policies(policy), result=not_run("Forbidden"))

    assert found.notes == ["a note"]
    (attempt,) = found.attempts
    assert attempt.state == "Unknown"
    assert attempt.message == "Forbidden"
    assert attempt.pod_condition_type == ""
    assert attempt.labels == {}
    assert attempt.annotations == {}


@cases(
    "state message note remedy",
    no_value=(
        ProbeState.SUCCEEDED,
        "starting",
        "label players is not set: ",
        "correct regex in",
    ),
    no_program=(
        ProbeState.FAILED,
        "sh: pgrep: not found",
        "",
        "the container has no such program",
    ),
    no_start=(
        ProbeState.UNKNOWN,
        "ExecImpossible: exec format error",
        "",
        "begin the script with",
    ),
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
    pod = pod_with(annotations=of_pod)
    found = view(marker_wire(annotations=of_marker), pod=pod)
    first, second = found.notes
    assert first == "a note"
    assert second.startswith(f"{what} has the annotation")
    assert found.attempts[0].pod_condition_type == ""


def test_host_network_is_a_note_and_a_port_that_refuses_has_a_remedy() -> None:
    wire = pod_wire()
    wire["spec"]["hostNetwork"] = True
    probe = probe_wire(handler={"tcpSocket": {"port": 80}})
    refused = TrialResult(ProbeState.FAILED, "connect: connection refused")

    found = view(marker_wire(probes=[probe]), pod=seen_pod(wire), result=refused)

    assert found.notes == ["a note", HOST_NETWORK]
    assert found.attempts[0].remedy == NOTHING_LISTENS
