"""Failovers of a role: the oracle that no write of a manager makes two pods carry it.

The pods are databases: each says whether it is the primary. The old one may go on saying so, die, hang or come back.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from simulation import applications, edits
from simulation.applications import Applications, promote
from simulation.plan import SimulationPlan
from simulation.runner import BUSY_STEP_SECONDS, Failed, RunResult, simulated
from simulation.safety import Safety
from simulation.world import (
    MANAGERS,
    NAMESPACE,
    NODE_NAMES,
    POD_NAMES,
    Commit,
    World,
)
from support.builders import marker_wire, policy_wire, probe_wire
from support.wire import Json

from kruise_probe.api.resources import MARKERS, PODS

ROLE = "l-role"
PRIMARY = "primary"
REPLICA = "replica"
PROBE = "exec"
LEASE_SECONDS = 15.0
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
    steps = 0
    seconds = 0.0
    try:
        with simulated(plan.seed) as loop:
            loop.step_seconds = BUSY_STEP_SECONDS
            try:
                loop.run_until_complete(_play(plan, worlds, found))
            finally:
                steps = loop.steps
                seconds = loop.time()
    except Failed as failed:
        oracle = failed.oracle
        problems = tuple(failed.problems)
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
        step.apply(world)
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
