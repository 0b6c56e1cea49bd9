"""Marks at the ends of a container, a pod and a daemon. The whole manager over a fake API server."""

from collections.abc import Sequence

import pytest
from support.builders import (
    condition_wire,
    container_wire,
    owned_fields,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.running_manager import running_manager, settle
from support.scene import C, Scene
from support.wire import Json, decoded
from unit.controllers.common import (
    PAUSED,
    TERMINATING,
    TRUE,
    Condition,
    assert_marker_is_gone,
    change_pod,
    delete_marker,
    make_node_virtual,
    marker_condition,
    no_writes,
    put_lease,
    put_pod,
    stamp,
)

from kruise_probe.api.names import ANCIENT_FIELD_MANAGER
from kruise_probe.api.resources import PODS

PRIMARY = {"role": "primary"}
ROLE = (policy_wire("Succeeded", PRIMARY), policy_wire("Failed", {"sick": "1"}))
UNKNOWN = policy_wire("Unknown", annotations={"unknown": "1"})
FINE = state_wire(
    message="fine",
    probed=stamp(5),
)


def role(**when: str) -> Json:
    return probe_wire(policies=[*ROLE, UNKNOWN]) | when


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put_marker(role())
    return api


def ended(exit_code: int) -> Json:
    return {"name": "main", "state": {"terminated": {"exitCode": exit_code}}}


def assert_unknown(api: Scene, reason: str, message: str) -> None:
    """Assert condition Unknown with reason and message, and the annotation of the Unknown policy."""
    found = api.conditions()[C]
    assert api.condition() == ("Unknown", reason)
    assert found["message"] == message
    assert api.annotations() == {"unknown": "1"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_is_unknown_once_and_gets_the_policy_for_unknown(
    api: Scene,
    phase: str,
) -> None:
    async with api.running(FINE):
        assert api.labels() == PRIMARY
        await change_pod(api, status={"phase": phase})
        assert_unknown(api, "PodFinished", f"The pod has finished ({phase}).")
        assert api.labels() == {}
        with no_writes(api, "Pod"):
            await settle(100)


async def test_marks_of_a_finished_pod_stay_without_policy_for_unknown(api: Scene) -> None:
    api.put_marker(probe_wire(policies=ROLE))
    async with api.running(FINE):
        await change_pod(api, status={"phase": "Failed"})
        assert api.labels() == PRIMARY
        assert api.condition() == ("Unknown", "PodFinished")


async def test_marks_of_a_finished_pod_that_is_paused_stay(api: Scene) -> None:
    async with api.running(FINE):
        await change_pod(api, metadata=PAUSED)
        await change_pod(api, status={"phase": "Failed"})
        assert api.labels() == PRIMARY
        assert api.condition() == ("True", "ProbePaused")


async def test_a_finished_pod_whose_provider_writes_conditions_is_left_alone(api: Scene) -> None:
    make_node_virtual(api)
    async with api.running(serverless=True):
        await api.provider_reports("True")
        assert api.labels() == PRIMARY
        await change_pod(api, status={"phase": "Succeeded"}, manager="provider")
        assert api.labels() == PRIMARY
        assert api.condition() == TRUE


async def test_a_finished_pod_without_marks_of_ours_gets_none(api: Scene) -> None:
    put_pod(
        api,
        phase="Succeeded",
        conditions=[condition_wire(C)],
    )
    await api.run()
    assert api.count("Pod") == {}


async def test_results_go_before_marks_of_finished_pods(api: Scene) -> None:
    """After an upgrade there may be thousands."""
    for number in range(200):
        done = pod_wire(
            f"done-{number}",
            phase="Succeeded",
            conditions=[condition_wire(C)],
            owned=owned_fields(conditions=[C]),
        )
        api.put(PODS, done)
    api.latency_seconds["Pod"] = 0.3
    async with running_manager(api):
        await settle(0.2)
        await api.report(FINE, seconds=0.7)
        assert api.count()["Pod/status"] < 201
        assert api.condition() == TRUE
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
    policy: str | None,
    container: Json,
    exit_code: int,
    finished: bool,
) -> None:
    wire = pod_wire(containers=[container_wire() | container])
    if policy:
        wire["spec"]["restartPolicy"] = policy
    wire["status"]["containerStatuses"] = [ended(exit_code), {"name": "gone"}]
    expected = {"main": exit_code} if finished else {}
    assert decoded(PODS, wire).exit_codes == expected


async def test_a_finished_container_is_unknown_with_its_exit_code(api: Scene) -> None:
    async with api.running(FINE):
        await change_pod(
            api,
            spec={"restartPolicy": "Never"},
            status={"containerStatuses": [ended(3)]},
        )
        assert_unknown(api, "ContainerFinished", "exit code 3")
        await api.report(state_wire(state="Unknown", message="ContainerNotRunning: it ended"))
        assert_unknown(api, "ContainerFinished", "exit code 3")
        await change_pod(api, status={"phase": "Failed"})
        assert api.condition() == ("Unknown", "PodFinished")


@cases(
    "when condition labels",
    keep=({"whenStale": "Keep"}, TRUE, PRIMARY),
    unknown=({"whenStale": "Unknown"}, ("Unknown", "ProbeDaemonStale"), {}),
)
async def test_what_a_silent_daemon_changes_depends_on_when_stale(
    api: Scene,
    when: Json,
    condition: Condition,
    labels: Json,
) -> None:
    put_lease(api)
    api.put_marker(role(**when))
    async with api.running(FINE):
        await settle(70)
        assert api.condition() == condition
        assert api.labels() == labels
        assert marker_condition(api) == ("True", "ProbeDaemonStale")
        await api.change_probes(role(whenStale="Unknown"))
        assert api.condition() == ("Unknown", "ProbeDaemonStale")


@cases(
    "when entries labels",
    keep=({}, [], PRIMARY),
    probe=({"whenTerminating": "Probe"}, ["web#healthy"], {"sick": "1"}),
)
async def test_what_happens_to_a_terminating_pod_depends_on_when_terminating(
    api: Scene,
    when: Json,
    entries: Sequence[str],
    labels: Json,
) -> None:
    put_lease(api)
    api.put_marker(
        role(**when),
        probe_wire("other", condition="c/other"),
    )
    async with api.running(FINE):
        await change_pod(api, metadata=TERMINATING)
        assert api.probes() == ({"web-0": entries} if entries else {})
        await api.report(state_wire(state="Failed"))
        assert api.labels() == labels
        assert api.counts()[0] == 0
        await settle(70)  # A dead node: its pods terminate for ever.
        assert api.labels() == ({} if entries else labels)
        await change_pod(api, status={"phase": "Failed"})
        assert api.condition() == ("Unknown", "PodFinished")
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
        await delete_marker(api, seconds=15)
        assert api.marks() == ({}, {}, set())
        assert_marker_is_gone(api)
