"""What `try` runs, what keeps a probe from running, and the marks of its result."""

from typing import Any

import pytest
from support.builders import container_wire, marker_wire, pod_wire, policy_wire, probe_wire
from support.snapshots import NOW, seen_pod, snapshot

from kruise_probe.api.names import PAUSED_ANNOTATION
from kruise_probe.api.v1alpha1 import ContainerProbe, ProbeState
from kruise_probe.controllers.limits import MARKERS_PER_POD
from kruise_probe.inspection.attempts import (
    HOST_NETWORK,
    AttemptsView,
    Trial,
    TrialResult,
    attempts_view,
    blocking_text,
    not_run,
    snapshot_for,
    trials_of,
)
from kruise_probe.inspection.link import Link
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot

Json = dict[str, Any]


def cluster(*markers: Json, pod: SeenPod | None = None) -> tuple[Snapshot, SeenPod]:
    seen = pod or seen_pod(pod_wire("web-0"))
    decoded = snapshot(markers=markers).markers
    return snapshot_for(seen, decoded, allowed_labels=frozenset(), now=NOW), seen


def trials(*markers: Json, pod: SeenPod | None = None) -> list[Trial]:
    there, seen = cluster(*markers, pod=pod)
    return [
        each for marker in there.markers_of(seen.pod) for each in trials_of(there, seen, marker)
    ]


def view(
    *markers: Json, state: ProbeState = ProbeState.SUCCEEDED, pod: SeenPod | None = None
) -> AttemptsView:
    """The view after each probe had this state."""
    there, seen = cluster(*markers, pod=pod)
    results = [
        (each, TrialResult(state, "said", 0.5))
        for marker in there.markers_of(seen.pod)
        for each in trials_of(there, seen, marker)
    ]
    return attempts_view(there, seen, results, ["a note"])


def pod_with(*containers: Json, state: Json | None = None, **more: Any) -> SeenPod:
    states = {"main": state} if state else None
    return seen_pod(
        pod_wire("web-0", containers=list(containers) or None, **more), containers=states
    )


def test_probe_is_the_one_that_the_manager_sends_to_the_node() -> None:
    probe = probe_wire(handler={"httpGet": {"port": "http"}}, timeoutSeconds=7)
    pod = pod_with(container_wire(ports={"http": 8080}))
    (trial,) = trials(marker_wire(probes=[probe]), pod=pod)
    assert isinstance(trial.entry, ContainerProbe)
    assert trial.entry.probe.http_get is not None
    assert (trial.entry.probe.http_get.port, trial.entry.probe.http_get.path) == (8080, "/")
    assert trial.entry.probe.effective_timeout_seconds == 7


@pytest.mark.parametrize(
    "container",
    [
        pytest.param(container_wire(sidecar=True), id="sidecar"),
        pytest.param(container_wire(startup_probe=True), id="startup-probe-has-not-succeeded"),
    ],
)
def test_running_container_is_probed(container: Json) -> None:
    (trial,) = trials(marker_wire(), pod=pod_with(container))
    assert isinstance(trial.entry, ContainerProbe)


HOST = probe_wire(handler={"tcpSocket": {"port": 80, "host": "example.com"}})
NAMED_PORT = probe_wire(handler={"tcpSocket": {"port": "htpt"}})
LARGE = [
    probe_wire(f"p{number}", handler={"exec": {"command": ["x" * 8000]}}) for number in range(9)
]
CRASHED = {"terminated": {"reason": "Error", "exitCode": 1}}


@pytest.mark.parametrize(
    ("marker", "pod", "text"),
    [
        pytest.param(marker_wire(probes=[probe_wire(container="mian")]), pod_with(), "ContainerNotFound: ", id="no-container"),
        pytest.param(marker_wire(), pod_with(state=CRASHED), "ContainerNotRunning: ", id="crashed"),
        pytest.param(marker_wire(probes=[HOST]), pod_with(), "InvalidSpec: ", id="host-is-set"),
        pytest.param(
            marker_wire(probes=[NAMED_PORT]), pod_with(container_wire(ports={"http": 80})),
            "PortNameUnknown: container main has no port named htpt, only http. Did you mean 'http'?; give",
            id="unknown-port-name",
        ),
        pytest.param(marker_wire(probes=LARGE), pod_with(), "EntryTooLarge: ", id="too-large"),
        pytest.param(marker_wire(deleting=True, finalizers=["x"]), pod_with(), "MarkerDeleting: ", id="deleted"),
        pytest.param(marker_wire(), pod_with(phase="Succeeded"), "PodFinished: ", id="finished"),
        pytest.param(marker_wire(), pod_with(node=""), "PodNotScheduled: ", id="not-scheduled"),
    ],
)  # fmt: skip
def test_a_blocked_probe_has_the_broken_link_of_explain(
    marker: Json, pod: SeenPod, text: str
) -> None:
    first, *_ = trials(marker, pod=pod)
    assert isinstance(first.entry, Link)
    assert blocking_text(first.entry).startswith(text)


def test_init_container_is_not_probed() -> None:
    wire = pod_wire("web-0")
    wire["spec"]["initContainers"] = [{"name": "init"}]
    (trial,) = trials(marker_wire(probes=[probe_wire(container="init")]), pod=seen_pod(wire))
    assert isinstance(trial.entry, Link)
    assert trial.entry.reason == "ContainerNotProbed"


def test_marker_beyond_the_limit_of_a_pod_is_left_out() -> None:
    markers = [marker_wire(f"m{number:03}") for number in range(MARKERS_PER_POD + 1)]
    *_, last = trials(*markers)
    assert isinstance(last.entry, Link)
    assert last.entry.reason == "TooManyMarkers"


POLICIES = [
    policy_wire("Succeeded", labels={"idle": "true"}, annotations={"example.com/cost": "-5"}),
    policy_wire("Failed", labels={"busy": "true"}),
]


@pytest.mark.parametrize(
    ("state", "labels", "annotations", "condition"),
    [
        (ProbeState.SUCCEEDED, {"idle": "true", "busy": None}, {"example.com/cost": "-5"}, "True"),
        (ProbeState.FAILED, {"busy": "true"}, {}, "False"),
        (ProbeState.UNKNOWN, {}, {}, "Unknown"),
    ],
)
def test_marks_are_those_that_the_manager_writes(
    state: ProbeState, labels: Json, annotations: Json, condition: str
) -> None:
    pod = pod_with(labels={"app": "web", "busy": "true"})
    (attempt,) = view(
        marker_wire(probes=[probe_wire(policies=POLICIES)]), state=state, pod=pod
    ).attempts
    assert (attempt.labels, attempt.annotations) == (labels, annotations)
    assert (attempt.pod_condition_type, attempt.condition_status) == (
        "example.com/healthy",
        condition,
    )


def test_probe_that_could_not_run_from_here_has_no_marks() -> None:
    there, seen = cluster(marker_wire(probes=[probe_wire(policies=POLICIES)]))
    (marker,) = there.markers_of(seen.pod)
    (trial,) = trials_of(there, seen, marker)
    (attempt,) = attempts_view(there, seen, [(trial, not_run("Forbidden: no"))], []).attempts
    assert (attempt.state, attempt.message) == ("Unknown", "Forbidden: no")
    assert (attempt.pod_condition_type, attempt.labels, attempt.annotations) == ("", {}, {})


def test_probe_that_could_not_run_from_here_has_no_note_on_its_values() -> None:
    """The daemon may still have a result, with a message of its own."""
    values = [{"label": "players", "regex": "[0-9]+"}]
    policy = policy_wire("Unknown", from_message=values)
    there, seen = cluster(marker_wire(probes=[probe_wire(policies=[policy])]))
    (marker,) = there.markers_of(seen.pod)
    (trial,) = trials_of(there, seen, marker)
    assert attempts_view(there, seen, [(trial, not_run("Forbidden: no"))], []).notes == []


def test_marks_that_the_pod_already_has_are_shown_too() -> None:
    pod = pod_with(labels={"app": "web", "idle": "true"})
    (attempt,) = view(marker_wire(probes=[probe_wire(policies=POLICIES)]), pod=pod).attempts
    assert attempt.labels == {"idle": "true"}


def test_mark_of_another_probe_is_a_note_and_not_a_mark() -> None:
    first = marker_wire("a", probes=[probe_wire(policies=POLICIES[:1])])
    second = marker_wire("b", probes=[probe_wire("other", policies=POLICIES[:1])])
    found = view(first, second)
    assert found.attempts[1].labels == {}
    assert found.attempts[1].pod_condition_type == ""
    assert "label 'idle' of probe 'other' belongs to probe 'healthy'" in " ".join(found.notes)


def test_value_is_extracted_from_the_message() -> None:
    policy = policy_wire(from_message=[{"label": "players", "regex": "([0-9]+) players"}])
    there, seen = cluster(marker_wire(probes=[probe_wire(policies=[policy])]))
    (marker,) = there.markers_of(seen.pod)
    (trial,) = trials_of(there, seen, marker)
    result = TrialResult(ProbeState.SUCCEEDED, "3 players, map forest")
    (attempt,) = attempts_view(there, seen, [(trial, result)], []).attempts
    assert attempt.labels == {"players": "3"}


def test_value_without_a_pattern_is_the_first_line() -> None:
    policy = policy_wire(from_message=[{"label": "players"}])
    there, seen = cluster(marker_wire(probes=[probe_wire(policies=[policy])]))
    (marker,) = there.markers_of(seen.pod)
    (trial,) = trials_of(there, seen, marker)
    result = TrialResult(ProbeState.SUCCEEDED, "3\nmap forest")
    (attempt,) = attempts_view(there, seen, [(trial, result)], []).attempts
    assert attempt.labels == {"players": "3"}


def test_policy_for_unknown_applies_to_an_attempt_without_a_result() -> None:
    policy = policy_wire("Unknown", labels={"role": "unknown"})
    (attempt,) = view(
        marker_wire(probes=[probe_wire(policies=[policy])]), state=ProbeState.UNKNOWN
    ).attempts
    assert attempt.labels == {"role": "unknown"}


@pytest.mark.parametrize(
    ("state", "message", "note"),
    [
        pytest.param(
            ProbeState.SUCCEEDED,
            "starting",
            "web#healthy: label players is removed: regex '[0-9]+' finds no valid value in the message \"starting\"",
            id="no-value",
        ),
        pytest.param(
            ProbeState.FAILED,
            "sh: pgrep: not found",
            "web#healthy: usually exit code 127: the program is not in the container's image",
            id="no-program",
        ),
    ],
)
def test_try_has_notes_on_values_and_programs_that_are_missing(
    state: ProbeState, message: str, note: str
) -> None:
    policy = policy_wire(from_message=[{"label": "players", "regex": "[0-9]+"}])
    there, seen = cluster(marker_wire(probes=[probe_wire(policies=[policy])]))
    (marker,) = there.markers_of(seen.pod)
    (trial,) = trials_of(there, seen, marker)
    found = attempts_view(there, seen, [(trial, TrialResult(state, message))], [])
    assert found.notes == [note]


PAUSED = {PAUSED_ANNOTATION: "true"}


def test_paused_marker_is_tried_with_a_note_and_without_marks() -> None:
    wire = marker_wire()
    wire["metadata"]["annotations"] = PAUSED
    found = view(wire)
    assert "PodProbeMarker default/web has the annotation" in found.notes[1]
    assert found.attempts[0].pod_condition_type == ""


def test_paused_pod_is_tried_with_a_note_and_without_marks() -> None:
    found = view(marker_wire(), pod=pod_with(annotations=PAUSED))
    assert "the pod has the annotation" in found.notes[1]
    assert found.attempts[0].pod_condition_type == ""


def test_host_network_is_a_note() -> None:
    wire = pod_wire("web-0")
    wire["spec"]["hostNetwork"] = True
    assert view(marker_wire(), pod=seen_pod(wire)).notes == ["a note", HOST_NETWORK]


@pytest.mark.parametrize("state", ProbeState)
def test_view_has_succeeded_only_if_every_probe_has(state: ProbeState) -> None:
    assert view(marker_wire(), state=state).succeeded == (state is ProbeState.SUCCEEDED)
