"""A manager at work on hollow nodes and pods of a real API server; the benchmark plays the daemons.

Each phase is timed from the first request that causes it to the watch event of the last object that shows it. What
the manager used and wrote is read after it has come to rest, so that late work counts too.

The floor is a bare loop of the patches that a manager cannot avoid, over the same pods and nodes, with 48 connections
and with the same watches open, as near in time as can be: a machine that is shared changes its speed within minutes. That
of the pods is measured before, between and after the manager's two lives, and a phase is compared with the two around its
life; that of the nodes right before the first life, which begins with them.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import msgspec

from benchmarks import hollow, machine, procfs
from benchmarks.api import MERGE, Api, Request, Usage
from benchmarks.command import Measured, free_port, running
from benchmarks.control_plane import kubeconfig as control_plane
from benchmarks.hollow_cluster import Hollow, hollow_cluster
from benchmarks.in_pod import as_in_a_pod
from benchmarks.reporting import Row, emit, interpreter, say
from benchmarks.sightings import MarkerSeen, NodeSeen, PodSeen, Sightings
from kruise_probe.client.config import load_config

CONNECTIONS = 48

QUIET_SHARE = 0.03
"""A manager that uses less of a processor than this, a second long, is at rest."""

REST_SECONDS = 30.0
IDLE_SECONDS = 20.0

OURS = (
    f"{sys.executable} -m kruise_probe manager --kubeconfig {{kubeconfig}} --enable-leader-election=false "
    "--metrics-addr 0 --health-probe-addr 127.0.0.1:{health}"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line. `in_pod` runs the manager with a service account's files instead of a kubeconfig."""

    command: str
    ready: str
    nodes: int
    pods: int
    kubeconfig: str | None
    crds: tuple[Path, ...]
    in_pod: bool
    label: str
    floor: bool


class Stage(NamedTuple):
    """Where it happens: the client, the objects that stand there, and what is seen of them."""

    api: Api
    hollow: Hollow
    pods: Sightings[PodSeen]
    nodes: Sightings[NodeSeen]
    markers: Sightings[MarkerSeen]
    folder: Path
    kubeconfig: str


async def measure(options: Options) -> list[Row]:
    """One run; every row is printed as it is measured."""
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        emit(row)

    async with stage(options) as on:
        add(machine.speed())
        floors: dict[str, list[_Cost]] = {}
        run = _Run(on, options, add)

        async def floor() -> None:
            if options.floor:
                await _floor(on, floors, add)

        await floor()
        if options.floor:
            await _spread_alone(on, floors, add)
        await run.first_life()
        await floor()
        await run.second_life()
        await floor()
        if options.floor:
            await _daemons_alone(on, floors, add)
        for row in rows:
            _compare(row, floors)
            if "per_floor" in row:
                emit({key: row[key] for key in row if key in _NAMES or "per_floor" in key})
        add(machine.speed())
    return rows


class _Cost(NamedTuple):
    wall_seconds: float
    cpu_seconds: float


DAEMONS = "the daemons' statuses: "
_NAMES = ("benchmark", "label", "phase")
_AROUND = {"first results": slice(0, 2), "flip": slice(0, 2), "delete": slice(1, 3)}
"""Of the three floors of pods, those before and after the life that a phase belongs to."""


def _compare(row: Row, floors: dict[str, list[_Cost]]) -> None:
    """Adds ratios: by time, and by the CPU of API server and client, which others on the machine hardly change.

    The second pair counts to the floor what the API server has to do for the statuses that daemons write meanwhile.
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


@asynccontextmanager
async def stage(options: Options) -> AsyncIterator[Stage]:
    """Puts everything up but the manager."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kp-bench-")))
        path = await stack.enter_async_context(control_plane(options.kubeconfig, folder))
        api = await stack.enter_async_context(Api(load_config(path), connections=CONNECTIONS))
        say(f"{options.nodes} hollow nodes, {options.pods} hollow pods")
        standing = await stack.enter_async_context(
            hollow_cluster(api, nodes=options.nodes, pods=options.pods, crds=options.crds)
        )
        pods = Sightings(api, hollow.PODS_PATH, PodSeen)
        nodes = Sightings(api, hollow.NODE_POD_PROBES_PATH, NodeSeen)
        markers = Sightings(api, hollow.MARKERS_PATH, MarkerSeen)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        followers = [group.create_task(each.run()) for each in (pods, nodes, markers)]
        await pods.until(lambda _: True, of={name for name, _ in standing.pods})
        yield Stage(api, standing, pods, nodes, markers, folder, path)
        for follower in followers:
            follower.cancel()


async def _floor(on: Stage, floors: dict[str, list[_Cost]], add: Callable[[Row], None]) -> None:
    for phase, state in (("first results", "Succeeded"), ("flip", "Failed"), ("delete", None)):
        patches = [
            hollow.floor_patch(name, uid, state, hollow.STAMP) for name, uid in on.hollow.pods
        ]
        cost, row = await _bare_loop(on, phase, patches)
        floors.setdefault(phase, []).append(cost)
        add(row)


async def _daemons_alone(
    on: Stage, floors: dict[str, list[_Cost]], add: Callable[[Row], None]
) -> None:
    """What the results cost the API server when nobody acts on them, on new objects that ask for them.

    The statuses of the first phase are the first ones there, those of the second replace them.
    """
    for remake in (hollow.no_node_pod_probe, hollow.node_pod_probe):
        await on.api.each(remake(node) for node in on.hollow.pods_of)
    await on.api.each(hollow.spec(node, pods, 20) for node, pods in on.hollow.pods_of.items())
    for phase, state in (("first results", "Succeeded"), ("flip", "Failed")):
        writes = [
            hollow.results(node, pods, state, hollow.STAMP, hollow.STAMP)
            for node, pods in on.hollow.pods_of.items()
        ]
        cost, row = await _bare_loop(on, DAEMONS + phase, writes)
        floors[DAEMONS + phase] = [cost]
        add(row)


async def _spread_alone(
    on: Stage, floors: dict[str, list[_Cost]], add: Callable[[Row], None]
) -> None:
    """The patches that tell every node of its probes, with nobody to work them out; twice each.

    The objects are new ones, as the manager's will be.
    """
    for _ in range(2):
        await on.api.each(hollow.node_pod_probe(node) for node in on.hollow.pods_of)
        for phase, period_seconds in (("spread", 10), ("edit", 20)):
            patches = [
                hollow.spec(node, pods, period_seconds) for node, pods in on.hollow.pods_of.items()
            ]
            cost, row = await _bare_loop(on, phase, patches)
            floors.setdefault(phase, []).append(cost)
            add(row)
        await on.api.each(hollow.no_node_pod_probe(node) for node in on.hollow.pods_of)


async def _bare_loop(on: Stage, phase: str, requests: list[Request]) -> tuple[_Cost, Row]:
    loop = asyncio.get_running_loop()
    before, cpu, started_at = await on.api.usage(), procfs.cpu_seconds(os.getpid()), loop.time()
    await on.api.each(requests)
    wall = loop.time() - started_at
    cpu = procfs.cpu_seconds(os.getpid()) - cpu
    server = (await on.api.usage()).cpu_seconds - before.cpu_seconds
    return _Cost(wall, cpu + server), {
        "benchmark": "manager",
        "phase": f"floor: {phase}",
        "label": "bare loop",
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "apiserver_cpu_s": round(server, 2),
    }


@asynccontextmanager
async def manager_running(on: Stage, options: Options) -> AsyncIterator[Measured]:
    """The command, ready."""
    names = {"kubeconfig": on.kubeconfig, "health": free_port(), "metrics": free_port()}
    command, environ = options.command.format(**names), {"KUBECONFIG": on.kubeconfig}
    if options.in_pod:
        command, environ = await as_in_a_pod(command, on.api, on.folder, on.kubeconfig)
    async with running(
        command,
        ready_url=options.ready.format(**names),
        log=on.folder / "manager.log",
        environ=environ,
    ) as process:
        yield process


class _Run:
    """The phases of one run, in their order."""

    def __init__(
        self,
        on: Stage,
        options: Options,
        add: Callable[[Row], None],
    ) -> None:
        self._on = on
        self._options = options
        self._add = add
        self._per_node = {node: len(pods) for node, pods in on.hollow.pods_of.items()}

    async def first_life(self) -> None:
        before = await self._on.api.usage()
        async with manager_running(self._on, self._options) as manager:
            await self._on.nodes.until(lambda _: True, of=set(self._per_node))
            await self._rested(manager)
            self._row("start", manager, manager.ready_seconds, before, await self._on.api.usage())
            await self._phase(manager, "spread", self._create, self._asked(10))
            await self._phase(manager, "edit", self._edit, self._asked(20))
            for phase, state, shown, minute in (
                ("first results", "Succeeded", "True", 1),
                ("flip", "Failed", "False", 2),
            ):
                stamp = f"2026-01-01T00:0{minute}:00Z"
                await self._phase(
                    manager, phase, self._results(state, stamp, stamp), self._shown(shown)
                )
            again = self._results("Failed", "2026-01-01T00:03:00Z", "2026-01-01T00:02:00Z")
            await self._phase(manager, "same again", again, None)

    async def second_life(self) -> None:
        before = await self._on.api.usage()
        async with manager_running(self._on, self._options) as manager:
            await self._rested(manager)
            self._row("restart", manager, manager.ready_seconds, before, await self._on.api.usage())
            await self._idle(manager)
            await self._phase(manager, "delete", self._delete, self._gone)
            left = sum(not each.bare for each in self._on.pods.objects.values())
            if left:
                self._add({"benchmark": "manager", "phase": "marks left behind", "pods": left})

    async def _phase(
        self,
        manager: Measured,
        phase: str,
        act: Callable[[], Awaitable[None]],
        goal: Callable[[], Awaitable[float]] | None,
    ) -> None:
        before = await self._on.api.usage()
        loop = asyncio.get_running_loop()
        manager.lap()
        started_at = loop.time()
        if goal is None:
            await act()
            ended_at = loop.time()
        else:
            async with asyncio.TaskGroup() as group:
                reached = group.create_task(goal())
                await act()
            ended_at = reached.result()
        await self._rested(manager)
        self._row(phase, manager, ended_at - started_at, before, await self._on.api.usage())

    def _row(self, phase: str, manager: Measured, wall: float, before: Usage, after: Usage) -> None:
        writes = {name: count for name, count in (after.writes - before.writes).items() if count}
        cpu = manager.cpu_seconds
        pod_writes = sum(count for name, count in writes.items() if name.endswith(" pods/status"))
        row: Row = {
            "benchmark": "manager",
            "label": self._options.label,
            "phase": phase,
            "wall_s": round(wall, 2),
            "cpu_s": round(cpu, 2),
            "kernel_s": round(manager.system_seconds, 2),
            "rss_mb": round(manager.peak_mb, 1),
            "writes": dict(sorted(writes.items())),
            "cpu_ms_per_pod_write": round(cpu / pod_writes * 1000, 2) if pod_writes else None,
            "apiserver_cpu_s": round(after.cpu_seconds - before.cpu_seconds, 2),
            "python": interpreter(),
        }
        self._add(row)

    async def _rested(self, manager: Measured) -> None:
        """Until the manager has used next to nothing for a second, and said so on its marker."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + REST_SECONDS
        quiet = 0
        while quiet < 3 and loop.time() < give_up_at:
            used = procfs.cpu_seconds(manager.pid)
            await asyncio.sleep(0.5)
            quiet = quiet + 1 if procfs.cpu_seconds(manager.pid) - used <= QUIET_SHARE / 2 else 0

    async def _idle(self, manager: Measured) -> None:
        """What it takes when nothing happens."""
        before = await self._on.api.usage()
        manager.lap()
        await asyncio.sleep(IDLE_SECONDS)
        self._row("idle", manager, IDLE_SECONDS, before, await self._on.api.usage())

    async def _create(self) -> None:
        await self._on.api.json(
            "POST",
            hollow.MARKERS_PATH,
            hollow.marker(period_seconds=10),
            counted_as="POST podprobemarkers",
        )

    async def _edit(self) -> None:
        body = {"spec": {"probes": hollow.marker(period_seconds=20)["spec"]["probes"]}}
        await self._on.api.call(
            Request(
                "PATCH",
                f"{hollow.MARKERS_PATH}/{hollow.MARKER}",
                msgspec.json.encode(body),
                MERGE,
                counted_as="PATCH podprobemarkers",
            )
        )

    async def _delete(self) -> None:
        await self._on.api.call(
            Request(
                "DELETE",
                f"{hollow.MARKERS_PATH}/{hollow.MARKER}",
                counted_as="DELETE podprobemarkers",
            )
        )

    def _results(self, state: str, probed_at: str, moved_at: str) -> Callable[[], Awaitable[None]]:
        requests = [
            hollow.results(node, pods, state, probed_at, moved_at)
            for node, pods in self._on.hollow.pods_of.items()
        ]
        return lambda: self._on.api.each(requests)

    def _asked(self, period_seconds: int) -> Callable[[], Awaitable[float]]:
        return lambda: self._on.nodes.until(
            lambda seen: seen.asks(self._per_node.get(seen.metadata.name, 0), period_seconds),
            of=set(self._per_node),
        )

    def _shown(self, status: str) -> Callable[[], Awaitable[float]]:
        return lambda: self._on.pods.until(lambda seen: seen.shows(status))

    async def _gone(self) -> float:
        """Every entry of every node, and the marker itself."""
        await self._on.nodes.until(lambda seen: not seen.spec.podProbes)
        return await self._on.markers.until(lambda _: False, of={hollow.MARKER}, gone_too=True)
