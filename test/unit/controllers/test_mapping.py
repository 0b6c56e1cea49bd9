"""Which keys an event enqueues, and at which priority."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import count
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
    policy_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi, FakeGetter
from support.running_manager import START, informers_over

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import PAUSED_ANNOTATION, VIRTUAL_NODE_LABEL, VIRTUAL_NODE_VALUE
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.daemon_leases import MARGIN_SECONDS, LeaseEvents, LeaseReconciler
from kruise_probe.controllers.mapping.markers import MarkerEvents
from kruise_probe.controllers.mapping.nodes import NodeEvents, NodePodProbeEvents
from kruise_probe.controllers.mapping.pods import PodEvents
from kruise_probe.controllers.node_index import PodResultChange
from kruise_probe.controllers.pods.write_limits import WriteLimits
from kruise_probe.controllers.queues import GATHER_SECONDS, Queues
from kruise_probe.controllers.writes import COMPLETE, NodeResult, WriteResults
from kruise_probe.runtime import Node, WorkQueue
from kruise_probe.workqueue.priority import Priority

KEY = NamespacedName("default", "web-0")


class Handlers:
    """Event handlers over caches, and the queues that they fill."""

    def __init__(self, *, namespace: str = "") -> None:
        self.informers = informers_over(FakeApi())
        self.caches = Caches(self.informers, namespace=namespace, now=lambda: START)
        self.clear()

    def store(self, *objects: Pod | Node) -> None:
        """Put objects into the informers' stores, without events."""
        for each in objects:
            if isinstance(each, Pod):
                self.informers.pods._store.put(each)
            else:
                self.informers.nodes._store.put(each)

    async def low(self) -> set[object]:
        """The keys that are enqueued later at LOW priority; there must be no others."""
        queues: list[WorkQueue[Any]] = [
            self.queues.pods,
            self.queues.nodes,
            self.queues.markers,
            self.queues.leases,
        ]
        assert all(each.metrics.dirty == {} for each in queues)
        await asyncio.sleep(1)
        assert {p for each in queues for p in each.metrics.dirty.values()} <= {Priority.LOW}
        return {key for each in queues for key in each.metrics.dirty}

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
    def leases(self) -> dict[str, Priority]:
        return dict(self.queues.leases.metrics.dirty)

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
        await asyncio.sleep(GATHER_SECONDS)
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


async def test_pods_and_markers_are_served_in_turns_by_namespace() -> None:
    queues = Queues()
    crowd = [NamespacedName("crowd", f"web-{number}") for number in range(50)]
    alone = NamespacedName("alone", "web")
    for key in (*crowd, alone):
        queues.enqueue_pod(key)
        queues.enqueue_marker(key)
    assert alone in [await queues.pods.get() for _ in range(2)]
    assert alone in [await queues.markers.get() for _ in range(2)]


async def test_a_deleted_pod_enqueues_its_node_and_the_status_of_its_markers() -> None:
    handlers = Handlers().matched()
    handlers.pod_events.on_add(pod(), is_initial=False)
    handlers.clear()
    handlers.pod_events.on_delete(pod())
    assert (handlers.pods, set(handlers.nodes), handlers.markers) == ({}, {"node-1"}, {"web"})


@pytest.mark.parametrize("initial", [True, False])
async def test_only_status_updates_of_the_initial_list_are_low(initial: bool) -> None:
    queues = Queues()
    queues.enqueue_marker_status(KEY, initial=initial)
    _, priority = await queues.markers.get_with_priority()
    assert priority is (Priority.LOW if initial else Priority.NORMAL)


def test_probes_that_are_left_out_count_for_their_own_reason() -> None:
    results = Handlers().results
    results.set_node("node-1", NodeResult("", {}, {"NoRoom": 3}))
    results.set_node("node-2", NodeResult("", {}, {"NoRoom": 1, "EntryTooLarge": 2}))
    reasons = ("NoRoom", "EntryTooLarge", "TooManyMarkers")
    assert [results.probes_left_out(each) for each in reasons] == [4, 2, 0]


async def test_a_status_update_that_waits_is_not_enqueued_again(looptime: float) -> None:
    queues = Queues()
    for delay_seconds in (0.5, 0.0):
        queues.status_throttle.enqueue(KEY, delay_seconds=delay_seconds)
    assert await queues.markers.get() == KEY
    assert looptime == pytest.approx(0.5)


async def test_the_pause_after_a_status_update_is_50_times_as_long(looptime: float) -> None:
    queues = Queues()
    queues.status_throttle.finished(KEY, 2.0)
    assert not queues.status_throttle.is_due(KEY)
    queues.status_throttle.enqueue(KEY, delay_seconds=0.0)
    assert await queues.markers.get() == KEY
    assert looptime == pytest.approx(100.0)


def test_a_complete_node_uses_no_memory() -> None:
    results = Handlers().results
    for each in (NodeResult("refused", {}, {}), COMPLETE):
        results.set_node("node-1", each)
    assert results._nodes == {}


def test_a_node_that_is_deleted_and_created_again_has_another_first_plan() -> None:
    results = Handlers().results
    assert [results.set_planned("node-1", each) for each in (True, True, False, True)] == [
        True,
        False,
        False,
        True,
    ]


async def test_a_deleted_pod_is_forgotten() -> None:
    handlers = Handlers().matched()
    handlers.pod_events.on_add(pod(), is_initial=False)
    handlers.limits.record_result_change(KEY, PodResultChange.STATE)
    handlers.results.set_refusals(KEY, {"web": "no"})
    handlers.pod_events.on_delete(pod())
    assert handlers.limits.take_pending(KEY) is None
    assert handlers.results._refusals == {}


async def test_a_lease_expires_at_the_end_of_its_duration() -> None:
    now = START
    caches = Caches(informers_over(FakeApi()), now=lambda: now)
    caches.renewals.observe("node-1", lease(seconds=40), START)
    now = START + timedelta(seconds=39.999)
    assert not caches.is_expired("node-1")
    now = START + timedelta(seconds=40)
    assert caches.is_expired("node-1")


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
        assert (handlers.limits.take_pending(KEY) is not None) is urgent
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
    async def test_a_new_lease_is_checked_before_the_initial_ones(self) -> None:
        handlers = Handlers()
        handlers.lease_events.on_add(lease("node-1"), is_initial=True)
        handlers.lease_events.on_add(lease("node-2"), is_initial=False)
        assert handlers.leases == {"node-1": Priority.LOW, "node-2": Priority.NORMAL}

    @pytest.mark.parametrize(
        "renewed",
        [
            pytest.param("2026-01-01T00:00:10Z", id="renewal-in-time"),
            pytest.param("2026-01-01T00:00:00Z", id="another-field"),
        ],
    )
    async def test_a_change_without_an_earlier_expiry_enqueues_nothing(self, renewed: str) -> None:
        handlers = Handlers()
        handlers.lease_events.on_add(lease(), is_initial=True)
        assert set(handlers.leases) == {"node-1"}
        handlers.clear()
        handlers.lease_events.on_update(lease(), lease(renewed=renewed))
        assert handlers.leases == {}

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
        assert set(handlers.leases) == {"node-1"}

    async def test_a_renewal_of_a_stale_node_enqueues_the_check(self) -> None:
        handlers = Handlers()
        handlers.lease_events.on_add(lease(), is_initial=True)
        handlers.clear()
        handlers.caches.stale_nodes.record("node-1")
        handlers.lease_events.on_update(lease(), lease(renewed="2026-01-01T00:00:10Z"))
        assert set(handlers.leases) == {"node-1"}

    async def test_a_lease_that_expires_during_its_check_is_checked_again(self) -> None:
        """Otherwise the pods of a stale daemon would keep their state. Each look at the clock is a moment later."""
        looks = (START + timedelta(seconds=59.9995 + number / 1000) for number in count())
        clock = looks.__next__
        api = FakeApi()
        informers = informers_over(api)
        informers.nodes._store.put(node())
        caches = Caches(informers, now=clock)
        caches.renewals.observe("node-1", lease(seconds=60), START)
        result = await LeaseReconciler(
            caches,
            FakeGetter(api),
            Queues(),
            system_namespace="kruise-system",
            now=clock,
        ).reconcile("node-1")
        assert result is not None
        assert result.requeue_after_seconds == pytest.approx(MARGIN_SECONDS, abs=0.01)


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

    @pytest.mark.parametrize("has_entry", [True, False])
    async def test_a_deleted_pod_without_a_marker_has_its_node_planned_if_it_has_an_entry(
        self, has_entry: bool
    ) -> None:
        handlers = Handlers()
        gone = pod(labels={})
        if has_entry:
            handlers.npp_events.on_add(npp(entries=[entry(uid=gone.uid)]), is_initial=True)
        handlers.clear()
        handlers.pod_events.on_delete(gone)
        assert handlers.nodes == ({"node-1": Priority.NORMAL} if has_entry else {})
        assert handlers.markers == set()


def entry(marker: str = "web", uid: str = "u") -> Json:
    probe = {**probe_wire(f"{marker}#healthy"), "podConditionType": None}
    return {"name": "x", "namespace": "default", "uid": uid, "IP": "", "probes": [probe]}


def virtual(name: str = "node-1") -> Node:
    return node(name, labels={VIRTUAL_NODE_LABEL: VIRTUAL_NODE_VALUE})


def with_version(obj: Any, version: str, **more: Any) -> Any:
    metadata = msgspec.structs.replace(obj.metadata, resource_version=version, **more)
    return msgspec.structs.replace(obj, metadata=metadata)


class TestResync:
    """A resync enqueues an object at LOW priority, in case events were lost, and compares nothing."""

    async def test_of_a_pod(self) -> None:
        handlers = Handlers().matched()
        same = pod()
        handlers.pod_events.on_update(same, same)
        assert await handlers.low() == {KEY}

    async def test_of_an_unmatched_pod_only_if_it_has_marks(self) -> None:
        for owned, expected in ((None, set()), (owned_fields(labels=["x"]), {KEY})):
            handlers = Handlers().matched()
            same = pod(labels={"x": "1"}, owned=owned)
            handlers.pod_events.on_update(same, same)
            assert await handlers.low() == expected

    async def test_of_a_marker(self) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_add(pod(), is_initial=False)
        handlers.clear()
        same = marker()
        handlers.marker_events.on_update(same, same)
        assert await handlers.low() == {same.key}

    async def test_of_a_node(self) -> None:
        handlers = Handlers().matched()
        handlers.store(pod())
        same = node()
        handlers.node_events.on_update(same, same)
        assert await handlers.low() == {"node-1"}

    async def test_of_a_node_pod_probe(self) -> None:
        handlers = Handlers().matched()
        same = npp(entries=[entry()])
        handlers.npp_events.on_update(same, same)
        assert await handlers.low() == {"node-1"}


class TestInitialLists:
    """Objects of the first list are enqueued later at LOW priority, and only for themselves."""

    async def test_of_markers(self) -> None:
        handlers = Handlers()
        handlers.store(pod())
        handlers.marker_events.on_add(marker(), is_initial=True)
        assert await handlers.low() == {marker().key, KEY, "node-1"}

    async def test_of_nodes(self) -> None:
        handlers = Handlers().matched()
        handlers.store(pod())
        handlers.node_events.on_add(node(), is_initial=True)
        assert await handlers.low() == {"node-1"}

    async def test_of_node_pod_probes(self) -> None:
        handlers = Handlers().matched()
        results = npp(statuses=[pod_status_wire(pod_wire(), state_wire())])
        handlers.npp_events.on_add(results, is_initial=True)
        assert await handlers.low() == {"node-1"}

    async def test_of_pods_with_marks_but_without_a_marker(self) -> None:
        handlers = Handlers()
        marked = pod(labels={"x": "1"}, owned=owned_fields(labels=["x"]))
        handlers.pod_events.on_add(marked, is_initial=True)
        assert await handlers.low() == {KEY}


class TestLaterEvents:
    @pytest.mark.parametrize(
        "act",
        [
            pytest.param(lambda on: on.on_add(node(), is_initial=False), id="created"),
            pytest.param(lambda on: on.on_delete(node()), id="deleted"),
            pytest.param(lambda on: on.on_update(node(), node(uid="another")), id="replaced"),
            pytest.param(lambda on: on.on_update(node(), virtual()), id="becomes-virtual"),
            pytest.param(lambda on: on.on_update(virtual(), node()), id="becomes-real"),
        ],
    )
    async def test_a_node_that_comes_goes_or_changes_its_nature_enqueues_its_pods(
        self, act: Callable[[NodeEvents], None]
    ) -> None:
        handlers = Handlers().matched()
        elsewhere, unmatched = pod("web-1", node="node-2"), pod("db-0", labels={})
        handlers.store(pod(), elsewhere, unmatched)
        act(handlers.node_events)
        assert handlers.nodes == {"node-1": Priority.NORMAL}
        assert (set(handlers.pods), set(handlers.leases)) == ({KEY}, {"node-1"})
        assert handlers.markers == {"web"}

    async def test_a_new_marker_enqueues_itself_its_pods_their_nodes_and_their_other_markers(
        self,
    ) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_add(pod(), is_initial=False)
        handlers.pod_events.on_add(pod("db-0", labels={}), is_initial=False)
        handlers.clear()
        handlers.marker_events.on_add(marker("gateway"), is_initial=False)
        assert (set(handlers.pods), set(handlers.nodes)) == ({KEY}, {"node-1"})
        assert handlers.markers == {"web", "gateway"}

    async def test_a_marker_enqueues_nodes_that_hold_its_entries_without_a_pod(self) -> None:
        handlers = Handlers()
        handlers.npp_events.on_add(npp("node-7", entries=[entry()]), is_initial=True)
        handlers.clear()
        handlers.marker_events.on_add(marker(), is_initial=False)
        assert set(handlers.nodes) == {"node-7"}

    @pytest.mark.parametrize(
        ("change", "pods", "nodes"),
        [
            pytest.param({"deleting": True}, True, True, id="deletion"),
            pytest.param(
                {"annotations": {PAUSED_ANNOTATION: "true"}}, True, True, id="pause"
            ),
            pytest.param({"generation": 2}, False, False, id="generation-alone"),
            pytest.param(
                {"probes": [probe_wire("other")], "generation": 2}, True, True, id="name"
            ),
            pytest.param(
                {"probes": [probe_wire(policies=[policy_wire(labels={"x": "1"})])], "generation": 2},
                True,
                False,
                id="policy",
            ),
            pytest.param(
                {"probes": [probe_wire(handler={"exec": {"command": ["x" * 5000]}})], "generation": 2},
                True,
                True,
                id="command",
            ),
            pytest.param(
                {"probes": [probe_wire(periodSeconds=7)], "generation": 2}, False, True, id="period"
            ),
        ],
    )  # fmt: skip
    async def test_an_edit_of_a_marker_enqueues_what_it_affects(
        self, change: Json, pods: bool, nodes: bool
    ) -> None:
        handlers = Handlers().matched()
        handlers.pod_events.on_add(pod(), is_initial=False)
        handlers.clear()
        handlers.marker_events.on_update(marker(), marker(**change))
        assert set(handlers.pods) == ({KEY} if pods else set())
        assert set(handlers.nodes) == ({"node-1"} if nodes else set())
        assert set(handlers.queues.markers.metrics.dirty) == {marker().key}

    @pytest.mark.parametrize("own", [True, False])
    async def test_our_own_write_of_a_status_enqueues_nothing(self, own: bool) -> None:
        handlers = Handlers().matched()
        written = with_version(marker(status={"matchedPods": 3}), "5")
        if own:
            handlers.caches.markers.record_write(written)
        handlers.marker_events.on_update(marker(), written)
        assert handlers.markers == (set() if own else {"web"})

    @pytest.mark.parametrize("own", [True, False])
    async def test_our_own_write_of_a_spec_enqueues_no_node(self, own: bool) -> None:
        handlers = Handlers().matched()
        written = with_version(npp(entries=[entry()]), "5", generation=2)
        if own:
            handlers.caches.node_pod_probes.record_write(written)
        handlers.npp_events.on_update(npp(), written)
        assert set(handlers.nodes) == (set() if own else {"node-1"})
        assert handlers.markers == {"web"}

    @pytest.mark.parametrize("own", [True, False])
    async def test_our_own_creation_of_a_node_pod_probe_enqueues_no_node(self, own: bool) -> None:
        handlers = Handlers().matched()
        created = with_version(npp(entries=[entry()]), "5")
        if own:
            handlers.caches.node_pod_probes.record_write(created)
        handlers.npp_events.on_add(created, is_initial=False)
        assert set(handlers.nodes) == (set() if own else {"node-1"})
        assert handlers.markers == {"web"}

    @pytest.mark.parametrize("own", [True, False])
    async def test_our_own_marks_enqueue_no_pod(self, own: bool) -> None:
        handlers = Handlers().matched()
        marked = msgspec.structs.replace(
            pod(labels={"app": "web", "x": "1"}, owned=owned_fields(labels=["x"])),
            resource_version="5",
        )
        if own:
            handlers.caches.pods.record_write(marked)
        handlers.pod_events.on_update(pod(), marked)
        assert set(handlers.pods) == (set() if own else {KEY})

    async def test_a_write_that_its_event_has_shown_uses_no_memory(self) -> None:
        handlers = Handlers().matched()
        caches = handlers.caches
        written_marker = with_version(marker(status={"matchedPods": 3}), "5")
        written_entry = with_version(npp(entries=[entry()]), "5", generation=2)
        written_pod = msgspec.structs.replace(pod(), resource_version="5")
        caches.markers.record_write(written_marker)
        caches.node_pod_probes.record_write(written_entry)
        caches.pods.record_write(written_pod)
        handlers.marker_events.on_update(marker(), written_marker)
        handlers.npp_events.on_update(npp(), written_entry)
        handlers.pod_events.on_update(pod(), written_pod)
        assert not any((caches.markers._written, caches.node_pod_probes._written))
        assert not caches.pods._written

    async def test_an_edit_of_a_marker_enqueues_the_other_markers_of_its_pods(self) -> None:
        """They may have won or lost a key."""
        handlers = Handlers().matched()
        handlers.marker_events.on_add(marker("gateway"), is_initial=False)
        handlers.pod_events.on_add(pod(), is_initial=False)
        handlers.clear()
        edited = marker(probes=[probe_wire(condition="example.com/b")], generation=2)
        handlers.marker_events.on_update(marker(), edited)
        assert handlers.markers == {"web", "gateway"}

    @pytest.mark.parametrize(
        "edited",
        [
            pytest.param(npp(owner_uid="another"), id="owner"),
            pytest.param(with_version(npp(), "2", deletion_timestamp="2026-01-01T00:00:00Z"), id="deletion"),
        ],
    )  # fmt: skip
    async def test_a_node_pod_probe_with_another_owner_or_deletion_enqueues_its_node(
        self, edited: Any
    ) -> None:
        handlers = Handlers()
        handlers.npp_events.on_add(npp(), is_initial=True)
        handlers.clear()
        handlers.npp_events.on_update(npp(), edited)
        assert handlers.nodes == {"node-1": Priority.NORMAL}

    async def test_a_deleted_node_pod_probe_enqueues_its_node_and_the_markers_of_its_entries(
        self,
    ) -> None:
        handlers = Handlers().matched()
        held = npp(entries=[entry(), entry("unknown", uid="v")])
        handlers.npp_events.on_add(held, is_initial=True)
        handlers.clear()
        handlers.npp_events.on_delete(held)
        assert (set(handlers.nodes), handlers.markers) == ({"node-1"}, {"web"})

    async def test_a_new_result_in_a_new_node_pod_probe_is_enqueued_at_high(self) -> None:
        handlers = Handlers().matched()
        results = npp(statuses=[pod_status_wire(pod_wire(), state_wire())])
        handlers.npp_events.on_add(results, is_initial=False)
        assert (handlers.pods, handlers.markers) == ({KEY: Priority.HIGH}, {"web"})

    @pytest.mark.parametrize(("namespace", "ours"), [("default", True), ("other", False)])
    async def test_results_of_other_namespaces_are_left_to_their_managers(
        self, namespace: str, ours: bool
    ) -> None:
        handlers = Handlers(namespace=namespace)
        results = npp(statuses=[pod_status_wire(pod_wire(), state_wire())])
        handlers.npp_events.on_add(results, is_initial=False)
        assert set(handlers.pods) == ({KEY} if ours else set())

    @pytest.mark.parametrize(
        ("renewed", "found_stale", "checked"),
        [
            pytest.param("2026-01-01T00:00:00Z", False, False, id="fresh"),
            pytest.param("2025-12-31T23:00:00Z", False, True, id="expired"),
            pytest.param("2026-01-01T00:00:00Z", True, True, id="found-stale"),
        ],
    )
    async def test_results_of_a_node_that_is_stale_or_expired_enqueue_the_check_of_its_lease(
        self, renewed: str, found_stale: bool, checked: bool
    ) -> None:
        events: list[Callable[[NodePodProbeEvents], None]] = [
            lambda on: on.on_add(npp(), is_initial=False),
            lambda on: on.on_update(npp(), npp(owner_uid="another")),
        ]
        for act in events:
            handlers = Handlers()
            handlers.lease_events.on_add(lease(renewed=renewed), is_initial=True)
            handlers.clear()
            if found_stale:
                handlers.caches.stale_nodes.record("node-1")
            act(handlers.npp_events)
            assert set(handlers.leases) == ({"node-1"} if checked else set())

    @pytest.mark.parametrize(
        ("on_virtual_node", "before", "after", "reported"),
        [
            pytest.param(True, "True", "False", True, id="another-status"),
            pytest.param(True, "True", "True", False, id="another-message"),
            pytest.param(True, None, "True", False, id="the-first"),
            pytest.param(False, "True", "False", False, id="on-a-real-node"),
        ],
    )
    async def test_a_state_that_a_provider_changed_is_reported_to_the_write_limits(
        self, on_virtual_node: bool, before: str | None, after: str, reported: bool
    ) -> None:
        handlers = Handlers().matched()
        handlers.store(virtual() if on_virtual_node else node())
        type = "example.com/healthy"
        old = pod(conditions=[condition_wire(type, before)] if before else [])
        new = pod(conditions=[condition_wire(type, after, message="new")])
        handlers.pod_events.on_update(old, new)
        assert set(handlers.pods) == {KEY}
        assert (handlers.limits.take_pending(KEY) is not None) is reported
        assert handlers.markers == ({"web"} if on_virtual_node else set())

    async def test_a_pod_that_becomes_active_again_is_enqueued(self) -> None:
        handlers = Handlers().matched()
        old = pod(labels={"x": "1"}, owned=owned_fields(labels=["x"]), phase="Failed")
        new = pod(labels={"x": "1"}, owned=owned_fields(labels=["x"]))
        handlers.pod_events.on_update(old, new)
        assert set(handlers.pods) == {KEY}

    @pytest.mark.parametrize("deleting", [True, False])
    async def test_the_pause_of_status_updates_delays_no_deletion(self, deleting: bool) -> None:
        handlers = Handlers()
        of = marker(deleting=deleting)
        handlers.marker_events.on_add(of, is_initial=False)
        handlers.pod_events.on_add(pod(), is_initial=False)
        handlers.clear()
        handlers.queues.status_throttle.finished(of.key, 0.0)
        handlers.pod_events.on_delete(pod())
        assert handlers.markers == ({"web"} if deleting else set())

    async def test_leases_of_others_enqueue_nothing(self) -> None:
        handlers = Handlers()
        other = lease(name="kube-controller-manager")
        handlers.lease_events.on_add(other, is_initial=False)
        handlers.lease_events.on_update(other, other)
        handlers.lease_events.on_delete(other)
        assert handlers.leases == {}
        assert handlers.caches.renewals.get("node-1") is None
