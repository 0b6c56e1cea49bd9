"""Both markers of a selector cycle report it with one Warning each, until the cycle is broken."""

from itertools import permutations
from typing import Any

import pytest
from support.builders import marker_wire, node_wire, pod_wire, policy_wire, probe_wire
from support.fake_api import FakeApi
from support.running_manager import running_manager, settle

from kruise_probe.api.resources import MARKERS, NODES, PODS

Json = dict[str, Any]


def markers() -> dict[str, Json]:
    """A writes `x` on pods without `y`, B `y` on pods with `x`; C is not part of it."""
    shapes = {
        "a": ("x", {"key": "y", "operator": "DoesNotExist"}),
        "b": ("y", {"key": "x", "operator": "Exists"}),
        "c": ("z", {"key": "app", "operator": "In", "values": ["web"]}),
    }
    return {
        name: marker_wire(
            name,
            selector={"matchExpressions": [requirement]},
            probes=[
                probe_wire(
                    condition=f"example.com/{name}", policies=[policy_wire(labels={writes: "1"})]
                )
            ],
        )
        for name, (writes, requirement) in shapes.items()
    }


def conflict(api: FakeApi, name: str) -> tuple[str, str, str]:
    wire = api.get(MARKERS, name)
    assert wire is not None
    (found,) = [each for each in wire["status"]["conditions"] if each["type"] == "Conflict"]
    return found["status"], found["reason"], found["message"]


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put(NODES, node_wire())
    api.put(PODS, pod_wire())
    return api


@pytest.mark.parametrize("order", [*permutations("abc")], ids="".join)
async def test_both_markers_of_a_cycle_report_each_other_and_the_labels(
    api: FakeApi, order: tuple[str, ...]
) -> None:
    async with running_manager(api) as recorder:
        for name in order:
            api.put(MARKERS, markers()[name])
            await settle()
    for name, first, second in (("a", "x", "y"), ("b", "y", "x")):
        other = "b" if name == "a" else "a"
        status, reason, message = conflict(api, name)
        assert (status, reason) == ("True", "SelectorCycle")
        assert f"{name} writes label '{first}', by which {other} selects pods" in message
        assert f"{other} writes label '{second}', by which {name} selects pods" in message
        assert "Remove one of these labels" in message
    assert conflict(api, "c")[1] == "NoConflict"
    warned = [each.about for each in recorder.events if each.reason == "SelectorCycle"]
    assert sorted(warned) == ["PodProbeMarker/a", "PodProbeMarker/b"]


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "edited"])
async def test_the_end_of_a_cycle_updates_the_other_marker(api: FakeApi, deleted: bool) -> None:
    for each in markers().values():
        api.put(MARKERS, each)
    async with running_manager(api):
        await settle()
        assert conflict(api, "a")[0] == "True"
        if deleted:
            api.remove(MARKERS, "b")
        else:
            probe = probe_wire(policies=[policy_wire(labels={"other": "1"})])
            api.edit(MARKERS, "b", {"spec": {"probes": [probe]}})
        await settle(25)
        assert conflict(api, "a")[:2] == ("False", "NoConflict")


async def test_a_cycle_of_markers_that_select_no_pod_is_reported(api: FakeApi) -> None:
    api.remove(PODS, "web-0")
    for each in markers().values():
        api.put(MARKERS, each)
    async with running_manager(api):
        await settle()
    assert conflict(api, "b")[1] == "SelectorCycle"


async def test_a_restart_records_no_second_warning_of_a_cycle(api: FakeApi) -> None:
    for each in markers().values():
        api.put(MARKERS, each)
    async with running_manager(api) as first:
        await settle(15)
    async with running_manager(api) as second:
        await settle(15)
    assert len([each for each in first.events if each.reason == "SelectorCycle"]) == 2
    assert second.events == []
