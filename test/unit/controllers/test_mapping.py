"""What events ask for, and how urgently."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from support.builders import (
    Json,
    condition_wire,
    lease,
    marker,
    node,
    npp,
    owned_fields,
    pod,
    pod_status_wire,
    pod_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi
from support.running_manager import START, informers_over

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.mapping.keys import GATHER_SECONDS, Keys, Stagger
from kruise_probe.controllers.mapping.markers import MarkerEvents
from kruise_probe.controllers.mapping.node_pod_probes import NodePodProbeEvents
from kruise_probe.controllers.mapping.nodes import LeaseEvents, NodeEvents
from kruise_probe.controllers.mapping.pods import PodEvents
from kruise_probe.controllers.markers.pace import CensusPace
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue

KEY = NamespacedName("default", "web-0")


class Asked:
    """Handlers over caches, and the queues that they fill."""

    def __init__(self) -> None:
        self.caches = Caches(informers_over(FakeApi()), now=lambda: START)
        self.seen: list[NamespacedName] = []
        self.provider_news: list[NamespacedName] = []
        self.gone: list[NamespacedName] = []
        self.silent = False
        self.forget()

    def matched(self) -> "Asked":
        """With a marker of the pods `app=web`, nothing asked yet."""
        self.marker_events.on_add(marker(), is_initial=False)
        self.forget()
        return self

    def forget(self) -> None:
        """Empty queues, and handlers that fill them; the caches stay."""
        self.markers: WorkQueue[NamespacedName] = WorkQueue(name="")
        self.keys = Keys(
            pods=WorkQueue(name=""),
            nodes=WorkQueue(name=""),
            agents=WorkQueue(name=""),
            census=CensusPace(self.markers),
            stagger=Stagger(),
        )
        caches, keys = self.caches, self.keys
        self.pod_events = PodEvents(
            caches, keys, state_changed=self.provider_news.append, gone=self.gone.append
        )
        self.marker_events = MarkerEvents(caches, keys)
        self.node_events = NodeEvents(caches, keys)
        self.npp_events = NodePodProbeEvents(
            caches,
            keys,
            result_seen=lambda key, _: self.seen.append(key),
            is_silent=lambda _: self.silent,
        )
        self.lease_events = LeaseEvents(
            caches, keys, is_silent=lambda _: self.silent, now=lambda: START
        )

    @property
    def pods(self) -> dict[NamespacedName, Priority]:
        return dict(self.keys.pods.metrics.dirty)

    @property
    def nodes(self) -> dict[str, Priority]:
        return dict(self.keys.nodes.metrics.dirty)

    @property
    def agents(self) -> set[str]:
        return set(self.keys.agents.metrics.dirty)

    @property
    def counted(self) -> set[str]:
        return {each.name for each in self.markers.metrics.dirty}


def changed(**more: Any) -> tuple[Pod, Pod]:
    return pod(), pod(**more)


class TestPods:
    @pytest.mark.parametrize(
        ("old", "new", "pods", "nodes", "counted"),
        [
            pytest.param(*changed(ip="127.9.9.9"), True, True, True, id="ip"),
            pytest.param(*changed(initialized=False), True, True, True, id="initialised"),
            pytest.param(*changed(phase="Failed"), True, True, True, id="phase"),
            pytest.param(*changed(deleting=True), True, True, True, id="deleting"),
            pytest.param(*changed(started=["main"]), True, True, True, id="started"),
            pytest.param(*changed(labels={"app": "db"}), True, True, True, id="stops-matching"),
            pytest.param(
                *changed(labels={"app": "web", "x": "1"}), True, False, False, id="another-label"
            ),
            pytest.param(*changed(annotations={"a": "1"}), True, False, False, id="annotation"),
            pytest.param(
                *changed(conditions=[condition_wire("c/x")]), True, False, False, id="condition"
            ),
            pytest.param(*changed(), False, False, False, id="nothing-that-we-read"),
            pytest.param(
                pod(labels={}),
                pod(labels={}, ip="127.9.9.9"),
                False,
                False,
                False,
                id="a-pod-that-concerns-nobody",
            ),
            pytest.param(
                pod(labels={}),
                pod(labels={"x": "1"}, owned=owned_fields(labels=["x"])),
                True,
                False,
                False,
                id="leftovers-without-a-marker",
            ),
        ],
    )
    async def test_a_change_asks_for_what_it_can_change(
        self, old: Pod, new: Pod, pods: bool, nodes: bool, counted: bool
    ) -> None:
        asked = Asked().matched()
        asked.pod_events.on_update(old, new)
        assert bool(asked.pods) is pods
        assert set(asked.nodes) == ({"node-1"} if nodes else set())
        assert asked.counted == ({"web"} if counted else set())

    async def test_a_gate_that_is_let_go_of_asks_for_what_a_deletion_waits_for(self) -> None:
        def gated(**more: str) -> Pod:
            gate = "example.com/healthy"
            return pod(
                labels={},
                readiness_gates=[gate],
                conditions=[condition_wire(gate, **more)],
                owned=owned_fields(conditions=[gate]),
            )

        asked = Asked()
        asked.marker_events.on_add(marker(deleting=True), is_initial=False)
        asked.forget()
        asked.pod_events.on_update(gated(), gated(message="news"))
        assert (set(asked.nodes), asked.counted) == (set(), set())
        asked.pod_events.on_update(gated(), gated(reason="ProbeRemoved"))
        assert (set(asked.nodes), asked.counted) == (set(), {"web"})
        await asyncio.sleep(GATHER_SECONDS)
        assert set(asked.nodes) == {"node-1"}

    async def test_a_pod_that_starts_to_match_asks_for_everything(self) -> None:
        asked = Asked().matched()
        asked.pod_events.on_update(pod(labels={}), pod())
        assert (set(asked.pods), set(asked.nodes), asked.counted) == ({KEY}, {"node-1"}, {"web"})

    async def test_a_new_pod_asks_at_once_and_an_initial_one_later_and_low(self) -> None:
        asked = Asked().matched()
        asked.pod_events.on_add(pod(), is_initial=False)
        assert asked.pods == {KEY: Priority.NORMAL}
        asked.forget()
        asked.pod_events.on_add(pod(), is_initial=True)
        assert asked.pods == {}
        key, priority = await asked.keys.pods.get_with_priority()
        assert (key, priority) == (KEY, Priority.LOW)

    async def test_a_pod_that_concerns_nobody_asks_for_nothing(self) -> None:
        asked = Asked().matched()
        asked.pod_events.on_add(pod(labels={}), is_initial=False)
        asked.pod_events.on_delete(pod(labels={}))
        assert (asked.pods, asked.nodes, asked.counted) == ({}, {}, set())


async def test_initial_keys_are_spread_over_time() -> None:
    stagger = Stagger()
    delays = [stagger.delay_seconds() for _ in range(5000)]
    assert delays[-1] == pytest.approx(1.0)
    assert delays == sorted(delays)


class TestResults:
    def statuses(self, state: str = "Succeeded", message: str = "m", probed: str = "t") -> Any:
        states = state_wire(state=state, message=message, probed=probed)
        return npp(statuses=[pod_status_wire(pod_wire(), states)])

    @pytest.mark.parametrize(
        ("change", "urgent"),
        [
            pytest.param({"state": "Failed"}, True, id="state"),
            pytest.param({"message": "n"}, True, id="message"),
            pytest.param({"probed": "u"}, False, id="time-only"),
        ],
    )
    async def test_a_changed_result_is_urgent_and_a_newer_time_is_nothing(
        self, change: dict[str, str], urgent: bool
    ) -> None:
        asked = Asked().matched()
        asked.npp_events.on_add(self.statuses(), is_initial=True)
        asked.forget()
        asked.npp_events.on_update(self.statuses(), self.statuses(**change))
        assert asked.pods == ({KEY: Priority.HIGH} if urgent else {})
        assert asked.seen == ([KEY] if urgent else [])
        assert asked.counted == ({"web"} if urgent else set())
        assert asked.nodes == {}

    async def test_a_spec_that_somebody_edited_asks_for_the_plan(self) -> None:
        asked = Asked().matched()
        entry: Json = {"name": "x", "namespace": "default", "uid": "u", "IP": "", "probes": []}
        asked.npp_events.on_add(npp(), is_initial=True)
        asked.forget()
        edited = npp(entries=[entry])
        meta = msgspec.structs.replace(edited.metadata, generation=2)
        asked.npp_events.on_update(npp(), msgspec.structs.replace(edited, metadata=meta))
        assert asked.nodes == {"node-1": Priority.NORMAL}


class TestLeases:
    async def test_a_renewal_in_time_asks_for_nothing(self) -> None:
        asked = Asked()
        asked.lease_events.on_add(lease(), is_initial=True)
        assert asked.agents == {"node-1"}
        asked.forget()
        asked.lease_events.on_update(lease(), lease(renewed="2026-01-01T00:00:10Z"))
        assert asked.agents == set()

    @pytest.mark.parametrize(
        "act",
        [
            pytest.param(lambda on: on.on_update(lease(), lease(seconds=10)), id="duration"),
            pytest.param(
                lambda on: on.on_update(lease(), lease(renewed="2025-12-31T23:00:00Z")),
                id="set-back",
            ),
            pytest.param(lambda on: on.on_delete(lease()), id="deleted"),
        ],
    )
    async def test_what_moves_the_expiry_asks_for_a_look(
        self, act: Callable[[LeaseEvents], None]
    ) -> None:
        asked = Asked()
        asked.lease_events.on_add(lease(), is_initial=True)
        asked.forget()
        act(asked.lease_events)
        assert asked.agents == {"node-1"}

    async def test_a_renewal_of_a_silent_agent_asks_at_once(self) -> None:
        asked = Asked()
        asked.lease_events.on_add(lease(), is_initial=True)
        asked.forget()
        asked.silent = True
        asked.lease_events.on_update(lease(), lease(renewed="2026-01-01T00:00:10Z"))
        assert asked.agents == {"node-1"}


class TestNodes:
    async def test_a_heartbeat_of_a_node_asks_for_nothing(self) -> None:
        asked = Asked()
        asked.node_events.on_update(node(labels={"a": "1"}), node(labels={"a": "2"}))
        assert asked.nodes == {}

    async def test_another_uid_asks_for_the_owner(self) -> None:
        asked = Asked()
        asked.node_events.on_update(node(), node(uid="another"))
        assert asked.nodes == {"node-1": Priority.NORMAL}


class TestMarkers:
    @pytest.mark.parametrize(
        ("probes", "pods", "nodes"),
        [
            pytest.param([{"periodSeconds": 7}], False, True, id="period"),
            pytest.param([{"condition": "c/new"}], True, False, id="condition-type"),
            pytest.param([{"container": "other"}], True, True, id="container"),
        ],
    )
    async def test_an_edit_asks_for_what_it_concerns(
        self, probes: list[Json], pods: bool, nodes: bool
    ) -> None:
        asked = Asked().matched()
        asked.pod_events.on_add(pod(), is_initial=False)
        asked.forget()
        edited = marker(generation=2, probes=[probe_wire(**each) for each in probes])
        asked.marker_events.on_update(marker(), edited)
        assert set(asked.pods) == ({KEY} if pods else set())
        assert set(asked.nodes) == ({"node-1"} if nodes else set())
        assert asked.counted == {"web"}

    async def test_a_status_that_somebody_edited_asks_for_a_census_only(self) -> None:
        asked = Asked().matched()
        asked.marker_events.on_update(marker(), marker(status={"matchedPods": 77}))
        assert (asked.pods, asked.nodes, asked.counted) == ({}, {}, {"web"})

    async def test_a_deletion_asks_for_pods_node_by_node(self) -> None:
        asked = Asked().matched()
        for number, on in enumerate("baab"):
            asked.pod_events.on_add(pod(f"web-{number}", node=on), is_initial=False)
        asked.forget()
        asked.marker_events.on_update(marker(), marker(deleting=True))
        assert [key.name for key in asked.pods] == ["web-1", "web-2", "web-0", "web-3"]

    @pytest.mark.parametrize(
        ("deleting", "marked", "pods"),
        [
            pytest.param(True, False, False, id="after-its-marks"),
            pytest.param(True, True, True, id="before-its-marks"),
            pytest.param(False, False, True, id="unannounced"),
        ],
    )
    async def test_the_end_of_a_marker_asks_for_pods_that_may_still_show_it(
        self, deleting: bool, marked: bool, pods: bool
    ) -> None:
        asked = Asked().matched()
        owned = owned_fields(labels=["tier"]) if marked else None
        asked.pod_events.on_add(pod(owned=owned), is_initial=False)
        last_known = marker(deleting=deleting)
        asked.marker_events.on_update(marker(), last_known)
        asked.forget()
        asked.marker_events.on_delete(last_known)
        assert set(asked.pods) == ({KEY} if pods else set())
