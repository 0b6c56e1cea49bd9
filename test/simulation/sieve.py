"""Sieve's three plans, run on a fixed history of edits.

Intermediate state: a process is killed after one of its writes, and never learns that it was made. Unobserved state: a
process misses a state, because its reads are held until the next one. Stale state: a process restarts against an API server
whose watches are frozen, while another one goes on with a fresh one.

Source: Sun et al., Automatic Reliability Testing for Cluster Management Controllers, OSDI 2022.
Differs: no reference traces; each run must end as from scratch, which is stronger than equal histories.
"""

from collections.abc import Iterator

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

SUPERSEDED: dict[str, tuple[PlanStep, PlanStep]] = {
    "a marker that is created and deleted": (
        PlanStep(20.0, "put_marker", ("a", 4)),
        PlanStep(22.0, "drop_marker", ("a",)),
    ),
    "a marker that is deleted and created": (
        PlanStep(20.0, "drop_marker", ("way",)),
        PlanStep(22.0, "put_marker", ("way", 15)),
    ),
    "a label that changes and changes back": (
        PlanStep(20.0, "label", ("web-1", "db")),
        PlanStep(22.0, "label", ("web-1", "web")),
    ),
    "a pod that is replaced twice": (
        PlanStep(20.0, "replace_pod", ("web-1", "node-1")),
        PlanStep(22.0, "replace_pod", ("web-1", "node-2")),
    ),
    "a Node that is registered again": (
        PlanStep(20.0, "recreate_node", ("node-1", 0.5)),
        PlanStep(22.0, "recreate_node", ("node-1", 0.5)),
    ),
    "a NodePodProbe that is deleted": (
        PlanStep(20.0, "delete_plan", ("node-1",)),
        PlanStep(22.0, "empty_plan", ("node-1",)),
    ),
    "a result that changes and changes back": (
        PlanStep(20.0, "set_outcome", ("web-1", "way-p", 1, "bad")),
        PlanStep(29.0, "set_outcome", ("web-1", "way-p", 0, "fine")),
    ),
    "a Lease that is deleted and renewed": (
        PlanStep(20.0, "age_lease", ("node-1",)),
        PlanStep(22.0, "delete_lease", ("node-1",)),
    ),
}


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
    edits: tuple[PlanStep, PlanStep], processes: tuple[str, ...], *, lists: bool
) -> SimulationPlan:
    """`processes` see nothing between the two edits. With `lists`, they have to list again afterwards."""
    first, second = edits
    steps = [HISTORY[0], *edits]
    for process in processes:
        steps.append(PlanStep(first.at - 0.5, "sever", (process, second.at - first.at + 3.0, True)))
        if lists:
            steps.append(PlanStep(second.at + 2.0, "cut_streams", (process,)))
    if lists:
        steps.append(PlanStep(second.at + 1.0, "expire", ()))
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
