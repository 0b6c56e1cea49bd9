"""What other controllers wait for: observedGeneration, and conditions on the pods of their markers."""

import json

import pytest
from support.builders import CREATED, node_wire, pod_wire, state_wire
from support.fake_api import FakeApi, report
from support.linting import lint_text
from support.other_controllers import GAME, SANDBOX, UID, Json
from support.running_manager import settle, settled_manager

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS

CONTROLLERS = [
    pytest.param(GAME, {"game.kruise.io/owner-gss": "minecraft"}, id="kruise-game"),
    pytest.param(SANDBOX, {"agents.kruise.io/sandbox-uid": UID}, id="agents"),
]


@pytest.mark.parametrize(("marker", "labels"), CONTROLLERS)
async def test_marker_of_another_controller_works(marker: Json, labels: Json) -> None:
    name, probe = marker["metadata"]["name"], marker["spec"]["probes"][0]
    api = FakeApi()
    api.put(NODES, node_wire())
    containers = [{"name": probe["containerName"]}]
    api.put(PODS, pod_wire(labels=labels, containers=containers, started=["main", "minecraft"]))
    stored = {"namespace": "default", "uid": "m", "creationTimestamp": CREATED, "generation": 3}
    api.put(MARKERS, {**marker, "metadata": {**marker["metadata"], **stored}})
    async with settled_manager(api):
        entry = (api.get(NODE_POD_PROBES, "node-1") or {})["spec"]["podProbes"][0]
        report(api, state_wire(f"{name}#{probe['name']}", "Failed", "busy"))
        await settle()
        pod, after = api.get(PODS, "web-0") or {}, api.get(MARKERS, name) or {}

    assert entry["probes"][0]["probe"] == probe["probe"]
    written = [each for each in pod["status"]["conditions"] if "kruise.io" in each["type"]]
    assert [(each["type"], each["status"], each["message"]) for each in written] == [
        (probe["podConditionType"], "False", "busy")
    ]
    assert after["status"]["observedGeneration"] == 3
    assert after["spec"] == marker["spec"]


@pytest.mark.parametrize(("marker", "labels"), CONTROLLERS)
def test_marker_of_another_controller_has_no_findings(marker: Json, labels: Json) -> None:
    assert lint_text(json.dumps(marker)).findings == ()
