"""Probes that an annotation on the marker or on the pod pauses. The whole product over a fake API server."""

from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from support.builders import (
    condition_wire,
    lease_wire,
    marker_wire,
    node_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi, cluster_with, report
from support.running_manager import loop_clock, running_manager, settle, settled_manager

from kruise_probe.api.kinds import Resource
from kruise_probe.api.names import PAUSED_ANNOTATION
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_micro_time

Json = dict[str, Any]
C = "example.com/healthy"
POLICIES = (policy_wire("Succeeded", {"healthy": "true"}), policy_wire("Failed", {"sick": "true"}))


class Annotated(NamedTuple):
    resource: Resource[Any]
    name: str


MARKER = Annotated(MARKERS, "web")
POD = Annotated(PODS, "web-0")
either = pytest.mark.parametrize(
    "where", [pytest.param(MARKER, id="marker"), pytest.param(POD, id="pod")]
)


@pytest.fixture
def api() -> FakeApi:
    return cluster_with(*POLICIES)


def annotate(api: FakeApi, where: Annotated, value: str | None = "true") -> None:
    api.edit(where.resource, where.name, {"metadata": {"annotations": {PAUSED_ANNOTATION: value}}})


def probed(api: FakeApi) -> int:
    """The number of probes that the node gets."""
    wire = api.read(NODE_POD_PROBES, "node-1")
    return sum(len(each["probes"]) for each in wire["spec"].get("podProbes") or ())


def condition(api: FakeApi) -> Json:
    wire = api.read(PODS, "web-0")
    found: Json = next(each for each in wire["status"]["conditions"] if each["type"] == C)
    return found


def labels(api: FakeApi) -> Json:
    wire = api.read(PODS, "web-0")
    return {key: each for key, each in wire["metadata"]["labels"].items() if key != "app"}


async def pause(api: FakeApi, where: Annotated) -> None:
    """The annotation is set, and the daemon drops the results of probes that it no longer has."""
    annotate(api, where)
    await settle()
    if not probed(api):
        api.publish()
    await settle()


async def succeed(api: FakeApi, message: str = "fine") -> None:
    report(api, state_wire(message=message))
    await settle()


@either
async def test_a_pause_is_one_write_of_the_pod_and_so_is_its_end(
    api: FakeApi, where: Annotated
) -> None:
    async with settled_manager(api):
        await succeed(api)
        before, writes = condition(api), len(api.writes)

        await pause(api, where)
        assert probed(api) == 0
        assert condition(api) == {**before, "reason": "ProbePaused"}
        assert labels(api) == {"healthy": "true"}
        await settle(600)
        assert api.count("Pod", since=writes) == {"Pod/status": 1}
        assert api.count("NodePodProbe", since=writes) == {"NodePodProbe": 1}

        annotate(api, where, None)
        await settle()
        assert probed(api) == 1
        await succeed(api)
        assert condition(api) == before
        assert api.count("Pod", since=writes) == {"Pod/status": 2}


async def test_a_result_during_the_pause_is_not_written(api: FakeApi) -> None:
    async with settled_manager(api):
        await succeed(api)
        annotate(api, POD)
        await settle()
        report(api, state_wire(state="Failed", message="late"))
        await settle()
        assert (condition(api)["status"], condition(api)["message"]) == ("True", "fine")
        assert labels(api) == {"healthy": "true"}


@pytest.mark.parametrize("value", ["True", "yes", "1", "", "false"])
@either
async def test_only_the_value_true_pauses(api: FakeApi, where: Annotated, value: str) -> None:
    async with settled_manager(api):
        await succeed(api)
        annotate(api, where, value)
        await settle()
        assert probed(api) == 1
        assert "reason" not in condition(api)


async def test_a_probe_stays_paused_while_marker_or_pod_is(api: FakeApi) -> None:
    async with settled_manager(api):
        await succeed(api)
        await pause(api, POD)
        writes = len(api.writes)
        await pause(api, MARKER)
        annotate(api, POD, None)
        await settle()
        assert probed(api) == 0
        assert api.count("Pod", since=writes) == {}
        assert api.count("NodePodProbe", since=writes) == {}


async def test_a_paused_marker_leaves_the_probes_of_others(api: FakeApi) -> None:
    api.put(MARKERS, marker_wire("other", probes=[probe_wire(condition="example.com/other")]))
    async with settled_manager(api):
        assert probed(api) == 2
        annotate(api, MARKER)
        await settle()
        assert probed(api) == 1


@either
async def test_a_restart_while_paused_writes_nothing(api: FakeApi, where: Annotated) -> None:
    async with settled_manager(api):
        await succeed(api)
        await pause(api, where)
    writes = len(api.writes)
    async with running_manager(api):
        await settle(60)
    assert api.count(since=writes) == {}


@either
async def test_a_paused_probe_does_not_become_stale(api: FakeApi, where: Annotated) -> None:
    api.put(LEASES, lease_wire(renewed=format_micro_time(loop_clock())))
    async with settled_manager(api):
        await succeed(api)
        await pause(api, where)
        writes = len(api.writes)
        await settle(120)
        assert (condition(api)["status"], condition(api)["reason"]) == ("True", "ProbePaused")
        assert api.count("Pod", since=writes) == {}

        annotate(api, where, None)
        await settle()
        assert (condition(api)["status"], condition(api)["reason"]) == (
            "Unknown",
            "ProbeDaemonStale",
        )


@either
async def test_a_pod_that_was_stale_before_the_pause_stays_unknown(
    api: FakeApi, where: Annotated
) -> None:
    api.put(LEASES, lease_wire(renewed=format_micro_time(loop_clock())))
    async with settled_manager(api):
        await succeed(api)
        await settle(120)
        annotate(api, where)
        await settle()
        assert (condition(api)["status"], condition(api)["reason"]) == ("Unknown", "ProbePaused")
        renewed = loop_clock() + timedelta(seconds=1)
        api.put(LEASES, lease_wire(renewed=format_micro_time(renewed)))
        await settle()
        assert (condition(api)["status"], condition(api)["reason"]) == ("Unknown", "ProbePaused")


@either
async def test_a_marker_deleted_while_paused_leaves_nothing(api: FakeApi, where: Annotated) -> None:
    async with settled_manager(api):
        await succeed(api)
        await pause(api, where)
        api.remove(MARKERS, "web")
        await settle()
        assert api.get(MARKERS, "web") is None
        assert labels(api) == {}
        assert C not in {each["type"] for each in api.read(PODS, "web-0")["status"]["conditions"]}


@either
async def test_a_new_pod_gets_no_condition_while_paused(api: FakeApi, where: Annotated) -> None:
    annotate(api, where)
    async with settled_manager(api):
        assert probed(api) == 0
        assert api.count("Pod") == {}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        pytest.param(POD, "1 of 2 pods are not probed, because they have", id="pod"),
        pytest.param(MARKER, "2 of 2 pods are not probed, because this PodProbeMarker has", id="marker"),
    ],
)  # fmt: skip
async def test_the_marker_counts_paused_pods_by_their_conditions(
    api: FakeApi, where: Annotated, message: str
) -> None:
    api.put(PODS, pod_wire("web-1"))
    async with settled_manager(api):
        await succeed(api)
        await pause(api, where)
        wire = api.get(MARKERS, "web")
    assert wire is not None
    status = wire["status"]
    fields = ("matchedPods", "succeeded", "failed", "unknown", "nodesBehind")
    assert [status[each] for each in fields] == [2, 1, 0, 1, 0]
    degraded = next(each for each in status["conditions"] if each["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("False", "ProbePaused")
    assert degraded["message"].startswith(message)


@either
async def test_marks_of_a_serverless_pod_stay_while_paused(api: FakeApi, where: Annotated) -> None:
    api.put(NODES, node_wire(labels={"type": "virtual-kubelet"}))

    async def provider_reports(status: str) -> None:
        wire = condition_wire(C, status)
        api.edit(PODS, "web-0", {"status": {"conditions": [wire]}}, manager="provider")
        await settle()

    async with settled_manager(api, serverless=True):
        await provider_reports("True")
        annotate(api, where)
        await provider_reports("False")
        assert labels(api) == {"healthy": "true"}
        annotate(api, where, None)
        await settle()
        assert labels(api) == {"sick": "true"}
        assert "reason" not in condition(api)


async def test_an_annotation_of_a_policy_cannot_pause(api: FakeApi) -> None:
    policy = policy_wire("Succeeded", {"healthy": "true"}, {PAUSED_ANNOTATION: "true"})
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=[policy])]))
    async with settled_manager(api):
        await succeed(api)
        assert labels(api) == {"healthy": "true"}
        assert probed(api) == 1
