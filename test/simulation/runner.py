"""Runs plans with all oracles."""

import asyncio
import random as global_random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from simulation import edits
from simulation.applications import Applications
from simulation.looks import differences, looks, wrong_times
from simulation.loop import SimulatedLoop, capture_logs
from simulation.plan import EDITING_SECONDS, STEADY_AT_SECONDS, PlanStep, SimulationPlan
from simulation.processes import own_metrics
from simulation.safety import Safety
from simulation.truth import STEP_SECONDS as STEP_OF_TRUTH_SECONDS
from simulation.truth import Truth
from simulation.world import NODE_NAMES, SimulationEvent, World
from support.shrinking import shrink
from support.wire import Json

from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import MARKERS, NODES, PODS
from kruise_probe.api.times import parse_time

SETTLING_SECONDS = 240.0
"""T: so long after the last fault the desired state must hold. The longest part is a watch that delivers nothing: 70 s
until its deadline, after a Lease that expired (60 s) and a request that hung (30 s)."""

STEP_SECONDS = 15.0
QUIET_SECONDS = 60.0
HOUR_SECONDS = 3600.0
LONGEST_PROBE_SECONDS = 25.0
"""Until a new probe has its state: two periods of 10 s, and the start."""


class RunResult(NamedTuple):
    """`oracle` is empty for a run without a failure. `steps` counts callbacks of the loop."""

    plan: SimulationPlan
    oracle: str
    problems: tuple[str, ...]
    log: tuple[SimulationEvent, ...]
    steps: int
    virtual_seconds: float

    def __str__(self) -> str:
        lines = [f"seed {self.plan.seed}: {self.oracle}", *self.problems, "steps:", str(self.plan)]
        return "\n".join(lines)


class Failed(Exception):
    def __init__(self, oracle: str, problems: list[str]) -> None:
        super().__init__(oracle)
        self.oracle = oracle
        self.problems = problems


@contextmanager
def simulated(seed: int) -> Iterator[SimulatedLoop]:
    """A loop; the global random generator is seeded, and daemons have their own metrics. At the end both are as before."""
    capture_logs()
    state = global_random.getstate()
    global_random.seed(seed)
    loop = SimulatedLoop(Random(f"loop {seed}"))
    with own_metrics():
        try:
            yield loop
            if loop.errors:
                raise Failed("no error is unhandled", loop.errors)
        finally:
            _finish(loop)
            global_random.setstate(state)


def _finish(loop: SimulatedLoop) -> None:
    left = sorted(asyncio.all_tasks(loop), key=hash)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


Play = Callable[[SimulatedLoop, list[World]], None]
"""Plays a plan on a loop, and adds its world to the list. Raises: Failed."""


def _result(plan: SimulationPlan, play: Play) -> RunResult:
    worlds: list[World] = []
    oracle = ""
    problems: tuple[str, ...] = ()
    steps = 0
    seconds = 0.0
    try:
        with simulated(plan.seed) as loop:
            try:
                play(loop, worlds)
            finally:
                steps = loop.steps
                seconds = loop.time()
    except Failed as failed:
        oracle = failed.oracle
        problems = tuple(failed.problems)
    return RunResult(plan, oracle, problems, tuple(worlds[0].log), steps, seconds)


def judge(
    plan: SimulationPlan,
    *,
    quiet_seconds: float = QUIET_SECONDS,
    watch: Callable[[World], None] = lambda world: None,
) -> RunResult:
    """Run a plan with all oracles. `watch` gets the world before it is populated."""
    return _result(plan, lambda loop, worlds: _judge(loop, plan, quiet_seconds, worlds, watch))


BUSY_STEP_SECONDS = 0.0005
AFTER_LAST_STEP_SECONDS = 330.0


def judge_truth(plan: SimulationPlan) -> RunResult:
    """Run a plan of `make_application_plan` with the truth oracle."""
    return _result(plan, lambda loop, worlds: _judge_truth(loop, plan, worlds))


def _judge_truth(loop: SimulatedLoop, plan: SimulationPlan, worlds: list[World]) -> None:
    loop.step_seconds = BUSY_STEP_SECONDS
    truth = loop.run_until_complete(_play_truth(plan, worlds))
    kinds = [*truth.problems, *(["an unhandled error"] if loop.errors else [])]
    if kinds:
        raise Failed(", ".join(kinds), [*truth.problems.values(), *loop.errors])


async def _play_truth(plan: SimulationPlan, worlds: list[World]) -> Truth:
    world = await World(plan.seed).__aenter__()
    worlds.append(world)
    world.applications = Applications(world)
    world.applications.install()
    truth = Truth(world, world.applications)
    edits.populate(world)
    world.start()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(truth))
        for step in plan.steps:
            await _until(world, step.at)
            step.apply(world)
        await asyncio.sleep(AFTER_LAST_STEP_SECONDS)
        watching.cancel()
    return truth


async def _watch(truth: Truth) -> None:
    while True:
        await asyncio.sleep(STEP_OF_TRUTH_SECONDS)
        truth.step()


def _judge(
    loop: SimulatedLoop,
    plan: SimulationPlan,
    quiet_seconds: float,
    worlds: list[World],
    watch: Callable[[World], None],
) -> None:
    async def begin() -> World:
        return await World(plan.seed).__aenter__()

    world = loop.run_until_complete(begin())
    worlds.append(world)
    safety = Safety(world)
    watch(world)
    steady_from = loop.run_until_complete(play(world, plan))
    expected = from_scratch(world)
    loop.run_until_complete(_settle(world, expected))
    if safety.problems:
        raise Failed("safety", safety.problems)
    if plan.steady and (flaps := history_differences(world, steady_from)):
        raise Failed("faults change nothing", flaps)
    if written := loop.run_until_complete(_writes_at_rest(world, safety, quiet_seconds)):
        raise Failed("nothing is written at rest", written)
    if safety.problems:
        raise Failed("safety", safety.problems)


async def _writes_at_rest(world: World, safety: Safety, seconds: float) -> list[str]:
    """Requests that write while nothing changes, without Leases and refreshes of results."""
    commits = len(world.commits)
    sent = len(safety.writes)
    await asyncio.sleep(seconds)
    written = [
        f"{commit.at:.3f} {commit.writer} writes {commit.resource} {commit.name}"
        for commit in world.commits[commits:]
        if not _is_refresh(commit.old, commit.new)
    ]
    refreshes = len(world.commits) - commits - len(written)
    requests = list(map(str, safety.writes[sent:]))
    return written or (requests if len(requests) != refreshes else [])


async def play(world: World, plan: SimulationPlan) -> int:
    """Populate the world and run the plan to its end; then heal everything.

    Returns the number of commits before the first fault of a steady plan.
    """
    edits.populate(world)
    world.start()
    steady_from = 0
    for step in plan.steps:
        if plan.steady and step.at >= STEADY_AT_SECONDS and not steady_from:
            await _until(world, EDITING_SECONDS + 1.0)
            edits.finish_edits(world)
            await _until(world, STEADY_AT_SECONDS)
            steady_from = len(world.commits)
            world.lease_gaps.begin()
        await _until(world, step.at)
        step.apply(world)
    await asyncio.sleep(1.0)
    world.note("plan", "heal")
    world.heal()
    edits.finish_edits(world)
    return steady_from or len(world.commits)


async def _until(world: World, at: float) -> None:
    await asyncio.sleep(max(at - world.loop.time(), 0))


STALE_AFTER_SECONDS = 60.0 - 10.0 - 2 * 4.0
"""A daemon whose Lease was renewed within this time is fresh: duration, renewals that are late, two skewed clocks."""


def history_differences(world: World, start: int) -> list[str]:
    """Oracle (c): what faults changed in objects that no edit changed.

    Sieve compares the numbers of changes of each object with those of a run without faults. Here that run is the time
    before the first fault, and its number is 0. Results of a node whose Lease had expired may be Unknown meanwhile.
    """
    stale = {
        node
        for node in NODE_NAMES
        if world.lease_gaps.longest_seconds.get(daemon_lease_name(node), STALE_AFTER_SECONDS)
        >= STALE_AFTER_SECONDS
    }
    found = []
    for commit in world.commits[start:]:
        if commit.resource == "pods" and commit.new and commit.new["spec"]["nodeName"] in stale:
            continue
        if commit.resource == "podprobemarkers" and stale:
            continue
        if not _is_refresh(commit.old, commit.new):
            found.append(f"{commit.at:.3f} {commit.writer} writes {commit.resource} {commit.name}")
    return found


async def _settle(world: World, expected: Json) -> None:
    deadline = world.loop.time() + SETTLING_SECONDS
    while True:
        await asyncio.sleep(STEP_SECONDS)
        found = [*differences(looks(world), expected), *wrong_times(world)]
        if not found:
            return
        if world.loop.time() >= deadline:
            raise Failed("the desired state is reached", found)


def from_scratch(world: World, seconds: float = LONGEST_PROBE_SECONDS) -> Json:
    """The end state of a new cluster with the desired objects of `world`, without faults, after at least `seconds`."""
    with simulated(0) as loop:
        return loop.run_until_complete(_build(world, seconds))


async def _build(desired: World, seconds: float) -> Json:
    async with World(0, managers=1) as world:
        world.outcomes = dict(desired.outcomes)
        for name in NODE_NAMES:
            world.request("POST", NODES.path(), {"metadata": {"name": name}})
        for name, pod in desired.objects(PODS).items():
            app = pod["metadata"]["labels"]["app"]
            ip = pod["status"]["podIP"]
            edits.create_pod(world, name, pod["spec"]["nodeName"], app, ip)
        for name, marker in desired.objects(MARKERS).items():
            if "deletionTimestamp" in marker["metadata"]:
                continue
            world.moved_clock = parse_time(marker["metadata"]["creationTimestamp"])
            body = {
                "apiVersion": MARKERS.api_version,
                "kind": MARKERS.kind,
                "metadata": {"name": name},
                "spec": marker["spec"],
            }
            world.request("POST", MARKERS.path("default"), body)
        world.moved_clock = None
        world.start()
        count = -1
        while count != len(world.commits) or world.loop.time() < seconds:
            count = len(world.commits)
            await asyncio.sleep(10.0)
        return looks(world)


def _is_refresh(old: Json | None, new: Json | None) -> bool:
    """Whether a NodePodProbe was only written with newer times."""
    if old is None or new is None or new["kind"] != "NodePodProbe" or old["spec"] != new["spec"]:
        return False

    def content(of: Json) -> list[tuple[str, Json]]:
        return [
            (pod["uid"], {**state, "lastProbeTime": ""})
            for pod in (of.get("status") or {}).get("podProbeStatuses") or ()
            for state in pod.get("probeStates") or ()
        ]

    return content(old) == content(new)


def shrunk(result: RunResult, judge: Callable[[SimulationPlan], RunResult] = judge) -> RunResult:
    """The result of the shortest plan found that fails by the same oracle."""
    best = result

    def fails(steps: Sequence[PlanStep]) -> bool:
        nonlocal best
        again = judge(result.plan._replace(steps=tuple(steps)))
        if again.oracle == result.oracle:
            best = again
            return True
        return False

    shrink(result.plan.steps, fails)
    return best
