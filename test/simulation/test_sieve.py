"""Sieve's plans: intermediate, unobserved and stale states."""

import pytest
from simulation.plan import Row, SimulationPlan
from simulation.runner import judge
from simulation.sieve import HISTORY, SUPERSEDED, KillAfterWrite, stale, unobserved
from simulation.world import DAEMONS, MANAGERS
from support.cases import cases
from support.output import print_line

QUIET_SECONDS = 20.0


@cases("processes", managers=MANAGERS, daemons=DAEMONS)
@pytest.mark.parametrize("part", range(4))
def test_a_kill_after_any_write_ends_as_from_scratch(processes: tuple[str, ...], part: int) -> None:
    """Each part has every fourth write. The history ends when there is no such write any more."""
    number = part + 1
    while True:
        kill = KillAfterWrite(number, processes)
        plan = SimulationPlan(number, HISTORY)
        result = judge(plan, quiet_seconds=QUIET_SECONDS, watch=kill.watch)
        assert not result.oracle, f"write {number}: {result}"
        if not kill.killed:
            break
        number += 4
    print_line(f"part {part}: killed after each fourth of {number} writes")
    assert number > 8


@pytest.mark.parametrize("lists", [False, True], ids=["held", "listed again"])
@pytest.mark.parametrize("edits", SUPERSEDED.values(), ids=SUPERSEDED)
@cases("processes", managers=MANAGERS, daemons=DAEMONS)
def test_a_state_that_nobody_observed_leaves_nothing(
    processes: tuple[str, ...],
    edits: list[Row],
    lists: bool,
) -> None:
    plan = unobserved(edits, processes, lists=lists)
    result = judge(plan, quiet_seconds=QUIET_SECONDS)
    assert not result.oracle, result


@pytest.mark.parametrize("plan", [pytest.param(plan, id=name) for name, plan in stale()])
def test_a_restart_against_a_frozen_server_ends_as_from_scratch(plan: SimulationPlan) -> None:
    result = judge(plan, quiet_seconds=QUIET_SECONDS)
    assert not result.oracle, result
