"""Failovers of a role: the oracle that no write of a manager makes two pods carry it.

The pods are databases: each says whether it is the primary. The old one may go on saying so, die, hang or come back.
"""

import asyncio
from collections.abc import Callable

from simulation import applications, edits, faults
from simulation.applications import QUICK, Applications, promote
from simulation.loop import SimulatedLoop
from simulation.plan import SimulationPlan
from simulation.runner import (
    BUSY_STEP_SECONDS,
    Failed,
    RunResult,
    expect_none,
    new_world,
    result_of,
    until,
)
from simulation.safety import Safety
from simulation.world import MANAGERS, NODE_NAMES, POD_NAMES, Commit, World
from support.builders import policy_wire, probe_wire

from kruise_probe.api.resources import PODS

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
    probe = probe_wire(
        PROBE,
        condition=f"c/{PROBE}",
        policies=policies,
        handler={"exec": {"command": [PROBE]}},
        periodSeconds=1,
    )
    applications.create_marker_of(world, {**probe, "exclusive": {}})


class OneHolder:
    """Observes all writes. `holders` are the pods that carry the role."""

    def __init__(self, world: World) -> None:
        self.problems: list[str] = []
        self.holders: set[str] = set()
        self._world = world
        self._next: Callable[[Commit], None] = world.on_commit
        world.on_commit = self.check

    def check(self, commit: Commit) -> None:
        self._next(commit)
        if commit.resource != "pods":
            return
        labels = commit.new["metadata"].get("labels") or {} if commit.new else {}
        if labels.get(ROLE) != PRIMARY:
            self.holders.discard(commit.name)
        elif commit.name not in self.holders:
            self._judge(commit)
            self.holders.add(commit.name)

    def _judge(self, commit: Commit) -> None:
        age = commit.at - self._world.servers.sent_at
        if self.holders and commit.writer in MANAGERS and age < LEASE_SECONDS:
            self.problems.append(
                f"{commit.at:.3f} {commit.writer} sets {commit.name}, sent {age:.3f} s before, "
                f"and {sorted(self.holders)} carry the role"
            )


def judge_roles(plan: SimulationPlan) -> RunResult:
    """Run a plan; then the last of two pods that say so must hold the role, also after a restart of the managers."""

    def play(loop: SimulatedLoop, worlds: list[World]) -> None:
        loop.step_seconds = BUSY_STEP_SECONDS
        loop.run_until_complete(_play(plan, worlds))

    return result_of(plan, play)


async def _play(plan: SimulationPlan, worlds: list[World]) -> None:
    world = await new_world(plan, worlds)
    world.applications = Applications(world)
    safety = Safety(world)
    oracle = OneHolder(world)
    edits.populate(world)
    put_role_marker(world, with_replicas=plan.seed % 2 == 0)
    world.start()
    for step in plan.steps:
        await until(world, step.at)
        step.apply(world)
        expect_none(TWO_HOLDERS, oracle.problems)
        expect_none("safety", safety.problems)
    world.heal()
    await asyncio.sleep(SETTLING_SECONDS)
    for number, name in enumerate(POD_NAMES):
        applications.behave(
            world,
            name,
            PROBE,
            False,
            QUICK,
        )
        if world.get(PODS, name) is None:
            edits.create_pod(world, name, NODE_NAMES[number % 2])
    await asyncio.sleep(20.0)
    promote(world, "web-1", "demoted")
    await asyncio.sleep(20.0)
    _expect(NO_HOLDER, oracle, "web-1")
    for daemon in world.daemons:  # The clock of the node of the later claim is behind.
        daemon.skew_seconds = -300.0 if daemon.node == NODE_NAMES[1] else 0.0
    for name, old in (("web-0", "demoted"), ("web-3", "claims")):
        promote(world, name, old)
        await asyncio.sleep(20.0)
        _expect(NO_HOLDER, oracle, name)
    for manager in MANAGERS:
        faults.kill(world, manager, 1.0)
    await asyncio.sleep(60.0)
    _expect(RESTARTED, oracle, "web-3")
    expect_none("safety", safety.problems)


def _expect(rule: str, oracle: OneHolder, holder: str) -> None:
    expect_none(TWO_HOLDERS, oracle.problems)
    if oracle.holders != {holder}:
        raise Failed(rule, [f"expected {holder}, found {sorted(oracle.holders)}"])
