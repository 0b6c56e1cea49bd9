"""Random plans: every oracle holds for every seed, and every claim is true."""

import gc
from collections.abc import Callable
from time import monotonic

from simulation.plan import SimulationPlan, make_application_plan, make_plan, make_role_plan
from simulation.roles import judge_roles
from simulation.runner import (
    HOUR_SECONDS,
    QUIET_SECONDS,
    RunResult,
    judge,
    judge_truth,
    shrunk,
)
from support.cases import cases
from support.output import print_line

HOUR_EVERY = 50
"""At rest, every so many seeds are watched for an hour instead of `QUIET_SECONDS`."""


def judge_faults(plan: SimulationPlan) -> RunResult:
    """Faults and edits end as from scratch, and nothing unsafe happens."""
    quiet_seconds = QUIET_SECONDS if plan.seed % HOUR_EVERY else HOUR_SECONDS
    return judge(plan, quiet_seconds=quiet_seconds)


@cases(
    "make judge every",
    faults=(make_plan, judge_faults, 1),
    truth=(make_application_plan, judge_truth, 1),
    roles=(make_role_plan, judge_roles, 10),
)
def test_every_oracle_holds_for_random_plans(
    seeds: range,
    ends_at: float,
    make: Callable[[int], SimulationPlan],
    judge: Callable[[SimulationPlan], RunResult],
    every: int,
    record_property: Callable[[str, object], None],
) -> None:
    failed: list[RunResult] = []
    count = 0
    steps = 0
    seconds = 0.0
    for seed in seeds[::every]:
        if monotonic() > ends_at:
            break
        count += 1
        result = judge(make(seed))
        steps += result.steps
        seconds += result.virtual_seconds
        if result.oracle:
            failed.append(result)
        gc.collect()
    record_property("simulated", (count, steps, seconds))
    for result in failed[:1]:
        smallest = shrunk(result, judge)
        print_line("\n".join(map(str, smallest.log)))
        print_line(
            f"{smallest}\nagain: KRUISE_PROBE_SIMULATION_SEEDS='={result.plan.seed}' hack/test simulation"
        )
    assert not failed, [f"seed {result.plan.seed}: {result.oracle}" for result in failed]
