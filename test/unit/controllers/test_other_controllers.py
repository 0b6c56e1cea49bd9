"""What other controllers wait for: observedGeneration, and conditions on the pods of their markers."""

import json

import pytest
from support.builders import CREATED, pod_wire, state_wire
from support.linting import lint_text
from support.other_controllers import GAME, SANDBOX, UID
from support.scene import Scene
from support.wire import Json
from unit.controllers.common import FALSE

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS

SELECTED = {
    "kruise-game": (GAME, {"game.kruise.io/owner-gss": "minecraft"}),
    "agents": (SANDBOX, {"agents.kruise.io/sandbox-uid": UID}),
}
"""By controller: its marker, and labels of the pods that it selects."""
STORED = {
    "namespace": "default",
    "uid": "m",
    "creationTimestamp": CREATED,
    "generation": 3,
}
"""What the API server adds to the metadata."""


@pytest.mark.parametrize(("marker", "labels"), SELECTED.values(), ids=SELECTED)
async def test_marker_of_another_controller_works(marker: Json, labels: Json) -> None:
    probe = marker["spec"]["probes"][0]
    condition = probe["podConditionType"]
    pod = pod_wire(
        labels=labels,
        containers=[{"name": probe["containerName"]}],
        started=["main", "minecraft"],
    )
    name = marker["metadata"]["name"]
    api = Scene()
    api.put(PODS, pod)
    api.put(MARKERS, marker | {"metadata": marker["metadata"] | STORED})
    async with api.running():
        (entry,) = api.read(NODE_POD_PROBES, "node-1")["spec"]["podProbes"]
        assert entry["probes"][0]["probe"] == probe["probe"]
        await api.report(state_wire(f"{name}#{probe['name']}", "Failed", "busy"))
    assert api.conditions().keys() == {condition}
    assert api.condition(condition) == FALSE
    assert api.conditions()[condition]["message"] == "busy"
    assert api.status(name)["observedGeneration"] == 3
    assert api.read(MARKERS, name)["spec"] == marker["spec"]


@pytest.mark.parametrize("marker", [GAME, SANDBOX], ids=SELECTED)
def test_marker_of_another_controller_has_no_findings(marker: Json) -> None:
    assert lint_text(json.dumps(marker)).findings == ()
