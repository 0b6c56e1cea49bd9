"""Failovers of a role: their plans, and the oracle that no write of a manager makes two pods carry it.

The pods are databases: each says whether it is the primary. The old one may go on saying so, die, hang or come back.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from simulation import applications, edits, faults
from simulation.applications import HANG, Applications
from simulation.plan import Action, PlanStep, SimulationPlan
from simulation.runner import BUSY_STEP_SECONDS, Failed, RunResult, simulated
from simulation.safety import Safety
from simulation.world import (
    DAEMONS,
    MANAGERS,
    NAMESPACE,
    NODE_NAMES,
    POD_NAMES,
    PROCESSES,
    Commit,
    World,
)
from support.builders import marker_wire, policy_wire, probe_wire
from support.wire import Json

from kruise_probe.api.resources import MARKERS, PODS

ROLE = "l-role"
PRIMARY, REPLICA = "primary", "replica"
PROBE = "exec"
LEASE_SECONDS = 15.0
STEPS = 300
STEPS_SECONDS = 900.0
SETTLING_SECONDS = 240.0

TWO_HOLDERS = "no write makes two pods carry a role"
NO_HOLDER = "the last pod that became Succeeded holds the role"
RESTARTED = "a restart changes no holder"


def put_role_marker(world: World, with_replicas: bool) -> None:
    """Create the marker with one exclusive probe."""
    policies = [policy_wire("Succeeded", {ROLE: PRIMARY})]
    if with_replicas:
        policies.append(policy_wire("Failed", {ROLE: REPLICA}))
    handler = {"exec": {"command": [PROBE]}}
    wire = probe_wire(
        PROBE, condition=f"c/{PROBE}", policies=policies, handler=handler, periodSeconds=1
    )
    body = marker_wire(applications.MARKER, probes=[{**wire, "exclusive": {}}])
    body["metadata"] = {"name": applications.MARKER}
    world.post(MARKERS.path(NAMESPACE), body)


def promote(world: World, pod: str, old: str) -> None:
    """`pod` says that it is the primary. The others do not any more (`demoted`), still do (`claims`), or hang."""
    for name in POD_NAMES:
        if name == pod:
            applications.behave(world, name, PROBE, True, 0.01)
        elif old != "claims":
            applications.behave(world, name, PROBE, False, HANG if old == "hangs" else 0.01)


def _seconds(random: Random) -> float:
    return random.choice([0.5, 3.0, 12.0, 30.0])


def _chances(random: Random) -> tuple[float, ...]:
    chance = partial(random.choice, [0.0, 0.1, 0.4])
    return chance(), chance(), chance(), chance(), chance(), random.choice([0.05, 1.0, 8.0])


ACTIONS = {
    action.apply.__name__: action
    for action in (
        Action(promote, 30, lambda r: (r.choice(POD_NAMES), r.choice(["demoted", "claims", "hangs"]))),
        Action(edits.replace_pod, 2, lambda r: (r.choice(POD_NAMES), r.choice(NODE_NAMES))),
        Action(edits.terminate_pod, 1, lambda r: (r.choice(POD_NAMES), 20.0)),
        Action(edits.restart_container, 1, lambda r: (r.choice(POD_NAMES), _seconds(r))),
        Action(edits.move_ip, 4, lambda r: (r.choice(POD_NAMES), f"127.1.1.{r.randrange(250)}")),
        Action(faults.kill, 2, lambda r: (r.choice(PROCESSES), _seconds(r))),
        Action(faults.terminate, 1, lambda r: (r.choice(MANAGERS), _seconds(r))),
        Action(faults.stop, 2, lambda r: (r.choice(MANAGERS), _seconds(r))),
        Action(faults.sever, 3, lambda r: (r.choice(PROCESSES), _seconds(r), r.choice([True, False]))),
        Action(faults.cut_streams, 1, lambda r: (r.choice(PROCESSES),)),
        Action(faults.disturb, 4, lambda r: (r.choice(MANAGERS), _seconds(r) + 5, _chances(r))),
        Action(faults.lag, 2, lambda r: (r.choice([0, 1]), _seconds(r))),
        Action(faults.connect, 1, lambda r: (r.choice(PROCESSES), r.choice([0, 1]))),
        Action(faults.skew, 2, lambda r: (r.choice([*MANAGERS, *DAEMONS]), r.uniform(-90, 90))),
        Action(faults.kill, 1, lambda r: (r.choice(DAEMONS), 90.0)),
        Action(faults.expire, 1, lambda r: ()),
    )
}  # fmt: skip


def make_role_plan(seed: int) -> SimulationPlan:
    """Failovers and faults at any time; most of them around a failover."""
    random = Random(f"roles {seed}")
    weights = [action.weight for action in ACTIONS.values()]
    steps: list[PlanStep] = []
    for name in random.choices(list(ACTIONS), weights, k=STEPS):
        at = round(random.uniform(10.0, STEPS_SECONDS), 3)
        steps.append(PlanStep(at, name, ACTIONS[name].arguments(random)))
    return SimulationPlan(seed, tuple(sorted(steps)))


class Carrier(NamedTuple):
    """Who made a pod carry the role, and when."""

    writer: str
    at: float


class OneHolder:
    """Observes all writes. `failovers` counts the pods that became holders."""

    def __init__(self, world: World) -> None:
        self.problems: list[str] = []
        self.failovers = 0
        self._world = world
        self._carriers: dict[str, Carrier] = {}
        self._next: Callable[[Commit], None] = world.on_commit
        world.on_commit = self.check

    def check(self, commit: Commit) -> None:
        self._next(commit)
        if commit.resource != "pods":
            return
        carries = commit.new is not None and _role(commit.new) == PRIMARY
        if not carries:
            self._carriers.pop(commit.name, None)
        elif commit.name not in self._carriers:
            self._carriers[commit.name] = Carrier(commit.writer, commit.at)
            self.failovers += 1
            self._judge(commit)

    def _judge(self, commit: Commit) -> None:
        age = commit.at - self._world.servers.sent_at
        if commit.writer not in MANAGERS or age >= LEASE_SECONDS:
            return
        others = sorted(self._carriers.keys() - {commit.name})
        if others:
            self.problems.append(
                f"{commit.at:.3f} {commit.writer} sets {commit.name}, sent {age:.3f} s before, and {others} carry the role"
            )

    @property
    def holders(self) -> list[str]:
        return sorted(self._carriers)


def _role(pod: Json) -> str | None:
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return labels.get(ROLE)


def judge_roles(plan: SimulationPlan) -> RunResult:
    """Run a plan; then the last of two pods that say so must hold the role, also after a restart of the managers."""
    worlds: list[World] = []
    found: list[OneHolder] = []
    oracle = ""
    problems: tuple[str, ...] = ()
    steps, seconds = 0, 0.0
    try:
        with simulated(plan.seed) as loop:
            loop.step_seconds = BUSY_STEP_SECONDS
            try:
                loop.run_until_complete(_play(plan, worlds, found))
            finally:
                steps, seconds = loop.steps, loop.time()
    except Failed as failed:
        oracle, problems = failed.oracle, tuple(failed.problems)
    result = RunResult(plan, oracle, problems, tuple(worlds[0].log), steps, seconds)
    FOUND_FAILOVERS.append(found[0].failovers)
    return result


FOUND_FAILOVERS: list[int] = []
"""Of each run."""


async def _play(plan: SimulationPlan, worlds: list[World], found: list[OneHolder]) -> None:
    world = await World(plan.seed).__aenter__()
    worlds.append(world)
    world.applications = Applications(world)
    world.applications.install()
    safety = Safety(world)
    oracle = OneHolder(world)
    found.append(oracle)
    edits.populate(world)
    put_role_marker(world, with_replicas=plan.seed % 2 == 0)
    world.start()
    for step in plan.steps:
        await _until(world, step.at)
        world.note("plan", str(step))
        ACTIONS[step.name].apply(world, *step.arguments)
        _stop_at(oracle, safety)
    world.heal()
    await _until(world, world.loop.time() + SETTLING_SECONDS)
    for number, name in enumerate(POD_NAMES):
        applications.behave(world, name, PROBE, False, 0.01)
        if world.get(PODS, name) is None:
            edits.create_pod(world, name, NODE_NAMES[number % 2])
    await _until(world, world.loop.time() + 20.0)
    promote(world, "web-1", "demoted")
    await _until(world, world.loop.time() + 20.0)
    _expect(NO_HOLDER, oracle, "web-1")
    for daemon in world.daemons:  # The clock of the node of the later claim is behind.
        daemon.skew_seconds = -300.0 if daemon.node == NODE_NAMES[1] else 0.0
    for name, old in (("web-0", "demoted"), ("web-3", "claims")):
        promote(world, name, old)
        await _until(world, world.loop.time() + 20.0)
        _expect(NO_HOLDER, oracle, name)
    for manager in world.managers:
        manager.kill()
        world.after(1.0, f"start {manager.name}", manager.start)
    await _until(world, world.loop.time() + 60.0)
    _expect(RESTARTED, oracle, "web-3")
    _stop_at(oracle, safety)


def _expect(rule: str, oracle: OneHolder, holder: str) -> None:
    if oracle.problems:
        raise Failed(TWO_HOLDERS, oracle.problems)
    if oracle.holders != [holder]:
        raise Failed(rule, [f"expected {holder}, found {oracle.holders}"])


def _stop_at(oracle: OneHolder, safety: Safety) -> None:
    if oracle.problems:
        raise Failed(TWO_HOLDERS, oracle.problems)
    if safety.problems:
        raise Failed("safety", safety.problems)


async def _until(world: World, at: float) -> None:
    await asyncio.sleep(max(at - world.loop.time(), 0))
