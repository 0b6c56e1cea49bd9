"""How often the manager writes one pod, over a fake API server with a daemon that reports at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.builders import (
    marker_wire,
    node_wire,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi, cluster_with, report
from support.running_manager import metric, running_manager, settle, settled_manager

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.controllers.pods.writes import (
    MARKS_BURST,
    MARKS_INTERVAL_SECONDS,
    MESSAGE_BURST,
)

Result = Callable[[str], tuple[str, str]]
"""Of a probe: its state and message."""

REPORT_SECONDS = 0.01


def succeeds(_: str) -> tuple[str, str]:
    return "Succeeded", "fine"


@asynccontextmanager
async def daemon(api: FakeApi, result: Result = succeeds) -> AsyncIterator[None]:
    """Publishes a result for every probe of the spec, and for nothing else, at once."""

    async def report() -> None:
        last: Any = []
        while True:
            found = api.get(NODE_POD_PROBES, "node-1") or {"spec": {}}
            statuses = [
                pod_status_wire(
                    {"metadata": entry},
                    *(state_wire(each["name"], *result(each["name"])) for each in entry["probes"]),
                )
                for entry in found["spec"].get("podProbes") or ()
            ]
            if "metadata" in found and statuses != last:
                last = statuses
                api.publish(*statuses)
            await asyncio.sleep(REPORT_SECONDS)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(report())
        yield
        task.cancel()


def cycle() -> FakeApi:
    """A writes `x` on pods without `y`, B writes `y` on pods with `x`."""
    api = FakeApi()
    api.put(NODES, node_wire())
    api.put(PODS, pod_wire())
    for name, operator, key, written in (
        ("a", "DoesNotExist", "y", "x"),
        ("b", "Exists", "x", "y"),
    ):
        selector = {"matchExpressions": [{"key": key, "operator": operator}]}
        probe = probe_wire(
            "p", condition=f"example.com/{name}", policies=[policy_wire(labels={written: "1"})]
        )
        api.put(MARKERS, marker_wire(name, selector=selector, probes=[probe]))
    return api


def pod_writes(api: FakeApi) -> int:
    return api.count("Pod")["Pod/status"]


async def test_e5_markers_in_a_selector_cycle_write_a_pod_at_a_limited_rate() -> None:
    api = cycle()
    async with running_manager(api), daemon(api):
        await settle(30)
        assert MARKS_BURST < pod_writes(api) <= MARKS_BURST + 2 + 30 / 10 + 1


async def test_e5_deleting_a_marker_of_a_cycle_removes_its_marks_within_an_interval() -> None:
    api = cycle()
    async with running_manager(api), daemon(api):
        await settle(30)
        api.remove(MARKERS, "a")
        api.remove(MARKERS, "b")
        await settle(21)
        assert (api.get(MARKERS, "a"), api.get(MARKERS, "b")) == (None, None)
        assert set(api.read(PODS, "web-0")["metadata"]["labels"]) == {"app"}


@pytest.fixture
def api() -> FakeApi:
    return cluster_with(policy_wire(labels={"l": "1"}))


def shown(api: FakeApi) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = api.read(PODS, "web-0")["status"]["conditions"]
    return next(each for each in conditions if each["type"] == "example.com/healthy")


async def test_messages_have_a_burst_and_the_newest_is_written(api: FakeApi) -> None:
    message = "0"
    async with running_manager(api), daemon(api, lambda _: ("Succeeded", message)):
        await settle()
        before = pod_writes(api)
        for number in range(1, 60):
            message = str(number)
            await settle(0.3)
        assert pod_writes(api) - before <= MESSAGE_BURST + 18 / 10 + 1
        await settle(11)
        assert shown(api)["message"] == "59"


async def test_annotations_from_messages_have_the_limit_of_messages(api: FakeApi) -> None:
    """Also of a marker without a condition. A new state among them is written at once."""
    values = [{"annotation": "l", "regex": "n(.*)"}, {"annotation": "a"}]
    policies = [policy_wire(from_message=values), policy_wire("Failed", annotations={"l": "none"})]
    api.put(MARKERS, marker_wire(probes=[probe_wire(condition=None, policies=policies)]))
    state, message = "Succeeded", "n0"
    async with running_manager(api), daemon(api, lambda _: (state, message)):
        await settle()
        before = pod_writes(api)
        for number in range(1, 60):
            message = f"n{number}"
            await settle(0.3)
        assert pod_writes(api) - before <= MESSAGE_BURST + 18 / 10 + 1
        assert marks(api) != ("59", "n59")
        state = "Failed"
        await settle(0.05)
        assert marks(api) == ("none", None)
        state = "Succeeded"
        await settle(0.05)
        assert marks(api) == ("59", "n59")
        message = "n60"
        await settle(11)
        assert marks(api) == ("60", "n60")


def marks(api: FakeApi) -> tuple[str | None, str | None]:
    annotations = api.read(PODS, "web-0")["metadata"].get("annotations") or {}
    return annotations.get("l"), annotations.get("a")


ROLE = policy_wire(from_message=[{"label": "role"}])


async def test_each_switch_of_a_role_is_written_at_once_with_one_event(api: FakeApi) -> None:
    """Twenty switches, one each 12 s, while the output also has a counter in its second line."""
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=[ROLE])]))
    role = "r0"
    async with running_manager(api) as recorder, daemon(api, lambda _: ("Succeeded", role)):
        await settle()
        for number in range(1, 21):
            role = f"r{number}"
            await settle(0.05)
            assert label_role(api) == role
            await settle(12)
        switches = [each for each in recorder.events if each.reason == "KruiseProbeLabelChanged"]
        assert [(each.about, each.type) for each in switches] == [("Pod/web-0", "Normal")] * 20
        assert switches[4].message == "web#healthy: role r4 → r5"


async def test_a_role_that_switches_each_second_is_limited_and_the_last_is_written(
    api: FakeApi,
) -> None:
    """Also if the pod has many other probes, which have a share for their first results."""
    others = [probe_wire(f"p{number}", condition=f"example.com/c{number}") for number in range(12)]
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=[ROLE]), *others]))
    role = "r0"
    async with running_manager(api), daemon(api, lambda _: ("Succeeded", role)):
        await settle()
        before = pod_writes(api)
        for number in range(1, 61):
            role = f"r{number}"
            await settle(1)
        assert pod_writes(api) - before <= 6 + MESSAGE_BURST + 60 / 10 + 1
        await settle(11)
        assert label_role(api) == "r60"


def label_role(api: FakeApi) -> str | None:
    role: str | None = api.read(PODS, "web-0")["metadata"]["labels"].get("role")
    return role


async def test_markers_whose_writes_are_limited_report_it_until_they_are_not() -> None:
    api = cycle()

    def reason() -> str:
        conditions = {each["type"]: each for each in api.read(MARKERS, "b")["status"]["conditions"]}
        return str(conditions["Degraded"]["reason"])

    async with running_manager(api), daemon(api):
        await settle(30)
        assert reason() == "WritesLimited"
        api.remove(MARKERS, "a")
        await settle(60)
        assert reason() == "AsExpected"


async def test_states_are_written_at_once_among_messages(api: FakeApi) -> None:
    state, message = "Succeeded", "0"
    async with running_manager(api), daemon(api, lambda _: (state, message)):
        await settle()
        for number in range(1, 40):
            message = str(number)
            await settle(0.2)
            if number % 10 == 0:
                state = "Failed" if state == "Succeeded" else "Succeeded"
                await settle(0.05)
                status = "True" if state == "Succeeded" else "False"
                assert (shown(api)["status"], shown(api)["message"]) == (status, message)


async def test_every_new_state_of_a_flapping_probe_is_written(api: FakeApi) -> None:
    state = "Succeeded"
    async with running_manager(api), daemon(api, lambda _: (state, "")):
        await settle()
        before = pod_writes(api)
        for _ in range(50):
            state = "Failed" if state == "Succeeded" else "Succeeded"
            await settle(1)
        assert pod_writes(api) - before == 50


async def test_marks_that_others_keep_removing_are_written_at_a_limited_rate(
    api: FakeApi,
) -> None:
    async with running_manager(api), daemon(api):
        await settle()
        before = pod_writes(api)
        for _ in range(200):
            api.edit(PODS, "web-0", {"metadata": {"labels": {"l": None}}})
            await settle(0.1)
        assert pod_writes(api) - before <= MARKS_BURST + 20 / 10 + 1
        await settle(11)
        assert api.read(PODS, "web-0")["metadata"]["labels"]["l"] == "1"


async def test_a_write_waits_for_its_token_even_if_it_is_less_than_a_second(api: FakeApi) -> None:
    def has_label() -> bool:
        pod = api.read(PODS, "web-0")
        return "l" in pod["metadata"]["labels"]

    async with running_manager(api), daemon(api):
        await settle(15)
        for _ in range(MARKS_BURST + 1):  # the pod has one probe
            api.edit(PODS, "web-0", {"metadata": {"labels": {"l": None}}})
            await settle(0.01)
            assert has_label()
        await settle(MARKS_INTERVAL_SECONDS - 0.5)
        delayed = "kruise_probe_pod_writes_delayed_total"
        before = metric(delayed, cause="marks")
        api.edit(PODS, "web-0", {"metadata": {"labels": {"l": None}}})
        await settle(0.1)
        assert not has_label()
        assert metric(delayed, cause="marks") == before + 1
        await settle(0.5)
        assert has_label()


async def test_first_results_of_30_probes_are_each_written_at_once(api: FakeApi) -> None:
    probes = [probe_wire(f"p{number}", condition=f"example.com/c{number}") for number in range(30)]
    api.put(MARKERS, marker_wire(probes=probes))
    async with settled_manager(api):
        for known in range(1, 31):
            report(api, *(state_wire(f"web#p{number}") for number in range(known)))
            await settle(0.3)
            assert pod_writes(api) == known
