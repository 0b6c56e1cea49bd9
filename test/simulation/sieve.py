"""Sieve's three plans, run on a fixed history of edits.

Intermediate state: a process is killed after one of its writes, and never learns that it was made. Unobserved state: a
process misses a state, because its reads are held until the next one. Stale state: a process restarts against an API server
whose watches are frozen, while another one goes on with a fresh one.

Source: Sun et al., Automatic Reliability Testing for Cluster Management Controllers, OSDI 2022.
Differs: no reference traces; each run must end as from scratch, which is stronger than equal histories.
"""

from collections.abc import Iterator

from simulation import faults
from simulation.plan import PLANS, Row, SimulationPlan, steps_of
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
            if commit.writer not in self._processes or commit.resource == "leases":
                return
            self._left -= 1
            if self._left == 0:
                self.killed = commit.writer
                world.note("plan", f"kill {commit.writer} after this write")
                faults.kill(world, commit.writer, 1.0)

        world.on_commit = on_commit


def unobserved(
    edits: list[Row],
    processes: tuple[str, ...],
    *,
    lists: bool,
) -> SimulationPlan:
    """`processes` see nothing between the two edits. With `lists`, they have to list again afterwards."""
    first, second = edits
    missed_from = FIRST_AT_SECONDS - 0.5
    missed_seconds = SECOND_AT_SECONDS - FIRST_AT_SECONDS + 3.0
    rows: list[Row] = [
        [FIRST_AT_SECONDS, *first],
        [SECOND_AT_SECONDS, *second],
        *([missed_from, "sever", process, missed_seconds, True] for process in processes),
    ]
    if lists:
        rows.append([SECOND_AT_SECONDS + 1.0, "expire"])
        rows += [[SECOND_AT_SECONDS + 2.0, "cut_streams", process] for process in processes]
    return SimulationPlan(
        0,
        tuple(sorted([HISTORY[0], *steps_of(rows)])),
    )


def stale() -> Iterator[tuple[str, SimulationPlan]]:
    """Restarts against the frozen server 1 at every second of the history, with and without a leader on server 0."""
    for process in (*MANAGERS, *DAEMONS):
        for at in (10.0, 21.0, 29.0):
            rows: list[Row] = [
                [0.5, "connect", process, 1],
                [0.6, "kill", process, 0.0],
                [at, "lag", 1, 20.0],
                [at + 4.0, "kill", process, 0.5],
            ]
            steps = sorted([*HISTORY, *steps_of(rows)])
            yield f"{process} at {at:g} s", SimulationPlan(0, tuple(steps))
