"""What other controllers wait for: observedGeneration, and conditions on the pods of their markers."""

import json

import pytest
from support.builders import CREATED, pod_wire, state_wire
from support.linting import lint_text
from support.other_controllers import GAME, SANDBOX, UID
from support.scene import Scene
from support.wire import Json

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS

CONTROLLERS = [
    pytest.param(GAME, {"game.kruise.io/owner-gss": "minecraft"}, id="kruise-game"),
    pytest.param(SANDBOX, {"agents.kruise.io/sandbox-uid": UID}, id="agents"),
]


@pytest.mark.parametrize(("marker", "labels"), CONTROLLERS)
async def test_marker_of_another_controller_works(marker: Json, labels: Json) -> None:
    name, probe = marker["metadata"]["name"], marker["spec"]["probes"][0]
    containers = [{"name": probe["containerName"]}]
    api = Scene()
    api.put(PODS, pod_wire(labels=labels, containers=containers, started=["main", "minecraft"]))
    stored = {"namespace": "default", "uid": "m", "creationTimestamp": CREATED, "generation": 3}
    api.put(MARKERS, {**marker, "metadata": {**marker["metadata"], **stored}})
    async with api.running():
        (entry,) = api.read(NODE_POD_PROBES, "node-1")["spec"]["podProbes"]
        assert entry["probes"][0]["probe"] == probe["probe"]
        await api.report(state_wire(f"{name}#{probe['name']}", "Failed", "busy"))
    assert api.conditions().keys() == {probe["podConditionType"]}
    assert api.condition(probe["podConditionType"]) == ("False", "")
    assert api.conditions()[probe["podConditionType"]]["message"] == "busy"
    assert api.status(name)["observedGeneration"] == 3
    assert api.read(MARKERS, name)["spec"] == marker["spec"]


@pytest.mark.parametrize(("marker", "labels"), CONTROLLERS)
def test_marker_of_another_controller_has_no_findings(marker: Json, labels: Json) -> None:
    assert lint_text(json.dumps(marker)).findings == ()
