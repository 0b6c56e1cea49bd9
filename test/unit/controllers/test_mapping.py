"""Which keys an event enqueues, and at which priority."""

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
from kruise_probe.controllers.daemon_leases import LeaseEvents
from kruise_probe.controllers.mapping.markers import MarkerEvents
from kruise_probe.controllers.mapping.nodes import NodeEvents, NodePodProbeEvents
from kruise_probe.controllers.mapping.pods import PodEvents
from kruise_probe.controllers.node_index import PodResultChange
from kruise_probe.controllers.pods.write_limits import WriteLimits
from kruise_probe.controllers.queues import GATHER_SECONDS, Queues
from kruise_probe.controllers.writes import NO_REFUSALS, WriteResults
from kruise_probe.workqueue.priority import Priority

KEY = NamespacedName("default", "web-0")


class Handlers:
    """Event handlers over caches, and the queues that they fill."""

    def __init__(self) -> None:
        self.caches = Caches(informers_over(FakeApi()), now=lambda: START)
        self.clear()

    def matched(self) -> "Handlers":
        """With a marker of the pods `app=web`, and empty queues."""
        self.marker_events.on_add(marker(), is_initial=False)
        self.clear()
        return self

    def clear(self) -> None:
        """New queues, and handlers that fill them; the caches stay."""
        caches, queues = self.caches, Queues()
        self.queues = queues
        self.limits = WriteLimits(message_interval_seconds=10.0)
        self.results = WriteResults(caches)
        self.pod_events = PodEvents(caches, queues, self.limits, self.results)
        self.marker_events = MarkerEvents(caches, queues)
        self.node_events = NodeEvents(caches, queues)
        self.npp_events = NodePodProbeEvents(caches, queues, self.limits)
        self.lease_events = LeaseEvents(caches, queues, now=lambda: START)

    @property
    def pods(self) -> dict[NamespacedName, Priority]:
        return dict(self.queues.pods.metrics.dirty)

    @property
    def nodes(self) -> dict[str, Priority]:
        return dict(self.queues.nodes.metrics.dirty)

    @property
    def leases(self) -> set[str]:
        return set(self.queues.leases.metrics.dirty)

    @property
    def markers(self) -> set[str]:
        return {each.name for each in self.queues.markers.metrics.dirty}


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
                id="an-unmatched-pod-without-marks",
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
    async def test_a_change_enqueues_only_the_keys_that_it_affects(
        self, old: Pod, new: Pod, pods: bool, nodes: bool, counted: bool
    ) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_update(old, new)
        assert bool(handlers.pods) is pods
        assert set(handlers.nodes) == ({"node-1"} if nodes else set())
        assert handlers.markers == ({"web"} if counted else set())

    async def test_a_released_readiness_gate_enqueues_the_deleted_marker_and_the_node(self) -> None:
        def gated(**more: str) -> Pod:
            gate = "example.com/healthy"
            return pod(
                labels={},
                readiness_gates=[gate],
                conditions=[condition_wire(gate, **more)],
                owned=owned_fields(conditions=[gate]),
            )

        handlers = Handlers()
        handlers.marker_events.on_add(marker(deleting=True), is_initial=False)
        handlers.clear()
        handlers.pod_events.on_update(gated(), gated(message="changed"))
        assert (set(handlers.nodes), handlers.markers) == (set(), set())
        handlers.pod_events.on_update(gated(), gated(reason="ProbeRemoved"))
        assert (set(handlers.nodes), handlers.markers) == (set(), {"web"})
        await asyncio.sleep(GATHER_SECONDS)
        assert set(handlers.nodes) == {"node-1"}

    async def test_a_pod_that_starts_to_match_enqueues_pod_node_and_marker(self) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_update(pod(labels={}), pod())
        assert (set(handlers.pods), set(handlers.nodes), handlers.markers) == (
            {KEY},
            {"node-1"},
            {"web"},
        )

    async def test_a_new_pod_is_enqueued_at_once_and_an_initial_one_later_at_low(self) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_add(pod(), is_initial=False)
        assert handlers.pods == {KEY: Priority.NORMAL}
        handlers.clear()
        handlers.pod_events.on_add(pod(), is_initial=True)
        assert handlers.pods == {}
        key, priority = await handlers.queues.pods.get_with_priority()
        assert (key, priority) == (KEY, Priority.LOW)

    async def test_an_unmatched_pod_without_marks_enqueues_nothing(self) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_add(pod(labels={}), is_initial=False)
        handlers.pod_events.on_delete(pod(labels={}))
        assert (handlers.pods, handlers.nodes, handlers.markers) == ({}, {}, set())


async def test_initial_keys_are_spread_over_time(looptime: float) -> None:
    queues = Queues()
    for number in range(5000):
        queues.enqueue_pod(NamespacedName("default", f"web-{number}"), initial=True)
    received = [(await queues.pods.get()).name for _ in range(5000)]
    assert looptime == pytest.approx(1.0)
    assert received == [f"web-{number}" for number in range(5000)]


async def test_a_deleted_pod_is_forgotten() -> None:
    handlers = Handlers().matched()
    handlers.pod_events.on_add(pod(), is_initial=False)
    handlers.limits.result_changed(KEY, PodResultChange.STATE)
    handlers.results.set_refusals(KEY, {"web": "no"})
    handlers.pod_events.on_delete(pod())
    assert handlers.limits.take_report(KEY) is None
    assert not handlers.results.set_refusals(KEY, NO_REFUSALS)


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
    async def test_a_changed_result_is_enqueued_at_high_and_a_newer_time_is_not(
        self, change: dict[str, str], urgent: bool
    ) -> None:
        handlers = Handlers().matched()
        handlers.npp_events.on_add(self.statuses(), is_initial=True)
        handlers.clear()
        handlers.npp_events.on_update(self.statuses(), self.statuses(**change))
        assert handlers.pods == ({KEY: Priority.HIGH} if urgent else {})
        assert (handlers.limits.take_report(KEY) is not None) is urgent
        assert handlers.markers == ({"web"} if urgent else set())
        assert handlers.nodes == {}

    async def test_a_spec_that_others_edited_enqueues_the_node(self) -> None:
        handlers = Handlers().matched()
        entry: Json = {"name": "x", "namespace": "default", "uid": "u", "IP": "", "probes": []}
        handlers.npp_events.on_add(npp(), is_initial=True)
        handlers.clear()
        edited = npp(entries=[entry])
        meta = msgspec.structs.replace(edited.metadata, generation=2)
        handlers.npp_events.on_update(npp(), msgspec.structs.replace(edited, metadata=meta))
        assert handlers.nodes == {"node-1": Priority.NORMAL}


class TestLeases:
    async def test_a_renewal_in_time_enqueues_nothing(self) -> None:
        handlers = Handlers()
        handlers.lease_events.on_add(lease(), is_initial=True)
        assert handlers.leases == {"node-1"}
        handlers.clear()
        handlers.lease_events.on_update(lease(), lease(renewed="2026-01-01T00:00:10Z"))
        assert handlers.leases == set()

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
    async def test_an_earlier_expiry_enqueues_the_check(
        self, act: Callable[[LeaseEvents], None]
    ) -> None:
        handlers = Handlers()
        handlers.lease_events.on_add(lease(), is_initial=True)
        handlers.clear()
        act(handlers.lease_events)
        assert handlers.leases == {"node-1"}

    async def test_a_renewal_of_a_stale_node_enqueues_the_check(self) -> None:
        handlers = Handlers()
        handlers.lease_events.on_add(lease(), is_initial=True)
        handlers.clear()
        handlers.caches.stale_nodes.record("node-1")
        handlers.lease_events.on_update(lease(), lease(renewed="2026-01-01T00:00:10Z"))
        assert handlers.leases == {"node-1"}


class TestNodes:
    async def test_a_status_update_of_a_node_enqueues_nothing(self) -> None:
        handlers = Handlers()
        handlers.node_events.on_update(node(labels={"a": "1"}), node(labels={"a": "2"}))
        assert handlers.nodes == {}

    async def test_another_uid_of_a_node_enqueues_it(self) -> None:
        handlers = Handlers()
        handlers.node_events.on_update(node(), node(uid="another"))
        assert handlers.nodes == {"node-1": Priority.NORMAL}


class TestMarkers:
    @pytest.mark.parametrize(
        ("probes", "pods", "nodes"),
        [
            pytest.param([{"periodSeconds": 7}], False, True, id="period"),
            pytest.param([{"condition": "c/new"}], True, False, id="condition-type"),
            pytest.param([{"container": "other"}], True, True, id="container"),
        ],
    )
    async def test_an_edit_enqueues_only_pods_or_nodes_that_it_affects(
        self, probes: list[Json], pods: bool, nodes: bool
    ) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_add(pod(), is_initial=False)
        handlers.clear()
        edited = marker(generation=2, probes=[probe_wire(**each) for each in probes])
        handlers.marker_events.on_update(marker(), edited)
        assert set(handlers.pods) == ({KEY} if pods else set())
        assert set(handlers.nodes) == ({"node-1"} if nodes else set())
        assert handlers.markers == {"web"}

    async def test_a_status_that_others_edited_enqueues_a_status_update_only(self) -> None:
        handlers = Handlers().matched()
        handlers.marker_events.on_update(marker(), marker(status={"matchedPods": 77}))
        assert (handlers.pods, handlers.nodes, handlers.markers) == ({}, {}, {"web"})

    async def test_a_deletion_enqueues_pods_node_by_node(self) -> None:
        handlers = Handlers().matched()
        for number, on in enumerate("baab"):
            handlers.pod_events.on_add(pod(f"web-{number}", node=on), is_initial=False)
        handlers.clear()
        handlers.marker_events.on_update(marker(), marker(deleting=True))
        assert [key.name for key in handlers.pods] == ["web-1", "web-2", "web-0", "web-3"]

    @pytest.mark.parametrize(
        ("deleting", "marked", "pods"),
        [
            pytest.param(True, False, False, id="after-its-marks"),
            pytest.param(True, True, True, id="before-its-marks"),
            pytest.param(False, False, True, id="unannounced"),
        ],
    )
    async def test_the_removal_of_a_marker_enqueues_pods_that_may_have_its_marks(
        self, deleting: bool, marked: bool, pods: bool
    ) -> None:
        handlers = Handlers().matched()
        owned = owned_fields(labels=["tier"]) if marked else None
        handlers.pod_events.on_add(pod(owned=owned), is_initial=False)
        last_known = marker(deleting=deleting)
        handlers.marker_events.on_update(marker(), last_known)
        handlers.clear()
        handlers.marker_events.on_delete(last_known)
        assert set(handlers.pods) == ({KEY} if pods else set())


class TestOldState:
    """What an object selected, held or was before the event counts too: it must lose what it has."""

    async def test_an_edited_selector_enqueues_the_pods_of_the_old_one(self) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_add(pod(), is_initial=False)
        handlers.clear()
        edited = marker(selector={"matchLabels": {"app": "db"}}, generation=2)
        handlers.marker_events.on_update(marker(), edited)

        assert set(handlers.pods) == {KEY}
        assert set(handlers.nodes) == {"node-1"}

    async def test_a_pod_that_stops_matching_has_its_old_markers_counted(self) -> None:
        handlers = Handlers().matched()
        old, new = changed(labels={"app": "db"})
        handlers.pod_events.on_add(old, is_initial=False)
        handlers.clear()
        handlers.pod_events.on_update(old, new)

        assert handlers.markers == {"web"}
        assert set(handlers.nodes) == {old.node}

    async def test_a_pod_that_moved_has_both_nodes_planned(self) -> None:
        handlers = Handlers().matched()
        old, new = changed(node="node-9")
        handlers.pod_events.on_update(old, new)

        assert set(handlers.nodes) == {old.node, "node-9"}

    async def test_a_deleted_pod_without_a_marker_but_with_an_entry_has_its_node_planned(
        self,
    ) -> None:
        handlers = Handlers()
        gone = pod(labels={})
        handlers.pod_events.on_delete(gone)
        assert handlers.nodes == {}
