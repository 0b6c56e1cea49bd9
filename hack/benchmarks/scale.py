"""CPU of the manager in one process without an API server: until every node has a plan, and for one event of each kind.

Each write is answered at once with the changed object. The work of these fakes does not count, but the decoding of lists does.
The tenth event of each kind is measured until the manager is at rest. The nine events before it fill the caches. A figure is the least of the tenth and the four after it, as other work of the machine
only adds to it. Each size runs in a process of its own. No work of other causes is measured: the first event waits until the
resync of the new leader has ended, and no daemon becomes silent, for which the Leases of all nodes would be read.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import structlog
from support.builders import lease_wire, marker_wire, node_wire, pod_wire, probe_wire, state_wire
from support.steps import Cluster

from benchmarks.reporting import Row, emit, in_own_process, machine_speed
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.controllers import daemon_reconciler
from kruise_probe.runtime.process import tune_garbage_collector

WARM = 9
MEASURED = 5
EVENTS = WARM + MEASURED
MAX_RATIO = 1.3
"""Of the figures of a size to those of the first."""
TEAM = 50
"""Pods that the marker of a team selects. Each team has one event of each kind."""
BETWEEN_SECONDS = 0.3
REST_SECONDS = 2.0
"""Longer than the pause between two updates of a marker's status."""

IDLE_MICROSECONDS = 1000
"""Of a rest in which nothing is left to do."""

FINALIZER = "kruise.io/node-pod-probe-cleanup"


def _pod(number: int, nodes: int) -> dict[str, Any]:
    labels = {"app": "web"}
    if number < EVENTS * TEAM:
        labels["team"] = f"team-{number // TEAM}"
    return pod_wire(f"web-{number}", node=f"node-{number % nodes}", labels=labels)


def _team(number: int) -> dict[str, Any]:
    return marker_wire(
        f"team-{number}",
        probes=[probe_wire(condition=f"example.com/team-{number}")],
        selector={"matchLabels": {"team": f"team-{number}"}},
        finalizers=[FINALIZER],
    )


def _cluster(nodes: int, pods: int) -> Cluster:
    cluster = Cluster()
    for number in range(nodes):
        cluster.put(NODES, node_wire(f"node-{number}"))
    for number in range(pods):
        cluster.put(PODS, _pod(number, nodes))
    everywhere = marker_wire("all", selector={"matchLabels": {"app": "web"}})
    cluster.put(MARKERS, everywhere)
    for number in range(EVENTS):
        cluster.put(MARKERS, _team(number))
    return cluster


def _put_results(cluster: Cluster) -> None:
    """As the daemons of the teams' nodes would."""
    reports = cluster.served[NODE_POD_PROBES.plural].wires
    for key in list(reports)[: EVENTS * TEAM]:
        statuses: list[dict[str, Any]] = []
        for entry in reports[key]["spec"]["podProbes"]:
            status = {field: entry[field] for field in ("name", "namespace", "uid")}
            status["probeStates"] = [state_wire(probe["name"]) for probe in entry["probes"]]
            statuses.append(status)
        cluster.put(NODE_POD_PROBES, reports[key] | {"status": {"podProbeStatuses": statuses}})


def _renew(cluster: Cluster, number: int) -> None:
    renewed = f"2026-01-01T00:00:{number:02}.000000Z"
    cluster.put(LEASES, lease_wire("node-0", renewed=renewed))


def _edit(cluster: Cluster, number: int) -> None:
    key = NamespacedName("default", f"team-{number}")
    marker = cluster.served[MARKERS.plural].wires[key]
    marker["spec"]["probes"][0]["probe"]["periodSeconds"] = 77
    marker["metadata"]["generation"] += 1
    cluster.put(MARKERS, marker)


def _relabel(cluster: Cluster, number: int) -> None:
    """The pod leaves its team."""
    key = NamespacedName("default", f"web-{number * TEAM}")
    pod = cluster.served[PODS.plural].wires[key]
    pod["metadata"]["labels"]["team"] = "none"
    cluster.put(PODS, pod)


def _delete(cluster: Cluster, number: int) -> None:
    cluster.remove(MARKERS, f"team-{number}", "default")


KINDS: dict[str, Callable[[Cluster, int], None]] = {
    "lease": _renew,
    "marker_edit": _edit,
    "pod_label": _relabel,
    "marker_deletion": _delete,
}


async def _cost_of(cluster: Cluster, event: Callable[[], None]) -> int:
    """Microseconds, without those of the fakes."""
    with cluster.steps.measured():
        event()
        await asyncio.sleep(REST_SECONDS)
    return round(cluster.steps.total_seconds * 1e6)


async def _one_size(nodes: int, pods: int) -> Row:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    cluster = _cluster(nodes, pods)
    tune_garbage_collector()
    row: Row = {"benchmark": "scale", "nodes": nodes, "pods": pods}
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(daemon_reconciler, "STALE_SECONDS", 3600.0)
        with cluster.steps.measured():
            await stack.enter_async_context(cluster.running())
            row["list_us_per_pod"] = _per_pod(cluster)
            await _until(lambda: cluster.writes["NodePodProbe"] >= nodes)
            row["planned_us_per_pod"] = _per_pod(cluster)
        await _measure_events(cluster, row)
    return row


def _per_pod(cluster: Cluster) -> float:
    """Microseconds until now."""
    pods = len(cluster.served[PODS.plural].wires)
    return round(cluster.steps.total_seconds / pods * 1e6, 1)


async def _until(holds: Callable[[], bool]) -> None:
    """Look once in each pass of the loop."""
    seen = holds()
    while not seen:
        await asyncio.sleep(0)
        seen = holds()


async def _measure_events(cluster: Cluster, row: Row) -> None:
    await asyncio.sleep(REST_SECONDS)
    _put_results(cluster)
    row["idle_us"] = await _rest(cluster)
    for kind, event in KINDS.items():
        for number in range(WARM):
            event(cluster, number)
            await asyncio.sleep(BETWEEN_SECONDS)
        await asyncio.sleep(REST_SECONDS)
        costs = [
            await _cost_of(cluster, partial(event, cluster, number))
            for number in range(WARM, EVENTS)
        ]
        row[f"{kind}_us"] = min(costs)


async def _rest(cluster: Cluster) -> int:
    """Wait until the resync of the new leader ends. Return the microseconds of a rest."""
    idle = IDLE_MICROSECONDS
    while idle >= IDLE_MICROSECONDS:
        idle = await _cost_of(cluster, lambda: None)
    return idle


async def measure(sizes: tuple[tuple[int, int], ...]) -> list[Row]:
    """The speed of the machine, and a row for each size; from the second on with the ratios to the first.

    Raises:
        AssertionError: a ratio is over MAX_RATIO.
    """
    rows = [machine_speed()]
    emit(rows[0])
    too_large: list[str] = []
    for nodes, pods in sizes:
        row = await in_own_process("benchmarks.scale", nodes, pods)
        if len(rows) > 1:
            for kind in KINDS:
                ratio = round(row[f"{kind}_us"] / rows[1][f"{kind}_us"], 2)
                row[f"{kind}_ratio"] = ratio
                if ratio > MAX_RATIO:
                    too_large.append(f"{kind} with {pods} pods: {ratio}")
        rows.append(row)
        emit(row)
    assert not too_large, f"ratios over {MAX_RATIO}: {'; '.join(too_large)}"
    return rows


if __name__ == "__main__":
    emit(asyncio.run(_one_size(int(sys.argv[1]), int(sys.argv[2]))))
