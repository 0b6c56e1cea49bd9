"""The first broken or waiting link of a trace. Whole commands are tested in test/integration/usage."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.builders import (
    condition_wire,
    container_wire,
    entry_of,
    node_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.snapshots import healthy_pod, marker, seen_pod, snapshot

from kruise_probe.api.core import ExecAction, Probe
from kruise_probe.inspection.link import Link, LinkState
from kruise_probe.inspection.result_links import SHOWN_MESSAGE
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import traces_of

Json = dict[str, Any]

OLD = "2026-01-01T00:00:00.000000Z"
LARGEST: Json = {"periodSeconds": 2**31 - 1, "failureThreshold": 2**31 - 1}
EARLY = datetime(2026, 1, 1, 0, 0, 15, tzinfo=UTC)
VIRTUAL = node_wire(labels={"type": "virtual-kubelet"})
PROTOCOL = {"kruise.io/podprobe": json.dumps([probe_wire()])}


def end_of(there: Snapshot, *, pod: int = 0, of: str = "web") -> Link | None:
    compiled = next(each for each in there.compiled.values() if each.key.name == of)
    (trace,) = traces_of(there, there.pods[pod], compiled)
    return trace.end


def test_working_probe_has_no_broken_link() -> None:
    assert end_of(snapshot(markers=[marker()], pods=[healthy_pod()])) is None


def test_each_probe_of_a_marker_is_compared_with_its_own_entry() -> None:
    probes = [probe_wire(), probe_wire("second", condition="x.com/b", periodSeconds=7)]
    conditions = [condition_wire("example.com/healthy"), condition_wire("x.com/b")]
    there = snapshot(
        markers=[marker(probes=probes)],
        pods=[healthy_pod(conditions=conditions)],
        states=[state_wire(), state_wire("web#second")],
    )
    (compiled,) = there.compiled.values()
    assert [each.end for each in traces_of(there, there.pods[0], compiled)] == [None, None]


@pytest.mark.parametrize(
    ("pods", "link", "reason"),
    [
        pytest.param({"deleting": True}, "pod", "PodTerminating", id="terminating"),
        pytest.param({"phase": "Failed"}, "pod", "PodFinished", id="finished"),
        pytest.param({"node": ""}, "pod", "PodNotScheduled", id="no-node"),
        pytest.param({"node": "gone"}, "pod", "NodeNotFound", id="node-gone"),
        pytest.param({"initialized": False}, "pod", "PodNotStarted", id="not-started"),
        pytest.param(
            {"initialized": False, "init_containers": [container_wire("init")]},
            "pod",
            "PodNotInitialized",
            id="not-initialised",
        ),
        pytest.param(
            {"annotations": {"kubernetes.io/config.mirror": "x"}}, "pod", "StaticPod", id="static"
        ),
        pytest.param(
            {"containers": [container_wire("other")]},
            "container",
            "ContainerNotFound",
            id="no-such",
        ),
        pytest.param(
            {
                "containers": [container_wire("other")],
                "init_containers": [container_wire("main")],
            },
            "container",
            "ContainerNotProbed",
            id="an-init-container",
        ),
        pytest.param(
            {"containers": [container_wire(startup_probe=True)]},
            "container",
            "ContainerNotStarted",
            id="startup-probe",
        ),
    ],
)
def test_problems_of_the_pod_come_first(pods: Json, link: str, reason: str) -> None:
    found = end_of(snapshot(markers=[marker()], pods=[healthy_pod(**pods)], renewed=None))
    assert found is not None
    assert (found.name, found.reason) == (link, reason)
    assert found.remedy


@pytest.mark.parametrize(
    ("there", "link", "reason", "says"),
    [
        pytest.param(
            {"planned": False}, "NodePodProbe", "EntryMissing", "does not contain", id="no-entry"
        ),
        pytest.param(
            {"planned": False, "markers": [marker(generation=2)]},
            "NodePodProbe",
            "EntryMissing",
            "processed generation 1 of the marker, the newest is 2",
            id="the-manager-is-behind",
        ),
        pytest.param(
            {"renewed": None, "states": []}, "daemon", "NoDaemon", "no daemon runs", id="no-daemon"
        ),
        pytest.param(
            {"renewed": OLD, "states": []},
            "daemon",
            "ProbeDaemonStale",
            "has not renewed its Lease since",
            id="silent",
        ),
        pytest.param(
            {"states": [], "now": EARLY}, "result", "NoResultYet", "within 26 s", id="no-result"
        ),
        pytest.param(
            {"states": []}, "result", "ResultOverdue", "No result 91 s after", id="overdue"
        ),
        pytest.param(
            {
                "states": [],
                "markers": [marker(probes=[probe_wire(**LARGEST)])],
            },
            "result",
            "NoResultYet",
            "within 2147483",
            id="largest-numbers",
        ),
        pytest.param(
            {"states": [], "forbidden": ["leases"]},
            "result",
            "ResultOverdue",
            "No result",
            id="leases-forbidden",
        ),
        pytest.param(
            {"states": [state_wire(state="Unknown", message="ExecImpossible: no such file")]},
            "result",
            "ExecImpossible",
            "no such file",
            id="unknown-with-a-reason",
        ),
        pytest.param(
            {"states": [state_wire(state="Unknown", message="ExecQueued: no place to run")]},
            "result",
            "ExecQueued",
            "no place to run",
            id="exec-queued",
        ),
        pytest.param(
            {"states": [state_wire(state="Unknown")]},
            "result",
            "Unknown",
            "no reason",
            id="unknown",
        ),
        pytest.param(
            {"states": [state_wire(state="Failed")]},
            "condition",
            "ConditionBehind",
            "is True, but the result is Failed",
            id="condition-behind",
        ),
    ],
)
def test_trace_ends_at_the_first_broken_link(
    there: Json, link: str, reason: str, says: str
) -> None:
    there = {"markers": [marker()], "pods": [healthy_pod()], **there}
    found = end_of(snapshot(**there))
    assert found is not None
    assert (found.name, found.reason) == (link, reason)
    assert says in found.text


@pytest.mark.parametrize(
    ("message", "reason", "state"),
    [
        pytest.param("ExecQueued: full", "ExecQueued", LinkState.BROKEN, id="first-word"),
        pytest.param("exec failed: full", "Unknown", LinkState.BROKEN, id="several-words"),
        pytest.param("full", "Unknown", LinkState.BROKEN, id="no-colon"),
        pytest.param(": full", "Unknown", LinkState.BROKEN, id="nothing-before-the-colon"),
        pytest.param(
            "ContainerRestarted: no result yet",
            "ContainerRestarted",
            LinkState.WAITING,
            id="ends-by-itself",
        ),
    ],
)
def test_unknown_result_has_the_cause_that_its_message_starts_with(
    message: str, reason: str, state: LinkState
) -> None:
    states = [state_wire(state="Unknown", message=message)]
    found = end_of(snapshot(markers=[marker()], pods=[healthy_pod()], states=states))
    assert found is not None
    assert (found.name, found.reason, found.state) == ("result", reason, state)
    assert found.text == f"Unknown: {message}"


@pytest.mark.parametrize("handler", [{"exec": {"command": ["check"]}}, {"tcpSocket": {"port": 80}}])
@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
def test_only_a_failed_command_has_a_note_on_its_program(handler: Json, state: str) -> None:
    conditions = [condition_wire("example.com/healthy", {"Succeeded": "True"}.get(state, "False"))]
    there = snapshot(
        markers=[marker(probes=[probe_wire(handler=handler)])],
        pods=[healthy_pod(conditions=conditions)],
        states=[state_wire(state=state, message="sh: pgrep: not found")],
    )
    (compiled,) = there.compiled.values()
    (trace,) = traces_of(there, there.pods[0], compiled)
    (text,) = [each.text for each in trace.links if each.name == "result"]
    assert ("(usually exit code" in text) == ("exec" in handler and state == "Failed")


@pytest.mark.parametrize(
    ("probes", "links"),
    [
        pytest.param(
            [probe_wire(condition="Ready")],
            [("condition", "InvalidSpec")],
            id="kubelet-s-condition",
        ),
        pytest.param(
            [probe_wire(), probe_wire(condition="x.com/b")],
            [None, ("marker", "InvalidSpec")],
            id="a-name-twice",
        ),
    ],
)
def test_invalid_probe_is_reported_as_invalid(
    probes: list[Json], links: list[tuple[str, str] | None]
) -> None:
    """Kruise's CRD accepts such markers."""
    there = snapshot(markers=[marker(probes=probes)], pods=[healthy_pod()])
    (compiled,) = there.compiled.values()
    ends = [trace.end for trace in traces_of(there, there.pods[0], compiled)]
    assert [end and (end.name, end.reason) for end in ends] == links


def test_daemon_without_a_lease_that_reports_is_running() -> None:
    """Kruise's daemon has no Lease."""
    assert end_of(snapshot(markers=[marker()], pods=[healthy_pod()], renewed=None)) is None


def test_forbidden_objects_break_no_link() -> None:
    there = snapshot(
        markers=[marker()],
        pods=[healthy_pod()],
        forbidden=("nodes", "nodepodprobes", "leases"),
        renewed=None,
    )
    assert end_of(there) is None


def test_new_result_is_waiting_not_broken() -> None:
    young = state_wire(state="Failed", moved="2026-01-01T00:01:28Z")
    found = end_of(snapshot(markers=[marker()], pods=[healthy_pod()], states=[young]))
    assert found is not None
    assert (found.state, found.reason) == (LinkState.WAITING, "ResultNew")


@pytest.mark.parametrize(
    ("labels", "ends"),
    [
        pytest.param({"good": "yes"}, None, id="as-it-should-be"),
        pytest.param({}, "label good should be yes, but is absent", id="not-there"),
        pytest.param({"good": "no"}, "label good should be yes, but is no", id="another-value"),
        pytest.param(
            {"good": "yes", "bad": "yes"},
            "label bad should be absent, but is yes",
            id="the-other-state",
        ),
    ],
)
def test_marks_must_be_those_of_the_newest_state(labels: dict[str, str], ends: str | None) -> None:
    policies = [policy_wire("Succeeded", {"good": "yes"}), policy_wire("Failed", {"bad": "yes"})]
    marked = marker(probes=[probe_wire(policies=policies)])
    found = end_of(snapshot(markers=[marked], pods=[healthy_pod(labels={"app": "web", **labels})]))
    assert (found.text if found else None) == ends


VALUE = [policy_wire("Succeeded", {"n": "0"}, from_message=[{"label": "n", "regex": "n=(.*)"}])]


@pytest.mark.parametrize(
    ("message", "probed", "label", "ends"),
    [
        pytest.param("n=1", OLD, "1", None, id="as-it-should-be"),
        pytest.param(
            "n=1",
            OLD,
            "2",
            (LinkState.BROKEN, "MarksBehind", "label n should be 1, but is 2"),
            id="behind",
        ),
        pytest.param(
            "n=1",
            "2026-01-01T00:01:20Z",
            "2",
            (
                LinkState.WAITING,
                "ValueNew",
                "label n should be 1, but is 2; the message is a few seconds old",
            ),
            id="delayed",
        ),
        pytest.param(
            "starting",
            OLD,
            "0",
            (
                LinkState.BROKEN,
                "ValueInvalid",
                "n=0; label n has the static value 0: regex 'n=(.*)' finds no valid value in the message \"starting\"",
            ),
            id="static-value",
        ),
    ],
)
def test_values_must_be_those_of_the_newest_message(
    message: str, probed: str, label: str, ends: object
) -> None:
    marked = marker(probes=[probe_wire(policies=VALUE)])
    result = state_wire(message=message, probed=probed)
    shown = healthy_pod(labels={"app": "web", "n": label})
    found = end_of(snapshot(markers=[marked], pods=[shown], states=[result]))
    assert (found and (found.state, found.reason, found.text)) == ends


@pytest.mark.parametrize(
    ("value", "message", "says"),
    [
        pytest.param(
            {"label": "n", "regex": "n=(.*)"},
            "n=a/b",
            "label n is removed: regex 'n=(.*)' finds no valid value in the message \"n=a/b\"",
            id="invalid-value",
        ),
        pytest.param(
            {"label": "n"},
            "a/b",
            'label n is removed: no valid value in the first line of the message "a/b"',
            id="first-line",
        ),
        pytest.param(
            {"annotation": "n", "regex": "n=.+"},
            "x" * SHOWN_MESSAGE,
            f"annotation n is removed: regex 'n=.+' finds no valid value in the message \"{'x' * SHOWN_MESSAGE}\"",
            id="message-that-is-shown-whole",
        ),
        pytest.param(
            {"annotation": "n", "regex": "n=.+"},
            "x" * 100,
            f"annotation n is removed: regex 'n=.+' finds no valid value in the message \"{'x' * SHOWN_MESSAGE}…\"",
            id="long-message",
        ),
        pytest.param(
            {"annotation": "n", "regex": "n=.+"},
            "x" * 1021,
            f"annotation n is removed: regex 'n=.+' finds no valid value in the message \"{'x' * SHOWN_MESSAGE}…\" (only the first 1,024 bytes of the output are searched)",
            id="message-that-was-cut",
        ),
    ],
)
def test_invalid_value_has_its_pattern_its_message_and_what_happens(
    value: Json, message: str, says: str
) -> None:
    policies = [policy_wire("Succeeded", from_message=[value])]
    marked = marker(probes=[probe_wire(policies=policies)])
    there = snapshot(
        markers=[marked], pods=[healthy_pod()], states=[state_wire(message=message, probed=OLD)]
    )
    found = end_of(there)
    assert found is not None
    assert found.text == says
    assert found.remedy.startswith("print less" if "searched" in says else "correct regex")


@pytest.mark.parametrize(
    ("message", "note"),
    [
        pytest.param("sh: 1: pgrep: not found", "127", id="dash"),
        pytest.param("sh: pgrep: not found", "127", id="busybox"),
        pytest.param("/bin/bash: line 1: pgrep: command not found", "127", id="bash"),
        pytest.param("sh: 1: /check: Permission denied", "126", id="not-executable"),
        pytest.param("sh: 1: cannot create /x: Permission denied", "", id="redirection"),
        pytest.param("key not found", "", id="of-the-application"),
    ],
)
def test_failed_command_that_a_shell_could_not_start_has_a_note(message: str, note: str) -> None:
    pod = healthy_pod(conditions=[condition_wire("example.com/healthy", "False")])
    states = [state_wire(state="Failed", message=message)]
    there = snapshot(markers=[marker()], pods=[pod], states=states)
    (compiled,) = there.compiled.values()
    (trace,) = traces_of(there, there.pods[0], compiled)
    (text,) = [each.text for each in trace.links if each.name == "result"]
    assert (f"(usually exit code {note}: " in text) == bool(note)


@pytest.mark.parametrize(
    ("pod", "link"),
    [
        pytest.param(pod_wire(), ("provider", "NotInjected"), id="no-annotation"),
        pytest.param(
            pod_wire(annotations=PROTOCOL), ("provider", "ProviderSilent"), id="no-condition"
        ),
        pytest.param(healthy_pod(annotations=PROTOCOL), None, id="reported"),
        pytest.param(
            healthy_pod(annotations=PROTOCOL, conditions=[condition_wire("x.com/a")]),
            ("provider", "ProviderSilent"),
            id="another-condition",
        ),
    ],
)
def test_provider_link_replaces_the_daemon_on_virtual_nodes(
    pod: Json, link: tuple[str, str] | None
) -> None:
    found = end_of(snapshot(markers=[marker()], pods=[pod], node=VIRTUAL, renewed=None))
    assert (found and (found.name, found.reason)) == link


def test_provider_cannot_report_a_probe_without_a_condition_type() -> None:
    labels_only = probe_wire(condition=None, policies=[policy_wire(labels={"good": "yes"})])
    pod = healthy_pod(annotations=PROTOCOL)
    there = snapshot(markers=[marker(probes=[labels_only])], pods=[pod], node=VIRTUAL)
    found = end_of(there)
    assert found is not None
    assert (found.name, found.reason) == ("provider", "ConditionTypeMissing")


def test_pod_that_is_not_initialised_lists_the_containers_that_do_not_run() -> None:
    waiting = {"main": {"waiting": {"reason": "PodInitializing"}}}
    for containers, text in (
        (
            waiting,
            "init containers of the pod have not completed; not running: main (PodInitializing)",
        ),
        (None, "init containers of the pod have not completed"),
    ):
        there = healthy_pod(initialized=False, init_containers=[container_wire("init")])
        seen = seen_pod(there, containers=containers)
        found = end_of(snapshot(markers=[marker()], seen=[seen]))
        assert found is not None
        assert found.text == text


def test_pattern_over_the_limit_of_a_pod_is_named() -> None:
    """The patterns of the older marker use it up."""
    older, younger = (
        marker(
            name=name,
            created=created,
            probes=[
                probe_wire(
                    condition=f"example.com/{name}",
                    policies=[policy_wire(from_message=[{"label": name, "regex": ".{1,150}"}])],
                )
            ],
        )
        for name, created in (("a", "2020-01-01T00:00:00Z"), ("web", "2025-01-01T00:00:00Z"))
    )
    pod = healthy_pod(conditions=[condition_wire("example.com/web", "True", message="3 players")])
    states = [state_wire(message="3 players", probed=OLD)]
    found = end_of(snapshot(markers=[older, younger], pods=[pod], states=states))
    assert found is not None
    assert (found.name, found.reason) == ("marks", "ValueInvalid")
    assert found.text == (
        "label web is removed: all patterns of this pod together are too large to search regex '.{1,150}' in \"3 players\""
    )


def test_node_without_any_result_has_no_result() -> None:
    there = snapshot(markers=[marker()], pods=[healthy_pod()])
    assert there.node_pod_probes is not None
    bare = {
        name: msgspec.structs.replace(each, status=None)
        for name, each in there.node_pod_probes.items()
    }
    found = end_of(replace(there, node_pod_probes=bare))
    assert found is not None
    assert (found.name, found.reason) == ("result", "ResultOverdue")


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param("node-1", "NoRoom", id="this-node"),
        pytest.param("other-node-1", "EntryMissing", id="another"),
    ],
)
def test_pod_without_room_is_named_by_its_node(node: str, reason: str) -> None:
    behind = condition_wire("Synced", "False", reason="NodesBehind", message="node-1")
    said = f"Some pods are not probed, as they would exceed 1 MiB: {node} (49 pods). Use fewer."
    crowded = condition_wire("Degraded", "True", reason="NoRoom", message=said)
    status = {"observedGeneration": 1, "conditions": [behind, crowded]}
    there = snapshot(markers=[marker(status=status)], pods=[healthy_pod()], planned=False)
    found = end_of(there)
    assert found is not None
    assert (found.name, found.reason) == ("NodePodProbe", reason)


@pytest.mark.parametrize(
    ("created", "reason", "state"),
    [
        pytest.param("2026-01-01T00:01:28Z", "MarkerNew", LinkState.WAITING, id="seconds-ago"),
        pytest.param("2026-01-01T00:01:00Z", "EntryMissing", LinkState.BROKEN, id="before"),
    ],
)
def test_a_node_without_the_probe_of_a_new_marker_is_waiting(
    created: str, reason: str, state: LinkState
) -> None:
    new = marker(created=created)
    found = end_of(snapshot(markers=[new], pods=[healthy_pod()], planned=False))
    assert found is not None
    assert (found.name, found.reason, found.state) == ("NodePodProbe", reason, state)


def test_entry_of_an_earlier_version_has_room() -> None:
    """The node is full for other pods of the marker."""
    said = "Some pods are not probed, as they would exceed 1 MiB: node-1 (49 pods). Use fewer."
    crowded = condition_wire("Degraded", "True", reason="NoRoom", message=said)
    status = {"observedGeneration": 1, "conditions": [crowded]}
    before = snapshot(markers=[marker()], pods=[healthy_pod()])
    edited = marker(probes=[probe_wire(periodSeconds=77)], status=status)
    there = snapshot(markers=[edited], pods=[healthy_pod()])
    found = end_of(replace(there, node_pod_probes=before.node_pod_probes))
    assert found is not None
    assert (found.name, found.reason) == ("NodePodProbe", "EntryBehind")


def test_marker_over_the_limit_of_a_pod_has_a_remedy() -> None:
    older = [marker(name=f"a{n:02}", created="2020-01-01T00:00:00Z") for n in range(64)]
    found = end_of(snapshot(markers=[*older, marker()], pods=[healthy_pod()], planned=False))
    assert found is not None
    assert (found.name, found.reason) == ("NodePodProbe", "TooManyMarkers")
    assert "64 older PodProbeMarkers select this pod" in found.text
    assert "merge their probes" in found.remedy


def test_entry_over_the_size_limit_is_named() -> None:
    large = probe_wire(handler={"httpGet": {"port": 80, "path": "/" + "x" * 70_000}})
    found = end_of(snapshot(markers=[marker(probes=[large])], pods=[healthy_pod()], planned=False))
    assert found is not None
    assert (found.name, found.reason) == ("NodePodProbe", "EntryTooLarge")


def test_condition_with_reason_no_room_is_explained() -> None:
    crowded = healthy_pod(
        conditions=[condition_wire("example.com/healthy", "Unknown", reason="NoRoom")]
    )
    found = end_of(snapshot(markers=[marker()], pods=[crowded], planned=False))
    assert found is not None
    assert (found.name, found.reason) == ("NodePodProbe", "NoRoom")
    assert "1 MiB" in found.text


def test_refused_write_shows_the_message_of_the_api_server() -> None:
    refused = "The API server refuses to write results to 1 pod: default/web-0: policy says no."
    said = condition_wire("Degraded", "True", reason="PodNotMarked", message=refused)
    there = snapshot(
        markers=[marker(status={"observedGeneration": 1, "conditions": [said]})],
        pods=[healthy_pod(), healthy_pod("web-01")],
        states=[state_wire(state="Failed")],
    )
    found, other = end_of(there), end_of(there, pod=1)
    assert found
    assert other
    assert (found.name, found.reason) == ("condition", "PodNotMarked")
    assert "policy says no" in found.text
    assert other.reason == "ConditionBehind"


SPACED: Json = {"exec": {"command": ["cat /ready"]}}
SPLIT = 'split the command into its words: ["cat", "/ready"]'


@pytest.mark.parametrize(
    ("state", "end"),
    [
        pytest.param(state_wire(probe_hash="0" * 16), "ResultOutdated", id="hash-of-another-probe"),
        pytest.param(
            state_wire(probe_hash=entry_of(Probe(exec=ExecAction(command=("true",)))).hash),
            None,
            id="hash-of-this-probe",
        ),
        pytest.param(state_wire(), None, id="no-hash-as-of-kruises-daemon"),
    ],
)
def test_result_from_before_an_edit_is_named(state: Json, end: str | None) -> None:
    found = end_of(snapshot(markers=[marker()], pods=[healthy_pod()], states=[state]))
    assert (found and found.reason) == end
    if found:
        assert found.state is LinkState.WAITING
        assert "before it was edited" in found.text


@pytest.mark.parametrize(
    ("message", "handler", "reason", "remedy"),
    [
        pytest.param(
            "command timed out (ExecStuck: it times out every time)",
            {"exec": {"command": ["true"]}},
            "ExecStuck",
            "raise timeoutSeconds (default 1); if it ends in time, end its child processes",
            id="exec-stuck",
        ),
        pytest.param(
            'exec: "cat /ready": no such file or directory', SPACED, "ExecImpossible", SPLIT,
            id="missing-program-as-failure",
        ),
    ],
)  # fmt: skip
def test_failed_result_that_needs_action_is_broken(
    message: str, handler: Json, reason: str, remedy: str
) -> None:
    states = [state_wire(state="Failed", message=message)]
    pod = healthy_pod(conditions=[condition_wire("example.com/healthy", "False")])
    marked = marker(probes=[probe_wire(handler=handler)])
    found = end_of(snapshot(markers=[marked], pods=[pod], states=states))
    assert found is not None
    assert (found.name, found.state, found.reason) == ("result", LinkState.BROKEN, reason)
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("state", "message", "hint"),
    [
        pytest.param("Unknown", "ExecImpossible: exec /check.sh: no such file or directory", "CRLF", id="runc"),
        pytest.param("Unknown", 'ExecImpossible: exec: "/x": stat /x: no such file or directory', "the program exists in", id="no-program"),
        pytest.param("Unknown", "ExecImpossible: exec /check.sh: exec format error", "#!/bin/sh", id="no-interpreter"),
        pytest.param("Failed", "sh: /check.sh: /bin/bash^M: bad interpreter: No such file or directory", "CRLF", id="shell"),
        pytest.param("Failed", "env: 'bash\\r': No such file or directory", "CRLF", id="env"),
        pytest.param("Failed", "sh: /check.sh: not found", "exit code 127", id="no-file"),
        pytest.param("Failed", "sh: 1: a: not found\nidle", "exit code 127", id="no-file-and-an-output"),
        pytest.param("Failed", "exit code 127", "not in the container's image", id="exit-code"),
        pytest.param("Failed", "sh: 1: /a: Permission denied\nidle", "exit code 126", id="not-executable"),
    ],
)  # fmt: skip
def test_script_that_cannot_start_has_its_cause(state: str, message: str, hint: str) -> None:
    pod = healthy_pod(conditions=[condition_wire("example.com/healthy", "False")])
    probe = probe_wire(handler={"exec": {"command": ["/check.sh"]}})
    there = snapshot(
        markers=[marker(probes=[probe])],
        pods=[pod],
        states=[state_wire(state=state, message=message)],
    )
    (trace,) = traces_of(there, there.pods[0], there.compiled[there.markers[0].key])
    result = next(each for each in trace.links if each.name == "result")
    assert hint in f"{result.text} {result.remedy}"


def test_failed_command_that_needs_a_shell_is_explained() -> None:
    pod = healthy_pod(conditions=[condition_wire("example.com/healthy", "False")])
    probe = probe_wire(handler={"exec": {"command": ["test", "-e", "$(DIR)/idle"]}})
    states = [state_wire(state="Failed", message="exit code 1")]
    there = snapshot(markers=[marker(probes=[probe])], pods=[pod], states=states)

    (trace,) = traces_of(there, there.pods[0], there.compiled[there.markers[0].key])

    result = next(each for each in trace.links if each.name == "result")
    assert "the kubelet replaces $(DIR) in a probe's command, kruise-probe does not" in result.text


@pytest.mark.parametrize(
    ("command", "states", "hinted"),
    [
        pytest.param(
            ["cat /ready"], [state_wire(state="Unknown", message="ExecImpossible: no")], True,
            id="exec-impossible",
        ),
        pytest.param(["cat /ready"], [], True, id="no-result-yet"),
        pytest.param(["cat", "/r y"], [], False, id="two-words"),
        pytest.param(["/ready"], [], False, id="no-space"),
        pytest.param([], [], False, id="no-command"),
    ],
)  # fmt: skip
def test_command_of_one_word_with_spaces_has_a_hint(
    command: list[str], states: list[Json], hinted: bool
) -> None:
    probe = probe_wire(handler={"exec": {"command": command}})
    there = snapshot(
        markers=[marker(probes=[probe])], pods=[healthy_pod()], states=states, now=EARLY
    )
    found = end_of(there)
    assert found is not None
    assert (SPLIT in found.remedy) == hinted


EXPIRED, RENEWED = "2026-01-01T00:01:00.000000Z", "2026-01-01T00:01:20.000000Z"
JUST_NOW = state_wire(state="Failed", moved="2026-01-01T00:01:28Z")


@pytest.mark.parametrize(
    ("led", "there", "link", "reason"),
    [
        pytest.param(EXPIRED, {"states": [JUST_NOW]}, "manager", "ManagerNotRunning", id="result-new"),
        pytest.param(RENEWED, {"states": [JUST_NOW]}, "condition", "ResultNew", id="leader"),
        pytest.param(None, {"states": [JUST_NOW]}, "condition", "ResultNew", id="no-lease"),
        pytest.param(EXPIRED, {"planned": False}, "manager", "ManagerNotRunning", id="entry-missing"),
        pytest.param(EXPIRED, {"states": []}, "result", "ResultOverdue", id="not-the-managers-task"),
    ],
)  # fmt: skip
def test_manager_link_is_broken_if_a_write_waits_for_an_absent_manager(
    led: str | None, there: Json, link: str, reason: str
) -> None:
    found = end_of(snapshot(markers=[marker()], pods=[healthy_pod()], led=led, **there))
    assert found is not None
    assert (found.name, found.reason) == (link, reason)
    if link == "manager":
        assert f"no manager has renewed its Lease since {EXPIRED}" in found.text
        assert "check that the manager runs" in found.remedy


def test_expired_leader_lease_alone_breaks_nothing() -> None:
    """A manager without leader election renews no Lease."""
    assert end_of(snapshot(markers=[marker()], pods=[healthy_pod()], led=EXPIRED)) is None
