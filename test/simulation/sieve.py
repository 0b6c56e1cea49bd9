"""Sieve's three plans, run on a fixed history of edits.

Intermediate state: a process is killed after one of its writes, and never learns that it was made. Unobserved state: a
process misses a state, because its reads are held until the next one. Stale state: a process restarts against an API server
whose watches are frozen, while another one goes on with a fresh one.

Source: Sun et al., Automatic Reliability Testing for Cluster Management Controllers, OSDI 2022.
Differs: no reference traces; each run must end as from scratch, which is stronger than equal histories.
"""

from collections.abc import Iterator
from typing import Any

from simulation import faults
from simulation.plan import PLANS, PlanStep, SimulationPlan, steps_of
from simulation.world import DAEMONS, MANAGERS, Commit, World

HISTORY = steps_of(PLANS["history"])
SUPERSEDED = PLANS["superseded"]
FIRST_AT_SECONDS = 20.0
SECOND_AT_SECONDS = 29.0
"""Results change within that time, too."""


class KillAfterWrite:
    """Kills the process that makes the `number`-th write of `processes`; `killed` says which one."""

    def __init__(self, number: int, processes: tuple[str, ...]) -> None:
        self.killed = ""
        self._left = number
        self._processes = processes

    def watch(self, world: World) -> None:
        judge_commit = world.on_commit

        def on_commit(commit: Commit) -> None:
            judge_commit(commit)
            if commit.writer in self._processes and commit.resource != "leases":
                self._left -= 1
                if self._left == 0:
                    self.killed = commit.writer
                    world.note("plan", f"kill {commit.writer} after this write")
                    faults.kill(world, commit.writer, 1.0)

        world.on_commit = on_commit


def unobserved(
    edits: list[list[Any]], processes: tuple[str, ...], *, lists: bool
) -> SimulationPlan:
    """`processes` see nothing between the two edits. With `lists`, they have to list again afterwards."""
    first = FIRST_AT_SECONDS
    last = SECOND_AT_SECONDS
    steps = [HISTORY[0], *steps_of([[first, *edits[0]], [last, *edits[1]]])]
    for process in processes:
        steps.append(PlanStep(first - 0.5, "sever", (process, last - first + 3.0, True)))
        if lists:
            steps.append(PlanStep(last + 2.0, "cut_streams", (process,)))
    if lists:
        steps.append(PlanStep(last + 1.0, "expire", ()))
    return SimulationPlan(0, tuple(sorted(steps)))


def stale() -> Iterator[tuple[str, SimulationPlan]]:
    """Restarts against the frozen server 1 at every second of the history, with and without a leader on server 0."""
    for process in (*MANAGERS, *DAEMONS):
        for at in (10.0, 21.0, 29.0):
            steps = (
                *HISTORY,
                PlanStep(0.5, "connect", (process, 1)),
                PlanStep(0.6, "kill", (process, 0.0)),
                PlanStep(at, "lag", (1, 20.0)),
                PlanStep(at + 4.0, "kill", (process, 0.5)),
            )
            yield f"{process} at {at:g} s", SimulationPlan(0, tuple(sorted(steps)))
