"""A manager at work on hollow nodes and pods of a real API server; the benchmark plays the daemons.

A phase lasts from the first request that causes it to the watch event of the last changed object. The manager's CPU and
writes are read after it has come to rest, so that late work counts too.

The floor is a bare loop of the patches that a manager cannot avoid, over the same pods and nodes, with 48 connections
and the same watches. A shared machine changes its speed within minutes. So the floor of the pods is measured before,
between and after the two runs of the manager, and a phase is compared with the two around its run. The floor of the
nodes is measured before the first run, which begins with them.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from statistics import mean
from typing import Any, NamedTuple

import msgspec

from benchmarks import hollow, procfs
from benchmarks.api import MERGE, BareRequest
from benchmarks.cluster import SERVERS, Cluster, ManagerBench, Usage, hollow_cluster
from benchmarks.latency import ResultLoad
from benchmarks.process import Measured, until_at_rest
from benchmarks.reporting import Row, emit, machine_speed, progress

REST_SECONDS = 300.0
SEEN_SECONDS = 1.0
"""The watches have shown each write after this time."""

IDLE_SECONDS = 20.0

OURS = (
    f"{sys.executable} -m kruise_probe manager --kubeconfig {{kubeconfig}} --enable-leader-election=false "
    "--metrics-addr 0 --health-probe-addr 127.0.0.1:{health}"
)


async def measure(options: ManagerBench) -> list[Row]:
    """One run; each row is printed when it is measured."""
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        emit(row)

    try:
        async with asyncio.timeout(options.time_limit), hollow_cluster(options) as cluster:
            await _measure_in(cluster, options, rows, add)
    except TimeoutError:
        add({"benchmark": "manager", "phase": f"ended after {options.time_limit:g} s"})
    return rows


async def _measure_in(
    cluster: Cluster, options: ManagerBench, rows: list[Row], add: Callable[[Row], None]
) -> None:
    add(machine_speed())
    floors: dict[str, list[_Cost]] = {}
    run = _ManagerRun(cluster, options, add)

    async def floor() -> None:
        if options.floor:
            await _floor(cluster, floors, add)

    await floor()
    if options.floor:
        await _spec_floor(cluster, floors, add)
    await run.first_run()
    await floor()
    await run.second_run()
    await floor()
    if options.floor:
        await _daemons_floor(cluster, floors, add)
    for row in rows:
        _compare(row, floors)
        if "per_floor" in row:
            emit({key: row[key] for key in row if key in _NAMES or "per_floor" in key})
    add(machine_speed())


class _Cost(NamedTuple):
    wall_seconds: float
    cpu_seconds: float


DAEMONS = "the daemons' statuses: "
_NAMES = ("benchmark", "label", "phase")
_AROUND = {
    "first results": slice(0, 2),
    "flip": slice(0, 2),
    "delete": slice(1, 3),
}
"""Of the three floors of pods, those before and after the run of a phase."""


def _compare(row: Row, floors: dict[str, list[_Cost]]) -> None:
    """Adds ratios of time and of CPU (API server and client); other processes hardly change the CPU.

    The second pair adds to the floor the API server's work for the statuses that daemons write meanwhile.
    """
    phase = row.get("phase", "")
    measured = floors.get(phase, [])[_AROUND.get(phase, slice(None))]
    if not measured:
        return
    wall = mean(each.wall_seconds for each in measured)
    cpu = mean(each.cpu_seconds for each in measured)
    own_cpu = row["cpu_s"] + row["apiserver_cpu_s"]
    row["per_floor"] = round(row["wall_s"] / wall, 2)
    row["cpu_per_floor"] = round(own_cpu / cpu, 2)
    if DAEMONS + phase in floors:
        daemons = floors[DAEMONS + phase][0]
        row["per_floor_and_daemons"] = round(row["wall_s"] / (wall + daemons.wall_seconds), 2)
        row["cpu_per_floor_and_daemons"] = round(own_cpu / (cpu + daemons.cpu_seconds), 2)


async def _floor(
    cluster: Cluster, floors: dict[str, list[_Cost]], add: Callable[[Row], None]
) -> None:
    for phase, state in (("first results", "Succeeded"), ("flip", "Failed"), ("delete", None)):
        patches = [
            hollow.floor_patch(pod, state)
            for on_node in cluster.pods_of.values()
            for pod in on_node
        ]
        cost, row = await _bare_loop(cluster, phase, patches)
        floors.setdefault(phase, []).append(cost)
        add(row)


async def _daemons_floor(
    cluster: Cluster, floors: dict[str, list[_Cost]], add: Callable[[Row], None]
) -> None:
    """The cost of the daemons' writes for the API server when no manager runs.

    The objects are new, so the first phase creates statuses and the second one replaces them.
    """
    for remake in (hollow.no_node_pod_probe, hollow.node_pod_probe):
        await cluster.api.each(remake(node) for node in cluster.pods_of)
    await cluster.api.each(hollow.spec(node, pods, 20) for node, pods in cluster.pods_of.items())
    await cluster.nodes.until(
        lambda each: bool(each.spec.podProbes),
        of=set(cluster.pods_of),
    )
    for phase, state in (("first results", "Succeeded"), ("flip", "Failed")):
        cost, row = await _bare_loop(
            cluster,
            DAEMONS + phase,
            _status_updates(cluster, state),
        )
        await asyncio.sleep(SEEN_SECONDS)
        floors[DAEMONS + phase] = [cost]
        add(row)


async def _spec_floor(
    cluster: Cluster, floors: dict[str, list[_Cost]], add: Callable[[Row], None]
) -> None:
    """The patches that write every node's spec, twice, on new objects like those of the manager."""
    for _ in range(2):
        await cluster.api.each(hollow.node_pod_probe(node) for node in cluster.pods_of)
        for phase, period_seconds in (("spread", 10), ("edit", 20)):
            patches = [
                hollow.spec(node, pods, period_seconds) for node, pods in cluster.pods_of.items()
            ]
            cost, row = await _bare_loop(cluster, phase, patches)
            floors.setdefault(phase, []).append(cost)
            add(row)
        await cluster.api.each(hollow.no_node_pod_probe(node) for node in cluster.pods_of)


def _status_updates(cluster: Cluster, state: str, **more: str) -> Iterator[BareRequest]:
    """The daemons' updates, each of the version that is the newest when it is sent."""
    for node, pods in cluster.pods_of.items():
        version = cluster.nodes.objects[node].metadata.resourceVersion
        yield hollow.results(
            node,
            pods,
            state,
            version=version,
            **more,
        )


async def _bare_loop(
    cluster: Cluster, phase: str, requests: Iterable[BareRequest]
) -> tuple[_Cost, Row]:
    loop = asyncio.get_running_loop()
    before = await cluster.usage()
    cpu = procfs.cpu_seconds(os.getpid())
    started_at = loop.time()
    await cluster.api.each(requests)
    wall = loop.time() - started_at
    cpu = procfs.cpu_seconds(os.getpid()) - cpu
    server = (await cluster.usage()).cpu_seconds["apiserver"] - before.cpu_seconds["apiserver"]
    return _Cost(wall, cpu + server), {
        "benchmark": "manager",
        "phase": f"floor: {phase}",
        "label": "bare loop",
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "apiserver_cpu_s": round(server, 2),
    }


class _ManagerRun:
    """The phases of one run, in their order."""

    def __init__(
        self,
        cluster: Cluster,
        options: ManagerBench,
        add: Callable[[Row], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._add = add
        self._per_node = {node: len(pods) for node, pods in cluster.pods_of.items()}

    async def first_run(self) -> None:
        before = await self._cluster.usage()
        async with self._cluster.manager(self._options) as manager:
            await self._cluster.nodes.until(
                lambda _: True,
                of=set(self._per_node),
            )
            await until_at_rest(manager.pid, seconds=1.5, give_up_seconds=REST_SECONDS)
            await self._row("start", manager, before, wall_s=manager.ready_seconds)
            await self._phase(
                manager,
                "spread",
                self._create,
                self._listed(10),
            )
            await self._phase(
                manager,
                "edit",
                self._edit,
                self._listed(20),
            )
            first = self._results("Succeeded", hollow.STAMP, hollow.STAMP)
            await self._phase(manager, "first results", first, self._shown("True"))
            load = ResultLoad(self._cluster)
            for rate in self._options.rates:
                run = partial(load.run, rate, self._options.rate_seconds)
                await self._phase(manager, f"{rate:g} results per second", run, None)
            flip = self._results("Failed", "2026-01-01T00:02:00Z", "2026-01-01T00:02:00Z")
            await self._phase(manager, "flip", flip, self._shown("False"))
            again = self._results("Failed", "2026-01-01T00:03:00Z", "2026-01-01T00:02:00Z")
            await self._phase(manager, "same again", again, None)

    async def second_run(self) -> None:
        before = await self._cluster.usage()
        started_at = asyncio.get_running_loop().time()
        async with self._cluster.manager(self._options) as manager:
            rest_at = await until_at_rest(manager.pid, seconds=1.5, give_up_seconds=REST_SECONDS)
            times = {"wall_s": manager.ready_seconds, "rest_s": rest_at - started_at}
            await self._row("restart", manager, before, **times)
            await self._phase(manager, "idle", partial(asyncio.sleep, IDLE_SECONDS), None)
            await self._phase(
                manager,
                "delete",
                self._delete,
                self._gone,
            )
            left = sum(not each.bare for each in self._cluster.pods.objects.values())
            if left:
                self._add({"benchmark": "manager", "phase": "marks left behind", "pods": left})

    async def _phase(
        self,
        manager: Measured,
        phase: str,
        act: Callable[[], Awaitable[Row | None]],
        goal: Callable[[], Coroutine[Any, Any, float]] | None,
    ) -> None:
        progress(f"phase: {phase}")
        before = await self._cluster.usage()
        loop = asyncio.get_running_loop()
        manager.lap()
        started_at = loop.time()
        if goal is None:
            found = await act()
            ended_at = loop.time()
        else:
            async with asyncio.TaskGroup() as group:
                reached = group.create_task(goal())
                found = await act()
            ended_at = reached.result()
        rest_at = await until_at_rest(manager.pid, seconds=1.5, give_up_seconds=REST_SECONDS)
        times = {"wall_s": ended_at - started_at, "rest_s": rest_at - started_at}
        await self._row(phase, manager, before, **times, **(found or {}))

    async def _row(self, phase: str, manager: Measured, before: Usage, **found: Any) -> None:
        after = await self._cluster.usage()
        writes = {name: count for name, count in (after.writes - before.writes).items() if count}
        cpu = manager.cpu_seconds
        pod_writes = sum(count for name, count in writes.items() if name.endswith(" pods/status"))
        row: Row = {
            "benchmark": "manager",
            "label": self._options.label,
            "phase": phase,
            "wall_s": 0.0,
            "cpu_s": round(cpu, 2),
            "rss_mb": round(manager.peak_mb, 1),
            "slow_steps": manager.slow_steps,
            "writes": dict(sorted(writes.items())),
            "cpu_ms_per_pod_write": round(cpu / pod_writes * 1000, 2) if pod_writes else None,
        }
        for name in SERVERS:
            row[f"{name}_cpu_s"] = round(after.cpu_seconds[name] - before.cpu_seconds[name], 2)
            row[f"{name}_mb"] = round(procfs.resident_mb(self._cluster.plane.pid(SERVERS[name])))
        for key, value in found.items():
            row[key] = round(value, 2)
        self._add(row)

    async def _create(self) -> None:
        await self._cluster.api.json(
            "POST",
            hollow.MARKERS_PATH,
            hollow.marker(period_seconds=10),
            counted_as="POST podprobemarkers",
        )

    async def _edit(self) -> None:
        body = {"spec": {"probes": hollow.marker(period_seconds=20)["spec"]["probes"]}}
        await self._cluster.api.call(
            BareRequest(
                "PATCH",
                f"{hollow.MARKERS_PATH}/{hollow.MARKER}",
                msgspec.json.encode(body),
                MERGE,
                counted_as="PATCH podprobemarkers",
            )
        )

    async def _delete(self) -> None:
        await self._cluster.api.call(
            BareRequest(
                "DELETE",
                f"{hollow.MARKERS_PATH}/{hollow.MARKER}",
                counted_as="DELETE podprobemarkers",
            )
        )

    def _results(self, state: str, probed_at: str, moved_at: str) -> Callable[[], Awaitable[None]]:
        return lambda: self._cluster.api.each(
            _status_updates(self._cluster, state, probed_at=probed_at, moved_at=moved_at)
        )

    def _listed(self, period_seconds: int) -> Callable[[], Coroutine[Any, Any, float]]:
        return lambda: self._cluster.nodes.until(
            lambda each: each.lists(self._per_node.get(each.metadata.name, 0), period_seconds),
            of=set(self._per_node),
        )

    def _shown(self, status: str) -> Callable[[], Coroutine[Any, Any, float]]:
        return lambda: self._cluster.pods.until(lambda each: each.shows(status))

    async def _gone(self) -> float:
        """Waits until every entry of every node and the marker are deleted."""
        await self._cluster.nodes.until(lambda each: not each.spec.podProbes)
        return await self._cluster.markers.until(
            lambda _: False,
            of={hollow.MARKER},
            gone_too=True,
        )
