"""Nothing on the pod shows that we wrote its marks: a webhook or a user emptied `managedFields`."""

from copy import deepcopy

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
from support.scene import C, Marks, Scene
from unit.controllers.common import (
    Action,
    assert_marker_is_gone,
    delete_marker,
    labels_patch,
    stamp,
)

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS

WITHOUT_OURS: Marks = ({"own": "true"}, {}, {"c/users"})


@pytest.fixture
def api(api: Scene) -> Scene:
    wire = pod_wire(
        labels={"app": "web", "healthy": "true", "own": "true"},
        annotations={"cost": "10"},
        conditions=[condition_wire(C), condition_wire("c/users")],
    )
    api.put(PODS, wire)
    results = pod_status_wire(
        wire,
        state_wire(probed=stamp(1)),
    )
    api.put(
        NODE_POD_PROBES,
        npp_wire(statuses=[results]),
    )
    return api


@cases("follows", leader=0, standby=10)
@cases(
    "end",
    marker_deleted=lambda api: api.remove(MARKERS, "web"),
    probe_removed=lambda api: api.put_marker(probe_wire("another", condition="c/b")),
    no_longer_selected=lambda api: api.edit(PODS, "web-0", labels_patch(app="x")),
)
async def test_marks_that_nobody_owns_are_removed_when_the_intent_ends(
    api: Scene,
    end: Action,
    follows: int,
) -> None:
    async with api.running(follows_seconds=follows):
        end(api)
        await settle(15)
    assert api.marks() == WITHOUT_OURS


async def test_marks_are_removed_if_the_marker_was_deleted_while_no_manager_ran(api: Scene) -> None:
    await api.run()
    api.remove(MARKERS, "web")
    await api.run(seconds=15)
    assert api.marks() == WITHOUT_OURS
    assert_marker_is_gone(api)


async def test_values_that_another_manager_owns_stay(api: Scene) -> None:
    owned = owned_fields(labels=["healthy"], annotations=["cost"])
    users = owned | {"manager": "kubectl", "subresource": ""}
    pod = deepcopy(api.read(PODS, "web-0"))
    pod["metadata"]["managedFields"] = [users]
    api.put(PODS, pod)
    async with api.running():
        await delete_marker(api, seconds=15)
    assert api.marks() == ({"healthy": "true", "own": "true"}, {"cost": "10"}, {"c/users"})
