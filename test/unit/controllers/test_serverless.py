"""Pods of virtual nodes, whose provider runs the probes. The whole product over a fake API server."""

import pytest
from support.builders import node_wire, policy_wire, probe_wire
from support.running_manager import settle
from support.scene import Scene
from unit.controllers.common import (
    VIRTUAL,
    labels_patch,
    make_node_virtual,
    marker_reason,
    put_pod,
    writes_since_now,
)

from kruise_probe.api.resources import NODE_POD_PROBES, NODES

HEALTHY = {"healthy": "true"}
SICK = {"sick": "true"}


@pytest.fixture
def api(api: Scene) -> Scene:
    make_node_virtual(api)
    return api


async def test_policies_follow_the_providers_conditions_both_ways(api: Scene) -> None:
    async with api.running(serverless=True):
        for status, labels in (
            ("True", HEALTHY),
            ("False", SICK),
            ("Unknown", SICK),
            ("True", HEALTHY),
        ):
            await api.provider_reports(status)
            assert api.labels() == labels
        assert api.counts() == (1, 1, 0, 0, 0)
    assert api.find(NODE_POD_PROBES, "node-1") is None
    assert all("status" not in write.body for write in api.writes if write.kind == "Pod")


async def test_every_new_state_of_a_provider_is_applied_at_once(api: Scene) -> None:
    async with api.running(serverless=True):
        for _ in range(20):
            for status, labels in (("True", HEALTHY), ("False", SICK)):
                await api.provider_reports(status, seconds=0.1)
                assert api.labels() == labels


async def test_messages_of_a_provider_are_normalised_and_have_the_limit_of_messages(
    api: Scene,
) -> None:
    policy = policy_wire("Succeeded", from_message=[{"annotation": "line", "regex": "^n.*$"}])
    api.put_marker(probe_wire(policies=[policy]))
    async with api.running(serverless=True):
        await api.provider_reports("True", "n0\n")
        assert api.annotations() == {"line": "n0"}
        pod_writes = writes_since_now(api, "Pod")
        for number in range(1, 20):
            await api.provider_reports("True", f"n{number}\n", seconds=0.3)
        assert pod_writes()["Pod/status"] <= 4
        await settle(11)
        assert api.annotations() == {"line": "n19"}


async def test_a_marker_without_a_place_in_the_annotations_is_degraded(api: Scene) -> None:
    full = {"kruise.io/podprobemarker-list": "other", "kruise.io/podprobe": "x" * 262_080}
    put_pod(api, annotations=full)
    await api.run(serverless=True)
    assert marker_reason(api) == "AnnotationsFull"


async def test_conditions_count_as_the_providers_once_the_node_is_virtual(api: Scene) -> None:
    api.put(NODES, node_wire())
    async with api.running(serverless=True):
        await api.provider_reports("True")
        assert api.labels() == {}
        await api.change(
            NODES,
            "node-1",
            labels_patch(**VIRTUAL),
        )
        assert api.labels() == HEALTHY


async def test_without_the_gate_nothing_is_written(api: Scene) -> None:
    async with api.running():
        await api.provider_reports("True")
    assert api.count("Pod") == {}
