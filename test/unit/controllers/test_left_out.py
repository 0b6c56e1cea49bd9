"""Probes that a limit leaves out are Unknown on their pods until there is room. The whole product over a fake API."""

from collections.abc import Iterable
from typing import Any

import pytest
from support.builders import (
    Json,
    marker_wire,
    node_wire,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi, report
from support.running_manager import metric, settle, settled_manager

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.controllers.limits import MARKERS_PER_POD

PODS_OF_TWO = 20
KEPT = 16
CONDITION = "example.com/healthy"


def large_probe(size: int, **more: Any) -> Json:
    return probe_wire(handler={"httpGet": {"port": 80, "path": "/" + "x" * size}}, **more)


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.put(NODES, node_wire())
    return api


@pytest.fixture
def crowded(api: FakeApi) -> FakeApi:
    """One node, and more pods of 60 KB each than its NodePodProbe has room for."""
    for number in range(PODS_OF_TWO):
        api.put(PODS, pod_wire(f"web-{number:02}"))
    policies = [policy_wire("Succeeded", {"healthy": "true"})]
    api.put(MARKERS, marker_wire(probes=[large_probe(60_000, policies=policies)]))
    return api


def entries(api: FakeApi) -> set[str]:
    npp = api.get(NODE_POD_PROBES, "node-1")
    return {each["name"] for each in (npp or {})["spec"].get("podProbes", ())}


def report_all(api: FakeApi, names: Iterable[str], state: str = "Succeeded") -> None:
    """The daemon publishes a result of what its NodePodProbe holds."""
    pods = [api.read(PODS, name) for name in sorted(names)]
    api.publish(*(pod_status_wire(pod, state_wire(state=state)) for pod in pods))


def conditions(api: FakeApi, pod: str) -> dict[str, Json]:
    return {each["type"]: each for each in api.read(PODS, pod)["status"]["conditions"]}


def condition_on(api: FakeApi, pod: str, type: str = CONDITION) -> tuple[str, str]:
    condition = conditions(api, pod).get(type, {})
    return condition.get("status", ""), condition.get("reason", "")


def degraded(api: FakeApi, name: str = "web") -> Json:
    wire = api.read(MARKERS, name)
    return next(each for each in wire["status"]["conditions"] if each["type"] == "Degraded")


def left_out(reason: str) -> float:
    return metric("kruise_probe_probes_left_out", reason=reason)


async def test_only_pods_without_room_become_unknown(crowded: FakeApi) -> None:
    async with settled_manager(crowded):
        kept = entries(crowded)
        report_all(crowded, kept)
        await settle()
        assert len(kept) == KEPT
        for number in range(PODS_OF_TWO):
            name = f"web-{number:02}"
            expected = ("True", "") if name in kept else ("Unknown", "NoRoom")
            assert condition_on(crowded, name) == expected
        assert left_out("NoRoom") == PODS_OF_TWO - KEPT
        assert degraded(crowded)["reason"] == "NoRoom"
        counted = f"{PODS_OF_TWO - KEPT} of {PODS_OF_TWO} pods are not probed"
        assert degraded(crowded)["message"].startswith(counted)
        writes = len(crowded.writes)
        await settle(700)
        assert crowded.count("Pod", since=writes) == {}


async def test_a_displaced_probe_becomes_unknown_and_keeps_its_marks(crowded: FakeApi) -> None:
    for number in range(KEPT, PODS_OF_TWO):
        crowded.remove(PODS, f"web-{number:02}")
    async with settled_manager(crowded):
        report_all(crowded, entries(crowded))
        await settle()
        other = marker_wire("other", namespace="tenant", probes=[large_probe(60_000)])
        crowded.put(MARKERS, other)
        for number in range(KEPT):
            crowded.put(PODS, pod_wire(f"x-{number:02}", namespace="tenant"))
        await settle()
        kept = entries(crowded)
        displaced = {f"web-{number:02}" for number in range(KEPT)} - kept
        assert len(kept) == KEPT
        assert len(displaced) == KEPT // 2
        for name in displaced:
            wire = crowded.get(PODS, name)
            assert wire is not None
            assert wire["metadata"]["labels"]["healthy"] == "true"
            assert condition_on(crowded, name) == ("Unknown", "NoRoom")


async def test_with_room_again_the_real_state_is_written(crowded: FakeApi) -> None:
    async with settled_manager(crowded):
        kept = entries(crowded)
        report_all(crowded, kept)
        await settle()
        gone = sorted(kept)[: PODS_OF_TWO - KEPT]
        for name in gone:
            crowded.remove(PODS, name)
        await settle()
        report_all(crowded, entries(crowded), "Failed")
        await settle()
        for number in range(PODS_OF_TWO):
            if f"web-{number:02}" not in gone:
                assert condition_on(crowded, f"web-{number:02}") == ("False", "")
        assert left_out("NoRoom") == 0
        assert degraded(crowded)["status"] == "False"


async def test_a_restart_writes_nothing_and_keeps_all_marks(crowded: FakeApi) -> None:
    async with settled_manager(crowded):
        report_all(crowded, entries(crowded))
        await settle()
    everything = {f"web-{number:02}" for number in range(PODS_OF_TWO)}
    without = everything - entries(crowded)
    report_all(crowded, everything)
    writes = len(crowded.writes)
    async with settled_manager(crowded):
        assert crowded.count("Pod", since=writes) == {}
        assert {condition_on(crowded, name) for name in without} == {("Unknown", "NoRoom")}


async def test_an_edit_over_the_limit_of_an_entry_is_reported(api: FakeApi) -> None:
    api.put(PODS, pod_wire())
    api.put(MARKERS, marker_wire(probes=[large_probe(60_000)]))
    async with settled_manager(api) as recorder:
        report(api, state_wire())
        await settle()
        for size, entry, shown in ((66_000, set(), "Unknown"), (60_000, {"web-0"}, "True")):
            edited = {"probes": [large_probe(size)]}
            api.edit(MARKERS, "web", {"spec": edited, "metadata": {"generation": size}})
            await settle()
            assert entries(api) == entry
            assert condition_on(api, "web-0")[0] == shown
            report(api, state_wire())
            await settle()
        warnings = [each.reason for each in recorder.events]
        assert warnings == ["EntryTooLarge"]


async def test_a_marker_over_the_limit_reports_it_and_follows_when_one_is_deleted(
    api: FakeApi,
) -> None:
    api.put(PODS, pod_wire())
    for number in range(MARKERS_PER_POD + 2):
        probes = [probe_wire("p", condition=f"c/{number}")]
        created = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        api.put(MARKERS, marker_wire(f"m{number}", created=created, probes=probes))
    async with settled_manager(api) as recorder:
        last = MARKERS_PER_POD + 1
        assert condition_on(api, "web-0", f"c/{last}") == ("Unknown", "TooManyMarkers")
        assert f"c/{MARKERS_PER_POD - 1}" not in conditions(api, "web-0")
        assert degraded(api, f"m{last}")["reason"] == "TooManyMarkers"
        assert degraded(api, f"m{last}")["message"].startswith("1 of 1 pods are not probed")
        assert [each.reason for each in recorder.events] == ["TooManyMarkers"] * 2
        assert left_out("TooManyMarkers") == 2

        api.edit(MARKERS, "m0", {"metadata": {"finalizers": None}})
        api.remove(MARKERS, "m0")
        await settle()
        assert left_out("TooManyMarkers") == 1
        report(api, state_wire(f"m{MARKERS_PER_POD}#p"))
        await settle()
        assert condition_on(api, "web-0", f"c/{MARKERS_PER_POD}") == ("True", "")
        assert condition_on(api, "web-0", f"c/{last}") == ("Unknown", "TooManyMarkers")


@pytest.mark.parametrize(
    "gated",
    [
        pytest.param({"initialized": False}, id="not-initialised"),
        pytest.param({"node": ""}, id="no-node"),
        pytest.param({"phase": "Succeeded"}, id="finished"),
    ],
)
async def test_a_pod_that_is_not_probed_is_not_left_out(api: FakeApi, gated: Json) -> None:
    api.put(PODS, pod_wire(**gated))
    api.put(MARKERS, marker_wire(probes=[large_probe(66_000)]))
    async with settled_manager(api):
        assert CONDITION not in conditions(api, "web-0")
