"""How often the manager writes one pod, over a fake API server with a daemon that reports at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.background import background
from support.builders import pod_status_wire, policy_wire, probe_wire, state_wire
from support.metrics import counted
from support.running_manager import running_manager, settle
from support.scene import C, Scene, scene
from support.wire import Json
from unit.controllers.common import marker_reason, numbered_probes

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES
from kruise_probe.controllers.writes import MARKS_BURST, MARKS_INTERVAL_SECONDS, MESSAGE_BURST


class Reported(Scene):
    """A scene whose daemon publishes `state` and `message` of every probe of the spec, at once.

    Attributes:
        state: of all probes.
        message: of all probes.
    """

    state = "Succeeded"
    message = "fine"

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """The manager and the daemon run, and the first results are written."""
        async with running_manager(self), background(self._report()):
            await settle()
            yield

    async def _report(self) -> None:
        last: list[Json] = []
        while True:
            await asyncio.sleep(0.01)
            found = self.find(NODE_POD_PROBES, "node-1")
            if not found:
                continue
            entries = found["spec"].get("podProbes") or ()
            statuses = [self._status_of(entry) for entry in entries]
            if statuses != last:
                last = statuses
                self.publish(*statuses)

    def _status_of(self, entry: Json) -> Json:
        states = [state_wire(probe["name"], self.state, self.message) for probe in entry["probes"]]
        return pod_status_wire({"metadata": entry}, *states)

    @property
    def pod_writes(self) -> int:
        return self.count("Pod")["Pod/status"]


@pytest.fixture
def api() -> Reported:
    return reported(probe_wire(policies=[policy_wire(labels={"l": "1"})]))


def reported(*probes: Json) -> Reported:
    api = Reported()
    api.put_node("node-1", "web-0")
    api.put_marker(*probes)
    return api


@pytest.fixture
def cycle() -> Reported:
    """A writes `x` on pods without `y`, B writes `y` on pods with `x`."""
    api = Reported()
    api.put_node("node-1", "web-0")
    for name, operator, key, written in (
        ("a", "DoesNotExist", "y", "x"),
        ("b", "Exists", "x", "y"),
    ):
        probe = probe_wire(
            "p",
            condition=f"c/{name}",
            policies=[policy_wire(labels={written: "1"})],
        )
        selector = {"matchExpressions": [{"key": key, "operator": operator}]}
        api.put_marker(probe, name=name, selector=selector)
    return api


async def test_e5_markers_in_a_selector_cycle_write_a_pod_at_a_limited_rate(
    cycle: Reported,
) -> None:
    """Both report it, until there is no cycle."""
    async with cycle.reporting():
        await settle(26)
        assert MARKS_BURST < cycle.pod_writes <= MARKS_BURST + 2 + 30 / 10 + 1
        assert marker_reason(cycle, marker="b") == "WritesLimited"
        await cycle.drop(MARKERS, "a", seconds=60)
        assert marker_reason(cycle, marker="b") == "AsExpected"


async def test_e5_deleting_a_marker_of_a_cycle_removes_its_marks_within_an_interval(
    cycle: Reported,
) -> None:
    async with cycle.reporting():
        await settle(26)
        cycle.remove(MARKERS, "a")
        await cycle.drop(MARKERS, "b", seconds=21)
        assert cycle.find(MARKERS, "a") is None
        assert cycle.find(MARKERS, "b") is None
        assert cycle.labels() == {}


async def test_annotations_from_messages_have_the_limit_of_messages() -> None:
    """Also of a marker without a condition. A new state among them is written at once."""
    values = [{"annotation": "l", "regex": "n(.*)"}, {"annotation": "a"}]
    policies = [
        policy_wire(from_message=values),
        policy_wire("Failed", annotations={"l": "none"}),
    ]
    api = reported(probe_wire(condition=None, policies=policies))
    api.message = "n0"
    async with api.reporting():
        before = api.pod_writes
        for number in range(1, 60):
            api.message = f"n{number}"
            await settle(0.3)
        assert api.pod_writes - before <= MESSAGE_BURST + 18 / 10 + 1
        newest = {"l": "59", "a": "n59"}
        assert api.annotations() != newest
        for state, expected in (("Failed", {"l": "none"}), ("Succeeded", newest)):
            api.state = state
            await settle(0.05)
            assert api.annotations() == expected
        api.message = "n60"
        await settle(11)
        assert api.annotations() == {"l": "60", "a": "n60"}


ROLE = probe_wire(policies=[policy_wire(from_message=[{"label": "role"}])])


async def test_each_switch_of_a_role_is_written_at_once_with_one_event() -> None:
    """Twenty switches, one each 12 s, while the output also has a counter in its second line."""
    api = reported(ROLE)
    api.message = "r0"
    async with api.reporting():
        for number in range(1, 21):
            api.message = f"r{number}"
            await settle(0.05)
            assert api.labels() == {"role": f"r{number}"}
            await settle(12)
    switches = [event for event in api.events if event.reason == "KruiseProbeLabelChanged"]
    assert [event[:2] for event in switches] == [("Pod/web-0", "Normal")] * 20
    assert switches[4].message == "web#healthy: role r4 → r5"


async def test_a_role_that_switches_each_second_is_limited_and_the_last_is_written() -> None:
    """Also if the pod has many other probes, which have a share for their first results."""
    api = reported(ROLE, *numbered_probes(12))
    async with api.reporting():
        before = api.pod_writes
        for number in range(1, 61):
            api.message = f"r{number}"
            await settle(1)
        assert api.pod_writes - before <= 6 + MESSAGE_BURST + 60 / 10 + 1
        await settle(11)
        assert api.labels() == {"role": "r60"}


async def test_states_are_written_at_once_among_messages(api: Reported) -> None:
    number = 0
    async with api.reporting():
        for state, status in (("Failed", "False"), ("Succeeded", "True"), ("Failed", "False")):
            for _ in range(10):
                number += 1
                api.message = str(number)
                await settle(0.2)
            api.state = state
            await settle(0.05)
            assert api.condition() == (status, "")
            assert api.conditions()[C]["message"] == api.message


async def test_a_write_waits_for_its_token_even_if_it_is_less_than_a_second(api: Reported) -> None:
    async with api.reporting():
        await settle(11)
        for _ in range(MARKS_BURST + 1):  # the pod has one probe
            await api.relabel(l=None, seconds=0.01)
            assert api.labels() == {"l": "1"}
        await settle(MARKS_INTERVAL_SECONDS - 0.5)
        delayed = counted("kruise_probe_pod_writes_delayed_total", cause="marks")
        await api.relabel(l=None, seconds=0.1)
        assert api.labels() == {}
        assert delayed() == 1
        await settle(0.5)
        assert api.labels() == {"l": "1"}


async def test_first_results_of_30_probes_are_each_written_at_once() -> None:
    api = scene()
    api.put_marker(*numbered_probes(30))
    async with api.running():
        for known in range(1, 31):
            states = [state_wire(f"web#p{number}") for number in range(known)]
            await api.report(*states, seconds=0.3)
            assert api.count("Pod")["Pod/status"] == known
