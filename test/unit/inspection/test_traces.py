"""The first broken or waiting link of a trace. Whole commands are tested in test/integration/usage."""

import json
from datetime import UTC, datetime
from typing import Any

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
from support.cases import cases
from support.snapshots import healthy_pod, marker, seen_pod, snapshot
from support.wire import Json

from kruise_probe.api.core import ExecAction, Probe
from kruise_probe.inspection.link import Link
from kruise_probe.inspection.result_links import SHORTENED_NOTE, SHOWN_MESSAGE
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import traces_of

OLD = "2026-01-01T00:00:00.000000Z"
EXPIRED, RENEWED = "2026-01-01T00:01:00.000000Z", "2026-01-01T00:01:20.000000Z"
LARGEST: Json = {"periodSeconds": 2**31 - 1, "failureThreshold": 2**31 - 1}
EARLY = {"states": [], "now": datetime(2026, 1, 1, 0, 0, 15, tzinfo=UTC)}
SPACED: Json = {"exec": {"command": ["cat /就绪"]}}
SPLIT = 'split the command into its words: ["cat", "/就绪"]'
ALL_KINDS = ("nodes", "nodepodprobes", "leases")
PROTOCOL = {"kruise.io/podprobe": json.dumps([probe_wire()])}
VIRTUAL: Json = {"node": node_wire(labels={"type": "virtual-kubelet"}), "renewed": None}


def ends_of(there: Snapshot, *, of: str = "web", pod: int = 0) -> list[Link | None]:
    """For each probe of a marker, the link that is not OK."""
    compiled = next(each for each in there.compiled.values() if each.key.name == of)
    return [each.end for each in traces_of(there, there.pods[pod], compiled)]


def end_of(**there: Any) -> Link | None:
    (end,) = ends_of(snapshot(**there))
    return end


def named(end: Link | None) -> str:
    return f"{end.name} {end.reason} {end.state}" if end else ""


def told(end: Link | None) -> str:
    return f"{end.text}; {end.remedy}" if end else ""


def probing(**probe: Any) -> Json:
    """A marker with one probe."""
    return {"markers": [marker(probes=[probe_wire(**probe)])]}


def of_pod(**more: Any) -> Json:
    """A healthy pod with these differences."""
    return {"pods": [healthy_pod(**more)]}


def unplanned(**there: Any) -> Json:
    """A probe that is not in the NodePodProbe."""
    return {"planned": False, **there}


def status_says(*conditions: Json, **more: Any) -> Json:
    """A marker whose status has these conditions."""
    return {"markers": [marker(status={"observedGeneration": 1, "conditions": conditions}, **more)]}


def unknown(message: str) -> Json:
    return {"states": [state_wire(state="Unknown", message=message)]}


def failed(message: str = "", handler: Json | None = None) -> Json:
    """A probe whose failure is written to the pod."""
    return {
        "states": [state_wire(state="Failed", message=message)],
        "pods": [healthy_pod(conditions=[condition_wire("example.com/healthy", "False")])],
        **probing(handler=handler or {"exec": {"command": ["true"]}}),
    }


def crowded(node: str) -> Json:
    said = f"Some pods are not probed, as they would exceed 1 MiB: {node} (49 pods). Use fewer."
    return condition_wire("Degraded", "True", reason="NoRoom", message=said)


BEHIND = condition_wire("Synced", "False", reason="NodesBehind", message="node-1")
JUST_NOW = {"states": [state_wire(state="Failed", moved="2026-01-01T00:01:28Z")]}
NO_MANAGER = f"no manager has renewed its Lease since {EXPIRED}"
OLDER = [marker(name=f"a{n:02}", created="2020-01-01T00:00:00Z") for n in range(64)]
LARGE: Json = {"httpGet": {"port": 80, "path": "/" + "x" * 70_000}}
FULL = condition_wire("PodScheduled", "False", message="0/1 nodes are available")


WORKING = {
    "everything-is-there": {},
    "no-lease-as-of-kruises-daemon-that-reports": {"renewed": None},
    "forbidden": {"renewed": None, "forbidden": ALL_KINDS},
    "manager-without-leader-election": {"led": EXPIRED},
    "virtual": {**VIRTUAL, "pods": [healthy_pod(annotations=PROTOCOL)]},
    "hash-of-this-probe": {"states": [state_wire(probe_hash=entry_of(Probe(exec=ExecAction(command=("true",)))).hash)]},
}  # fmt: skip


@cases("there", **WORKING)
def test_working_probe_has_no_broken_link(there: Json) -> None:
    assert end_of(**there) is None


ENDS = {
    "terminating": (of_pod(deleting=True), "pod PodTerminating broken", "replacement"),
    "finished": (of_pod(phase="Failed"), "pod PodFinished broken", "not probed"),
    "no-node": (of_pod(node="", conditions=[FULL]), "pod PodNotScheduled broken", "0/1 nodes are available"),
    "node-gone": (of_pod(node="gone"), "pod NodeNotFound broken", "Node gone does not exist"),
    "not-started": (of_pod(initialized=False), "pod PodNotStarted broken", "kubectl describe pod web-0 -n default"),
    "not-initialised": (
        of_pod(initialized=False, init_containers=[container_wire("init")]),
        "pod PodNotInitialized broken", "kubectl describe pod web-0 -n default",
    ),
    "static": (of_pod(annotations={"kubernetes.io/config.mirror": "x"}), "pod StaticPod broken", "DaemonSet"),
    "no-such-container-before-no-daemon": (
        {"pods": [healthy_pod(containers=[container_wire("other")])], "renewed": None},
        "container ContainerNotFound broken", "correct containerName",
    ),
    "an-init-container": (
        of_pod(containers=[container_wire("other")], init_containers=[container_wire("main")]),
        "container ContainerNotProbed broken", "set containerName to",
    ),
    "image-missing": (
        {"seen": [seen_pod(healthy_pod(), containers={"main": {"waiting": {"reason": "ErrImagePull"}}})]},
        "container ContainerNotCreated broken", "main is not running: ErrImagePull; find out why the runtime has not created the container: kubectl describe pod web-0 -n default",
    ),
    "crashed": (
        {"seen": [seen_pod(healthy_pod(), containers={"main": {"terminated": {"exitCode": 3}}})]},
        "container ContainerNotRunning broken", "kubectl logs web-0 -n default -c main",
    ),
    "startup-probe": (of_pod(containers=[container_wire(startup_probe=True)]), "container ContainerNotStarted waiting", "startupProbe"),
    "no-port-names": (probing(handler={"httpGet": {"port": "web"}}), "port PortNameUnknown broken", "it declares no ports with a name"),
    "no-entry": (unplanned(), "NodePodProbe EntryMissing broken", "does not contain"),
    "the-manager-is-behind": (
        unplanned(markers=[marker(generation=2)]),
        "NodePodProbe EntryMissing broken", "processed generation 1 of the marker, the newest is 2",
    ),
    "marker-of-seconds-ago": (
        unplanned(markers=[marker(created="2026-01-01T00:01:28Z")]),
        "NodePodProbe MarkerNew waiting", "a few seconds ago",
    ),
    "marker-of-before": (
        unplanned(markers=[marker(created="2026-01-01T00:01:00Z")]),
        "NodePodProbe EntryMissing broken", "does not contain",
    ),
    "no-room-on-this-node": (unplanned(**status_says(BEHIND, crowded("node-1"))), "NodePodProbe NoRoom broken", "1 MiB: node-1 (49 pods)"),
    "result-of-a-daemon-without-the-field": (
        {"markers": [marker(probes=[{**probe_wire(), "successWhen": {"exitCodes": [0]}}])]},
        "NodePodProbe FieldNotSupported broken", "run the daemon of this version on the node",
    ),
    "no-room-on-another": (
        unplanned(**status_says(BEHIND, crowded("other-node-1"))),
        "NodePodProbe EntryMissing broken", "does not contain",
    ),
    "no-room-in-the-pods-condition": (
        unplanned(pods=[healthy_pod(conditions=[condition_wire("example.com/healthy", "Unknown", reason="NoRoom")])]),
        "NodePodProbe NoRoom broken", "1 MiB",
    ),
    "too-many-markers": (
        unplanned(markers=[*OLDER, marker()]),
        "NodePodProbe TooManyMarkers broken", "64 older PodProbeMarkers select this pod",
    ),
    "too-large": (unplanned(**probing(handler=LARGE)), "NodePodProbe EntryTooLarge broken", ""),
    "no-daemon": ({"renewed": None, "states": []}, "daemon NoDaemon broken", "no daemon runs"),
    "gate-of-the-daemon": (
        {"renewed": None, "states": []}, "daemon NoDaemon broken",
        "read its log, also of a Running pod: a daemon whose feature gate is closed starts nothing, and one with a wrong flag ends: kubectl",
    ),
    "silent": ({"renewed": OLD, "states": []}, "daemon ProbeDaemonStale broken", "has not renewed its Lease since"),
    "no-result": (EARLY, "result NoResultYet waiting", "within 26 s"),
    "overdue": ({"states": []}, "result ResultOverdue broken", "No result 91 s after"),
    "largest-numbers": ({"states": [], **probing(**LARGEST)}, "result NoResultYet waiting", "within 2147483"),
    "leases-forbidden": ({"states": [], "forbidden": ["leases"]}, "result ResultOverdue broken", "No result"),
    "hash-of-another-probe": ({"states": [state_wire(probe_hash="0" * 16)]}, "result ResultOutdated waiting", "before it was edited"),
    "first-word": (unknown("ExecQueued: full"), "result ExecQueued broken", "Unknown: full; "),
    "several-words": (unknown("exec failed: full"), "result Unknown broken", "Unknown: exec failed: full; "),
    "no-colon": (unknown("full"), "result Unknown broken", "Unknown: full; "),
    "nothing-before-the-colon": (unknown(": full"), "result Unknown broken", "Unknown: : full; "),
    "no-message": (unknown(""), "result Unknown broken", "no reason"),
    "ends-by-itself": (unknown("ContainerRestarted: no result yet"), "result ContainerRestarted waiting", "no result yet"),
    "exec-stuck": (
        failed("command timed out after 1s (ExecStuck: it runs every 8 s; make it faster)"),
        "result ExecStuck broken", "times out after 1 s each time, so it runs less often; make the command faster, or raise timeoutSeconds (default 1)",
    ),
    "condition-behind": ({"states": [state_wire(state="Failed")]}, "condition ConditionBehind broken", "is True, but the result is Failed"),
    "result-new": (JUST_NOW, "condition ResultNew waiting", "not written this result yet"),
    "leader": ({**JUST_NOW, "led": RENEWED}, "condition ResultNew waiting", ""),
    "no-leader": ({**JUST_NOW, "led": EXPIRED}, "manager ManagerNotRunning broken", NO_MANAGER),
    "no-leader-and-no-entry": (unplanned(led=EXPIRED), "manager ManagerNotRunning broken", "check that the manager runs"),
    "not-the-managers-task": ({"states": [], "led": EXPIRED}, "result ResultOverdue broken", ""),
    "virtual-without-a-condition": ({**VIRTUAL, "pods": [pod_wire(annotations=PROTOCOL)]}, "provider ProviderSilent broken", ""),
    "virtual-with-another-condition": (
        {**VIRTUAL, "pods": [healthy_pod(annotations=PROTOCOL, conditions=[condition_wire("x.com/a")])]},
        "provider ProviderSilent broken", "",
    ),
    "virtual-without-a-condition-type": (
        {**VIRTUAL, "pods": [healthy_pod(annotations=PROTOCOL)], **probing(condition=None, policies=[policy_wire(labels={"good": "yes"})])},
        "provider ConditionTypeMissing broken", "",
    ),
}  # fmt: skip


@cases("there end says", **ENDS)
def test_trace_ends_at_the_first_link_that_is_not_ok(there: Json, end: str, says: str) -> None:
    found = end_of(**there)

    assert named(found) == end
    assert says in told(found)


@cases(
    "probes ends",
    kubelet_s_condition=([probe_wire(condition="Ready")], ["condition InvalidSpec broken"]),
    a_name_twice=([probe_wire(), probe_wire(condition="x.com/b")], ["", "marker InvalidSpec broken"]),
)  # fmt: skip
def test_invalid_probe_is_reported_as_invalid(probes: list[Json], ends: list[str]) -> None:
    """Kruise's CRD accepts such markers."""
    assert [named(each) for each in ends_of(snapshot(markers=[marker(probes=probes)]))] == ends


def test_each_probe_of_a_marker_is_compared_with_its_own_entry() -> None:
    probes = [probe_wire(), probe_wire("second", condition="x.com/b", periodSeconds=7)]
    conditions = [condition_wire("example.com/healthy"), condition_wire("x.com/b")]
    there = snapshot(
        markers=[marker(probes=probes)],
        pods=[healthy_pod(conditions=conditions)],
        states=[state_wire(), state_wire("web#second")],
    )
    assert ends_of(there) == [None, None]


MARKS = {
    "as-it-should-be": ({"good": "yes"}, None),
    "not-there": ({}, "label good should be yes, but is absent"),
    "another-value": ({"good": "no"}, "label good should be yes, but is no"),
    "the-other-state": ({"good": "yes", "bad": "yes"}, "label bad should be absent, but is yes"),
}


@cases("labels ends", **MARKS)
def test_marks_must_be_those_of_the_newest_state(labels: dict[str, str], ends: str | None) -> None:
    policies = [policy_wire("Succeeded", {"good": "yes"}), policy_wire("Failed", {"bad": "yes"})]
    pods = [healthy_pod(labels={"app": "web", **labels})]
    states = [state_wire(probed="2026-01-01T00:01:20Z")]  # recent, which only excuses values
    found = end_of(**probing(policies=policies), pods=pods, states=states)
    assert (found.text if found else None) == ends


VALUE = [policy_wire("Succeeded", {"n": "0"}, from_message=[{"label": "n", "regex": "n=(.*)"}])]
STATIC = "n=0; label n has the static value 0: regex 'n=(.*)' finds no valid value in the message \"starting\""


VALUES = {
    "as-it-should-be": ("n=1", OLD, "1", "", ""),
    "behind": ("n=1", OLD, "2", "marks MarksBehind broken", "label n should be 1, but is 2"),
    "delayed": (
        "n=1",
        "2026-01-01T00:01:20Z", "2", "marks ValueNew waiting", "label n should be 1, but is 2; the manager has not written it yet",
    ),
    "static-value": ("starting", OLD, "0", "marks ValueInvalid broken", STATIC),
}  # fmt: skip


def test_a_shortened_message_keeps_the_values_and_says_so() -> None:
    states = [state_wire(message="n=", probed=OLD) | {"messageShortened": True}]
    pods = [healthy_pod(labels={"app": "web", "n": "1"})]
    found = end_of(**probing(policies=VALUE), states=states, pods=pods)
    assert named(found) == "marks MessageShortened broken"
    assert found is not None
    assert found.text == f"{SHORTENED_NOTE}; kept as it is: label n"


@cases("message probed label end text", **VALUES)
def test_values_must_be_those_of_the_newest_message(
    message: str, probed: str, label: str, end: str, text: str
) -> None:
    found = end_of(
        **probing(policies=VALUE),
        states=[state_wire(message=message, probed=probed)],
        pods=[healthy_pod(labels={"app": "web", "n": label})],
    )
    assert named(found) == end
    assert (found.text if found else "") == text


INVALID = "is not set: regex 'n=.+' finds no valid value in the message"
SHOWN = "x" * SHOWN_MESSAGE
PATTERN = {"annotation": "n", "regex": "n=.+"}


INVALID_VALUES = {
    "invalid-value": ({"label": "n", "regex": "n=.+"}, "n=a/b", f'label n {INVALID} "n=a/b"'),
    "first-line": ({"label": "n"}, "a/b", 'label n is not set: no valid value in the first line of the message "a/b"'),
    "long-message": (PATTERN, "x" * 100, f'annotation n {INVALID} "{SHOWN}…"'),
    "message-that-was-cut": (
        PATTERN,
        "x" * 1021, f'annotation n {INVALID} "{SHOWN}…" (only the first 1,024 bytes of the output are searched)',
    ),
}  # fmt: skip


@cases("value message says", **INVALID_VALUES)
def test_invalid_value_has_its_pattern_its_message_and_what_happens(
    value: Json, message: str, says: str
) -> None:
    policies = [policy_wire("Succeeded", from_message=[value])]
    found = end_of(**probing(policies=policies), states=[state_wire(message=message, probed=OLD)])
    assert found is not None
    assert found.text == says
    assert found.remedy.startswith("print less" if "searched" in says else "correct regex")


def test_pattern_over_the_limit_of_a_pod_is_named() -> None:
    """The patterns of the older marker use it up."""
    markers = []
    for name, created in (("a", "2020-01-01T00:00:00Z"), ("web", "2025-01-01T00:00:00Z")):
        policy = policy_wire(from_message=[{"label": name, "regex": ".{1,150}"}])
        probe = probe_wire(condition=f"example.com/{name}", policies=[policy])
        markers.append(marker(name=name, created=created, probes=[probe]))
    pod = healthy_pod(conditions=[condition_wire("example.com/web", "True", message="3 players")])
    states = [state_wire(message="3 players", probed=OLD)]
    found = end_of(markers=markers, pods=[pod], states=states)
    assert found is not None
    assert named(found) == "marks ValueInvalid broken"
    assert found.text == (
        "label web is not set: all patterns of this pod together are too large to search regex '.{1,150}' in \"3 players\""
    )


NO_PROGRAM, NOT_EXECUTABLE = "the container has no such program", "make it executable with chmod +x"
SCRIPT: Json = {"exec": {"command": ["/check.sh"]}}
PIPE: Json = {"exec": {"command": ["sh", "-c", "pgerp x | wc -l"]}}
IN_SHELL: Json = {"exec": {"command": ["sh", "-c", "pgrep x"]}}


FAILED_COMMANDS = {
    "dash": (IN_SHELL, "Failed", "sh: 1: pgrep: not found", NO_PROGRAM),
    "busybox": (IN_SHELL, "Failed", "sh: pgrep: not found", NO_PROGRAM),
    "bash": (IN_SHELL, "Failed", "/bin/bash: line 1: pgrep: command not found", NO_PROGRAM),
    "no-permission": (IN_SHELL, "Failed", "sh: 1: /check: Permission denied", NOT_EXECUTABLE),
    "redirection": (IN_SHELL, "Failed", "sh: 1: cannot create /x: Permission denied", ""),
    "of-the-application": (IN_SHELL, "Failed", "key not found\nError: stat /x: no such file or directory\nrpc-exec-check: permission denied", ""),
    "success": (IN_SHELL, "Succeeded", "sh: pgrep: not found; no ExecStuck probes", ""),
    "no-command": ({"tcpSocket": {"port": 80}}, "Failed", "sh: pgrep: not found", ""),
    "no-program-before-a-pipe": (PIPE, "Succeeded", "0", "also if pgerp fails; write: out=$(pgerp ...) || exit 1; echo \"$out\" | ..."),
    "one-word-with-shell-characters": (
        {"exec": {"command": ["cat mood; grep -q 'a b' mood"]}}, "Unknown", "ExecImpossible: not found",
        """; run it in a shell: ["sh", "-c", "cat mood; grep -q 'a b' mood"]""",
    ),
    "refused": ({"tcpSocket": {"port": 80}}, "Failed", "connect: connection refused", "nothing listens on this port at"),
    "runc": (SCRIPT, "Unknown", "ExecImpossible: exec /check.sh: no such file or directory", "CRLF"),
    "no-program": (SCRIPT, "Unknown", 'ExecImpossible: exec: "/x": stat /x: no such file or directory', NO_PROGRAM),
    "no-program-of-crun": (SCRIPT, "Unknown", "ExecImpossible: executable file `x` not found in $PATH", NO_PROGRAM),
    "no-mode-of-runc": (SCRIPT, "Unknown", 'ExecImpossible: exec: "/x": permission denied', NOT_EXECUTABLE),
    "no-mode-of-crun": (SCRIPT, "Unknown", "ExecImpossible: open executable: Permission denied", NOT_EXECUTABLE),
    "another-error": (SCRIPT, "Unknown", "ExecImpossible: no cgroup", "the program exists in"),
    "one-word": (SPACED, "Failed", 'exec: "cat /ready": executable file not found in $PATH', SPLIT),
    "variable": ({"exec": {"command": ["sh", "-c", "$(A)"]}}, "Failed", "sh: 1: A: not found", "the kubelet replaces $(A)"),
    "no-interpreter": (SCRIPT, "Unknown", "ExecImpossible: exec /check.sh: exec format error", "#!/bin/sh"),
    "shell": (SCRIPT, "Failed", "sh: /check.sh: /bin/bash^M: bad interpreter: No such file or directory", "CRLF"),
    "env": (SCRIPT, "Failed", "env: 'bash\\r': No such file or directory", "CRLF"),
    "no-file": (SCRIPT, "Failed", "sh: /check.sh: not found", "has no such file, or no interpreter"),
    "no-file-and-an-output": (SCRIPT, "Failed", "sh: 1: a: not found\nidle", NO_PROGRAM),
    "exit-code": (SCRIPT, "Failed", "exit code 127", NO_PROGRAM),
    "not-executable": (SCRIPT, "Failed", "sh: 1: /a: Permission denied\nidle", NOT_EXECUTABLE),
    "needs-a-shell": (
        {"exec": {"command": ["test", "-e", "$(DIR)/idle"]}},
        "Failed", "exit code 1", "the kubelet replaces $(DIR) in a probe's command, kruise-probe does not",
    ),
}  # fmt: skip


@cases("handler state message hint", **FAILED_COMMANDS)
def test_failed_command_that_cannot_work_has_its_cause(
    handler: Json, state: str, message: str, hint: str
) -> None:
    status = {"Succeeded": "True"}.get(state, "False")
    there = snapshot(
        **probing(handler=handler),
        pods=[healthy_pod(conditions=[condition_wire("example.com/healthy", status)])],
        states=[state_wire(state=state, message=message)],
    )
    (trace,) = traces_of(there, there.pods[0], there.compiled[there.markers[0].key])
    (result,) = [each for each in trace.links if each.name == "result"]
    assert hint in f"{result.text} {result.remedy}"
    assert hint or (result.text, result.remedy) == (f"{state}: {message}", "")


@cases(
    "command there hinted",
    exec_impossible=(["cat /就绪"], unknown("ExecImpossible: no"), True),
    no_result_yet=(["cat /就绪"], EARLY, True),
    two_words=(["cat", "/r y"], EARLY, False),
    no_space=(["/ready"], EARLY, False),
    no_command=([], EARLY, False),
)
def test_command_of_one_word_with_spaces_has_a_hint(
    command: list[str], there: Json, hinted: bool
) -> None:
    found = end_of(**probing(handler={"exec": {"command": command}}), **there)
    assert found is not None
    assert (SPLIT in found.remedy) == hinted


@cases(
    "containers text",
    waiting=({"main": {"waiting": {"reason": "PodInitializing"}}}, "; not running: main (PodInitializing)"),
    running=(None, ""),
)  # fmt: skip
def test_pod_that_is_not_initialised_lists_the_containers_that_do_not_run(
    containers: Json | None, text: str
) -> None:
    pod = healthy_pod(initialized=False, init_containers=[container_wire("init")])
    found = end_of(seen=[seen_pod(pod, containers=containers)])
    assert found is not None
    assert found.text == f"init containers of the pod have not completed{text}"


def test_refused_write_shows_the_message_of_the_api_server() -> None:
    refused = "The API server refuses to write results to 1 pod: default/web-0: policy says no."
    there = snapshot(
        **status_says(condition_wire("Degraded", "True", reason="PodNotMarked", message=refused)),
        pods=[healthy_pod(), healthy_pod("web-01")],
        states=[state_wire(state="Failed")],
    )
    (found,), (other,) = ends_of(there), ends_of(there, pod=1)
    assert named(found) == "condition PodNotMarked broken"
    assert "policy says no" in told(found)
    assert named(other) == "condition ConditionBehind broken"
