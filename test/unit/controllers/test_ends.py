"""Marks at the ends of a container, a pod and a daemon. The whole manager over a fake API server."""

from collections.abc import Sequence

import msgspec
import pytest
from support.builders import (
    condition_wire,
    container_wire,
    lease_wire,
    node_wire,
    owned_fields,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.running_manager import running_manager, settle
from support.scene import C, Scene
from support.wire import Json

from kruise_probe.api.names import ANCIENT_FIELD_MANAGER
from kruise_probe.api.resources import LEASES, MARKERS, NODES, PODS

ROLE = (policy_wire("Succeeded", {"role": "primary"}), policy_wire("Failed", {"sick": "1"}))
UNKNOWN = policy_wire("Unknown", annotations={"unknown": "1"})
FINE = state_wire(message="fine", probed="2026-01-01T00:00:05Z")


def role(**when: str) -> Json:
    return {**probe_wire(policies=[*ROLE, UNKNOWN]), **when}


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put_marker(role())
    return api


def ended(exit_code: int = 0, name: str = "main") -> Json:
    return {"name": name, "state": {"terminated": {"exitCode": exit_code}}}


def reason(api: Scene, pod: str = "web-0") -> tuple[str, str, dict[str, str]]:
    """Of the condition: reason and message; and the annotations."""
    found = api.conditions(pod)[C]
    assert found["status"] == "Unknown"
    return found["reason"], found["message"], api.annotations(pod)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_is_unknown_once_and_gets_the_policy_for_unknown(
    api: Scene, phase: str
) -> None:
    async with api.running(FINE):
        assert api.labels() == {"role": "primary"}
        await api.change(PODS, "web-0", {"status": {"phase": phase}})
        assert reason(api) == ("PodFinished", f"The pod has finished ({phase}).", {"unknown": "1"})
        assert api.labels() == {}
        before = len(api.writes)
        await settle(100)
        assert api.count("Pod", since=before) == {}


@cases(
    "more labels",
    without_policy_for_unknown=({}, {"role": "primary"}),
    paused_pod=({"annotations": {"kruise-probe.io/paused": "true"}}, {"role": "primary"}),
)
async def test_marks_of_a_finished_pod_stay(api: Scene, more: Json, labels: dict[str, str]) -> None:
    if not more:
        api.put_marker(probe_wire(policies=ROLE))
    async with api.running(FINE):
        await api.change(PODS, "web-0", {"metadata": more})
        paused = api.condition()
        await api.change(PODS, "web-0", {"status": {"phase": "Failed"}})
        assert api.labels() == labels
        assert api.condition() == (paused if more else ("Unknown", "PodFinished"))


async def test_a_finished_pod_whose_provider_writes_conditions_is_left_alone(api: Scene) -> None:
    api.put(NODES, node_wire(labels={"type": "virtual-kubelet"}))
    async with api.running(serverless=True):
        await api.provider_reports("True")
        assert api.labels() == {"role": "primary"}
        await api.change(PODS, "web-0", {"status": {"phase": "Succeeded"}}, manager="provider")
        assert (api.labels(), api.condition()) == ({"role": "primary"}, ("True", ""))


async def test_a_finished_pod_without_marks_of_ours_gets_none(api: Scene) -> None:
    api.put(PODS, pod_wire(phase="Succeeded", conditions=[condition_wire(C)]))
    await api.run()
    assert api.count("Pod") == {}


async def test_results_go_before_marks_of_finished_pods(api: Scene) -> None:
    """After an upgrade there may be thousands."""
    owned = owned_fields(conditions=[C])
    for number in range(200):
        done = pod_wire(
            f"done-{number}",
            uid=f"uid-{number}",
            phase="Succeeded",
            conditions=[condition_wire(C)],
            owned=owned,
        )
        api.put(PODS, done)
    api.latency_seconds["Pod"] = 0.3
    async with running_manager(api):
        await settle(0.2)
        await api.report(FINE, seconds=0.7)
        assert api.count()["Pod/status"] < 201
        assert api.condition() == ("True", "")
        await settle(10)
        assert api.count()["Pod/status"] == 201


@cases(
    "policy container exit_code finished",
    never=("Never", {}, 3, True),
    on_failure_that_succeeded=("OnFailure", {}, 0, True),
    on_failure_that_failed=("OnFailure", {}, 1, False),
    always=("Always", {}, 0, False),
    absent=(None, {}, 0, False),
    of_the_container=("Always", {"restartPolicy": "Never"}, 0, True),
    with_rules=("Never", {"restartPolicyRules": [{"action": "Restart"}]}, 0, False),
)
def test_a_container_has_finished_if_its_restart_policy_does_not_restart_it(
    policy: str | None, container: Json, exit_code: int, finished: bool
) -> None:
    wire = pod_wire(containers=[{**container_wire(), **container}])
    wire["spec"] |= {"restartPolicy": policy} if policy else {}
    wire["status"]["containerStatuses"] = [ended(exit_code), {"name": "gone"}]
    assert PODS.decode(msgspec.json.encode(wire)).exit_codes == (
        {"main": exit_code} if finished else {}
    )


async def test_a_finished_container_is_unknown_with_its_exit_code(api: Scene) -> None:
    async with api.running(FINE):
        patch = {"spec": {"restartPolicy": "Never"}, "status": {"containerStatuses": [ended(3)]}}
        await api.change(PODS, "web-0", patch)
        assert reason(api) == ("ContainerFinished", "exit code 3", {"unknown": "1"})
        await api.report(state_wire(state="Unknown", message="ContainerNotRunning: it ended"))
        assert reason(api) == ("ContainerFinished", "exit code 3", {"unknown": "1"})
        await api.change(PODS, "web-0", {"status": {"phase": "Failed"}})
        assert reason(api)[0] == "PodFinished"


@cases(
    "when condition labels",
    keep=({"whenStale": "Keep"}, ("True", ""), {"role": "primary"}),
    unknown=({"whenStale": "Unknown"}, ("Unknown", "ProbeDaemonStale"), {}),
)
async def test_what_a_silent_daemon_changes_depends_on_when_stale(
    api: Scene, when: Json, condition: tuple[str, str], labels: dict[str, str]
) -> None:
    api.put(LEASES, lease_wire())
    api.put_marker(role(**when))
    async with api.running(FINE):
        await settle(70)
        assert (api.condition(), api.labels()) == (condition, labels)
        assert api.says()[:2] == ("True", "ProbeDaemonStale")
        await api.change_probes(role(whenStale="Unknown"))
        assert api.condition() == ("Unknown", "ProbeDaemonStale")


@cases(
    "when entries labels",
    keep=({}, [], {"role": "primary"}),
    probe=({"whenTerminating": "Probe"}, ["web#healthy"], {"sick": "1"}),
)
async def test_what_happens_to_a_terminating_pod_depends_on_when_terminating(
    api: Scene, when: Json, entries: Sequence[str], labels: dict[str, str]
) -> None:
    api.put(LEASES, lease_wire())
    api.put_marker(role(**when), probe_wire("other", condition="c/other"))
    async with api.running(FINE):
        patch = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}}
        await api.change(PODS, "web-0", patch)
        assert api.probes() == ({"web-0": entries} if entries else {})
        await api.report(state_wire(state="Failed"))
        assert api.labels() == labels
        assert api.counts()[0] == 0
        await settle(70)  # A dead node: its pods terminate for ever.
        assert api.labels() == ({} if entries else labels)
        await api.change(PODS, "web-0", {"status": {"phase": "Failed"}})
        assert reason(api)[0] == "PodFinished"
        assert api.labels() == {}


async def test_marks_merged_into_ancient_changes_are_removed_with_their_marker(api: Scene) -> None:
    """More than ten field managers wrote to the pod."""
    async with api.running(FINE):
        wire = api.read(PODS, "web-0")
        for entry in wire["metadata"]["managedFields"]:
            if entry["manager"] == "kruise-probe-manager":
                entry["manager"] = ANCIENT_FIELD_MANAGER
                entry.pop("subresource")
        api.put(PODS, wire)
        await settle()
        await api.drop(MARKERS, "web", seconds=15)
        assert api.marks() == ({}, {}, set())
        assert api.find(MARKERS, "web") is None
