"""Nothing on the pod shows that we wrote its marks: a webhook or a user emptied `managedFields`."""

from collections.abc import Callable

import pytest
from support.builders import (
    condition_wire,
    npp_wire,
    owned_fields,
    pod_status_wire,
    pod_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.running_manager import settle
from support.scene import C, Scene

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS


@pytest.fixture
def api(api: Scene) -> Scene:
    wire = pod_wire(
        labels={"app": "web", "healthy": "true", "own": "true"},
        annotations={"cost": "10"},
        conditions=[condition_wire(C), condition_wire("c/users")],
    )
    api.put(PODS, wire)
    api.put(
        NODE_POD_PROBES,
        npp_wire(statuses=[pod_status_wire(wire, state_wire(probed="2026-01-01T00:00:01Z"))]),
    )
    return api


@cases("follows", leader=0, standby=10)
@cases(
    "end",
    marker_deleted=lambda api: api.remove(MARKERS, "web"),
    probe_removed=lambda api: api.put_marker(probe_wire("another", condition="c/b")),
    no_longer_selected=lambda api: api.edit(PODS, "web-0", {"metadata": {"labels": {"app": "x"}}}),
)
async def test_marks_that_nobody_owns_are_removed_when_the_intent_ends(
    api: Scene, end: Callable[[Scene], None], follows: int
) -> None:
    async with api.running(follows_seconds=follows):
        end(api)
        await settle(15)
    assert api.marks() == ({"own": "true"}, {}, {"c/users"})


async def test_marks_are_removed_if_the_marker_was_deleted_while_no_manager_ran(api: Scene) -> None:
    await api.run()
    api.remove(MARKERS, "web")
    await api.run(seconds=15)
    assert api.marks() == ({"own": "true"}, {}, {"c/users"})
    assert api.find(MARKERS, "web") is None


async def test_values_that_another_manager_owns_stay(api: Scene) -> None:
    wire = api.read(PODS, "web-0")
    users = owned_fields(labels=["healthy"], annotations=["cost"])
    fields = [users | {"manager": "kubectl", "subresource": ""}]
    api.put(PODS, wire | {"metadata": wire["metadata"] | {"managedFields": fields}})
    async with api.running():
        await api.drop(MARKERS, "web", seconds=15)
    assert api.marks() == ({"healthy": "true", "own": "true"}, {"cost": "10"}, {"c/users"})
