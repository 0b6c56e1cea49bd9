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
from simulation.plan import PlanStep, SimulationPlan
from simulation.world import DAEMONS, MANAGERS, Commit, World

HISTORY = (
    PlanStep(1.0, "put_marker", ("way", 3)),
    PlanStep(3.0, "put_marker", ("gateway", 12)),
    PlanStep(14.0, "set_outcome", ("web-1", "way-p", 1, "bad")),
    PlanStep(15.0, "label", ("web-2", "db")),
    PlanStep(20.0, "replace_pod", ("web-0", "node-2")),
    PlanStep(24.0, "put_marker", ("way", 15)),
    PlanStep(28.0, "recreate_node", ("node-1", 1.0)),
    PlanStep(32.0, "drop_marker", ("gateway",)),
)

SUPERSEDED: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "a marker that is created and deleted": (("put_marker", "a", 4), ("drop_marker", "a")),
    "a marker that is deleted and created": (("drop_marker", "way"), ("put_marker", "way", 15)),
    "a label that changes and changes back": (("label", "web-1", "db"), ("label", "web-1", "web")),
    "a pod that is replaced twice": (
        ("replace_pod", "web-1", "node-1"),
        ("replace_pod", "web-1", "node-2"),
    ),
    "a Node that is registered again": (
        ("recreate_node", "node-1", 0.5),
        ("recreate_node", "node-1", 0.5),
    ),
    "a NodePodProbe that is deleted": (("delete_plan", "node-1"), ("empty_plan", "node-1")),
    "a result that changes and changes back": (
        ("set_outcome", "web-1", "way-p", 1, "bad"),
        ("set_outcome", "web-1", "way-p", 0, "fine"),
    ),
    "a Lease that is deleted and renewed": (("age_lease", "node-1"), ("delete_lease", "node-1")),
}
"""Two edits, each with its arguments."""
FIRST_AT_SECONDS, SECOND_AT_SECONDS = 20.0, 29.0
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
    edits: tuple[tuple[Any, ...], tuple[Any, ...]], processes: tuple[str, ...], *, lists: bool
) -> SimulationPlan:
    """`processes` see nothing between the two edits. With `lists`, they have to list again afterwards."""
    first, last = FIRST_AT_SECONDS, SECOND_AT_SECONDS
    steps = [HISTORY[0]]
    for at, (name, *arguments) in zip((first, last), edits, strict=True):
        steps.append(PlanStep(at, name, tuple(arguments)))
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
