"""The work of an event depends on what it changes, not on what else exists: calls of the controllers' functions are counted."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from support.builders import marker_wire, node_wire, pod_wire, probe_wire
from support.cases import cases
from support.steps import Calls, Cluster
from support.wire import Json
from unit.controllers.common import numbered_probes, stamp

from kruise_probe.api.meta import NamespacedName, Resource
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.api.resources import MARKERS, NODES, PODS
from kruise_probe.api.v1alpha1 import PROBES_PER_POD

Event = Callable[[Cluster], None]
CONSIDERED = 64
MOST_PROBES = 32
MOST_CALLS_FOR_A_POD = 10_000
"""Of an event that affects a pod with as many markers and probes as the limits allow, and as many as report them."""
FEW = 8
"""So many younger markers with MOST_PROBES probes have conditions that report the limit; further ones have no effect on a pod."""
MANY = 40


def put_marker(
    cluster: Cluster,
    name: str,
    number: int,
    *,
    app: str = "mine",
    held: bool = False,
    probes: int = 1,
) -> None:
    """The younger, the higher its number; a held marker is being deleted, and a finalizer of others keeps it."""
    wire = marker_wire(
        name,
        probes=numbered_probes(probes, f"c/{name}-"),
        selector={"matchLabels": {"app": app}},
        created=stamp(number),
        finalizers=["example.com/theirs" if held else MARKER_FINALIZER],
        deleting=held,
    )
    cluster.put(MARKERS, wire)


def put_pod(cluster: Cluster, name: str, *, app: str = "mine", namespace: str = "default") -> None:
    """Pods of an app have a node of their own."""
    labels = {"app": app, "tier": "a"}
    cluster.put(
        PODS,
        pod_wire(
            name,
            namespace=namespace,
            node=f"node-{app}",
            labels=labels,
        ),
    )


def put_others(cluster: Cluster, count: int) -> None:
    for number in range(count):
        put_pod(cluster, f"other-{number}", app="other")
        put_pod(
            cluster,
            f"tenant-{number}",
            app="tenant",
            namespace="tenant",
        )
        put_marker(
            cluster,
            f"of-others-{number}",
            number,
            app="other",
        )
        put_marker(
            cluster,
            f"too-young-{number}",
            600 + number,
            probes=MOST_PROBES,
        )
        put_marker(
            cluster,
            f"held-{number}",
            number,
            held=True,
        )


def change(cluster: Cluster, resource: Resource[Any], **parts: Json) -> None:
    """Replaces fields of parts of the object `mine-0`."""
    wire = cluster.served[resource.plural].wires[NamespacedName("default", "mine-0")]
    for part, fields in parts.items():
        wire[part] |= fields
    cluster.put(resource, wire)


def edit_marker(cluster: Cluster) -> None:
    edited = probe_wire(condition="c/edited")
    change(
        cluster,
        MARKERS,
        spec={"probes": [edited]},
        metadata={"generation": 2},
    )


class Mine(NamedTuple):
    """Some pods, and how many markers and probes each of them has: at most the limits of a pod."""

    pods: int
    markers: int
    probes: int

    @classmethod
    def of(cls, random: Random, markers: int = 0) -> "Mine":
        markers = markers or random.randint(1, CONSIDERED)
        return cls(random.randint(1, 4), markers, random.randint(markers, PROBES_PER_POD))

    def put(self, cluster: Cluster) -> None:
        for number in range(self.pods):
            put_pod(cluster, f"mine-{number}")
        for number in range(self.markers):
            probes = self.probes // self.markers + (number < self.probes % self.markers)
            put_marker(
                cluster,
                f"mine-{number}",
                number,
                probes=probes,
            )


async def cost_of(event: Event, mine: Mine, others: int) -> Calls:
    """The calls of an event on pods; `others` exist too."""
    cluster = Cluster()
    for app in ("mine", "other", "tenant"):
        cluster.put(
            NODES,
            node_wire(f"node-{app}"),
        )
    mine.put(cluster)
    put_others(cluster, others)
    calls = Calls()
    async with cluster.running():
        await asyncio.sleep(15)
        with calls.counted():
            event(cluster)
            await asyncio.sleep(5)
    return calls


some_event = cases(
    "event",
    pod_ip=lambda cluster: change(cluster, PODS, status={"podIP": "127.9.9.9"}),
    pod_label=lambda cluster: change(
        cluster,
        PODS,
        metadata={"labels": {"app": "mine", "tier": "b"}},
    ),
    pod_deleted=lambda cluster: cluster.remove(PODS, "mine-0", "default"),
    marker_edited=edit_marker,
    marker_deleted=lambda cluster: cluster.remove(MARKERS, "mine-0", "default"),
)


@pytest.mark.parametrize("seed", range(2))
@some_event
async def test_the_cost_of_an_event_for_each_pod_is_bounded_by_the_limits_of_a_pod(
    event: Event,
    seed: int,
) -> None:
    random = Random(seed)
    mine = Mine.of(random)
    calls = await cost_of(
        event,
        mine,
        random.randint(0, MANY),
    )
    assert calls.total <= mine.pods * MOST_CALLS_FOR_A_POD, (mine, calls.of.most_common(5))


@some_event
async def test_the_cost_of_an_event_does_not_grow_with_what_it_does_not_change(
    event: Event,
) -> None:
    mine = Mine.of(Random(0), CONSIDERED)
    among_few = await cost_of(event, mine, FEW)
    among_many = await cost_of(event, mine, MANY)
    more = among_many.of - among_few.of
    assert among_many.total <= 1.1 * among_few.total + 50, more.most_common(5)


async def test_an_update_that_changes_nothing_that_matters_enqueues_nothing() -> None:
    def annotate(cluster: Cluster) -> None:
        for number in range(100):
            seen = {"example.com/seen": str(number)}
            change(cluster, PODS, metadata={"annotations": seen})

    calls = await cost_of(
        annotate,
        Mine.of(Random(0)),
        MANY,
    )
    assert calls.of["PodEvents.on_update"] == 100
    for kind in ("Pod", "Node", "Marker", "Count", "Visit"):
        assert calls.of[f"{kind}Reconciler.reconcile"] == 0, kind


async def test_a_new_marker_reconciles_no_pod_without_results() -> None:
    mine = Mine(pods=3, markers=1, probes=1)
    calls = await cost_of(
        lambda cluster: put_marker(cluster, "new", 99),
        mine,
        0,
    )
    assert calls.of["VisitReconciler._may_be_marked"] == mine.pods
    assert calls.of["PodReconciler.reconcile"] == 0


async def test_a_marker_that_others_hold_is_not_requeued() -> None:
    cluster = Cluster()
    for number in range(MANY):
        put_marker(
            cluster,
            f"held-{number}",
            number,
            held=True,
        )
    calls = Calls()
    async with cluster.running():
        await asyncio.sleep(20)
        with calls.counted():
            await asyncio.sleep(600)
    assert cluster.writes["PodProbeMarker"] == MANY, "each status says what holds it"
    assert calls.of["MarkerReconciler.reconcile"] == 0
