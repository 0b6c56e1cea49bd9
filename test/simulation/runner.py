"""Runs plans with all oracles."""

import asyncio
import random as global_random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from simulation import edits
from simulation.applications import Applications
from simulation.looks import differences, looks, states, wrong_times
from simulation.loop import SimulatedLoop, capture_logs
from simulation.plan import EDITING_SECONDS, STEADY_AT_SECONDS, PlanStep, SimulationPlan
from simulation.processes import own_metrics
from simulation.safety import Safety
from simulation.truth import STEP_SECONDS as STEP_OF_TRUTH_SECONDS
from simulation.truth import Truth
from simulation.world import NODE_NAMES, Commit, SimulationEvent, World
from support.shrinking import shrink
from support.wire import Json

from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import MARKERS, PODS
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
    if left:
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


Play = Callable[[SimulatedLoop, list[World]], None]
"""Plays a plan on a loop, and adds its world to the list. Raises: Failed."""


def result_of(plan: SimulationPlan, play: Play) -> RunResult:
    """Run a plan."""
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
    return RunResult(
        plan,
        oracle,
        problems,
        tuple(worlds[0].log),
        steps,
        seconds,
    )


def judge(
    plan: SimulationPlan,
    *,
    quiet_seconds: float = QUIET_SECONDS,
    watch: Callable[[World], None] = lambda world: None,
) -> RunResult:
    """Run a plan with all oracles. `watch` gets the world before it is populated."""

    def play(loop: SimulatedLoop, worlds: list[World]) -> None:
        world = loop.run_until_complete(new_world(plan, worlds))
        safety = Safety(world)
        watch(world)
        steady_from = loop.run_until_complete(_play(world, plan))
        expected = from_scratch(world)
        loop.run_until_complete(_settle(world, expected))
        expect_none("safety", safety.problems)
        if plan.steady:
            expect_none("faults change nothing", history_differences(world, steady_from))
        written = loop.run_until_complete(_writes_at_rest(world, safety, quiet_seconds))
        expect_none("nothing is written at rest", written)
        expect_none("safety", safety.problems)

    return result_of(plan, play)


async def new_world(plan: SimulationPlan, worlds: list[World]) -> World:
    """The world of a plan, added to a list."""
    world = await World(plan.seed).__aenter__()
    worlds.append(world)
    return world


def expect_none(oracle: str, problems: list[str]) -> None:
    if problems:
        raise Failed(oracle, problems)


BUSY_STEP_SECONDS = 0.0005
AFTER_LAST_STEP_SECONDS = 330.0


def judge_truth(plan: SimulationPlan) -> RunResult:
    """Run a plan of `make_application_plan` with the truth oracle."""

    def play(loop: SimulatedLoop, worlds: list[World]) -> None:
        loop.step_seconds = BUSY_STEP_SECONDS
        truth = loop.run_until_complete(_play_truth(plan, worlds))
        kinds = list(truth.problems)
        if loop.errors:
            kinds.append("an unhandled error")
        expect_none(
            ", ".join(kinds),
            [*truth.problems.values(), *loop.errors],
        )

    return result_of(plan, play)


async def _play_truth(plan: SimulationPlan, worlds: list[World]) -> Truth:
    world = await new_world(plan, worlds)
    world.applications = Applications(world)
    truth = Truth(world, world.applications)
    edits.populate(world)
    world.start()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(truth))
        for step in plan.steps:
            await until(world, step.at)
            step.apply(world)
        await asyncio.sleep(AFTER_LAST_STEP_SECONDS)
        watching.cancel()
    return truth


async def _watch(truth: Truth) -> None:
    while True:
        await asyncio.sleep(STEP_OF_TRUTH_SECONDS)
        truth.step()


async def _writes_at_rest(world: World, safety: Safety, seconds: float) -> list[str]:
    """Requests that write while nothing changes, without Leases and refreshes of results."""
    commits = len(world.commits)
    sent = len(safety.writes)
    await asyncio.sleep(seconds)
    after = world.commits[commits:]
    written = [str(commit) for commit in after if not _is_refresh(commit)]
    requests = list(map(str, safety.writes[sent:]))
    refreshes = len(after) - len(written)
    if written or len(requests) == refreshes:
        return written
    return requests


async def _play(world: World, plan: SimulationPlan) -> int:
    """Populate the world and run the plan to its end; then heal everything.

    Returns the number of commits before the first fault of a steady plan.
    """
    edits.populate(world)
    world.start()
    steady_from = 0
    for step in plan.steps:
        if plan.steady and step.at >= STEADY_AT_SECONDS and not steady_from:
            await until(world, EDITING_SECONDS + 1.0)
            edits.finish_edits(world)
            await until(world, STEADY_AT_SECONDS)
            steady_from = len(world.commits)
            world.lease_gaps.begin()
        await until(world, step.at)
        step.apply(world)
    await asyncio.sleep(1.0)
    world.note("plan", "heal")
    world.heal()
    edits.finish_edits(world)
    return steady_from or len(world.commits)


async def until(world: World, at: float) -> None:
    """Sleep until virtual second `at`."""
    await asyncio.sleep(max(at - world.loop.time(), 0))


STALE_AFTER_SECONDS = 60.0 - 10.0 - 2 * 4.0
"""A daemon whose Lease was renewed within this time is fresh: duration, renewals that are late, two skewed clocks."""


def history_differences(world: World, start: int) -> list[str]:
    """Oracle (c): what faults changed in objects that no edit changed.

    Sieve compares the numbers of changes of each object with those of a run without faults. Here that run is the time
    before the first fault, and its number is 0. Results of a node whose Lease had expired may be Unknown meanwhile.
    """
    gaps = world.lease_gaps.longest_seconds
    stale = set()
    for node in NODE_NAMES:
        gap = gaps.get(daemon_lease_name(node), STALE_AFTER_SECONDS)
        if gap >= STALE_AFTER_SECONDS:
            stale.add(node)
    found = []
    for commit in world.commits[start:]:
        if commit.resource == "pods" and commit.new and commit.new["spec"]["nodeName"] in stale:
            continue
        if commit.resource == "podprobemarkers" and stale:
            continue
        if not _is_refresh(commit):
            found.append(str(commit))
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
            edits.register_node(world, name)
        for name, pod in desired.objects(PODS).items():
            node = pod["spec"]["nodeName"]
            app = pod["metadata"]["labels"]["app"]
            edits.create_pod(
                world,
                name,
                node,
                app,
                pod["status"]["podIP"],
            )
        for name, marker in desired.objects(MARKERS).items():
            meta = marker["metadata"]
            if "deletionTimestamp" not in meta:
                world.moved_clock = parse_time(meta["creationTimestamp"])
                edits.create_marker(world, name, marker["spec"])
        world.moved_clock = None
        world.start()
        count = -1
        while count != len(world.commits) or world.loop.time() < seconds:
            count = len(world.commits)
            await asyncio.sleep(10.0)
        return looks(world)


def _is_refresh(commit: Commit) -> bool:
    """Whether a NodePodProbe was only written with newer times."""
    old = commit.old
    new = commit.new
    if not old or not new or new["kind"] != "NodePodProbe" or old["spec"] != new["spec"]:
        return False
    return _results(old) == _results(new)


def _results(plan: Json) -> list[tuple[str, Json]]:
    """Without the times of the attempts."""
    return [(uid, {**state, "lastProbeTime": ""}) for uid, state in states(plan)]


def shrunk(result: RunResult, judge: Callable[[SimulationPlan], RunResult] = judge) -> RunResult:
    """The result of the shortest plan found that fails by the same oracle."""
    best = result

    def fails(steps: Sequence[PlanStep]) -> bool:
        nonlocal best
        again = judge(result.plan._replace(steps=tuple(steps)))
        is_same = again.oracle == result.oracle
        if is_same:
            best = again
        return is_same

    shrink(result.plan.steps, fails)
    return best
