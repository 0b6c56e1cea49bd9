"""Random edits and faults: every oracle holds for every seed."""

import gc
from collections.abc import Callable
from time import monotonic

from simulation.plan import make_plan
from simulation.runner import HOUR_SECONDS, QUIET_SECONDS, RunResult, judge, shrunk
from support.output import print_line

HOUR_EVERY = 50
"""At rest, every so many seeds are watched for an hour instead of `QUIET_SECONDS`."""


def quiet_seconds(seed: int) -> float:
    return HOUR_SECONDS if seed % HOUR_EVERY == 0 else QUIET_SECONDS


def test_faults_and_edits_end_as_from_scratch_and_nothing_unsafe_happens(
    seeds: range, ends_at: float, record_property: Callable[[str, object], None]
) -> None:
    failed: list[RunResult] = []
    count, steps, seconds = 0, 0, 0.0
    for seed in seeds:
        if monotonic() > ends_at:
            break
        count += 1
        result = judge(make_plan(seed), quiet_seconds=quiet_seconds(seed))
        steps += result.steps
        seconds += result.virtual_seconds
        if result.oracle:
            failed.append(result)
        gc.collect()
    record_property("simulated", (count, steps, seconds))
    for each in failed[:1]:
        smallest = shrunk(each)
        print_line("\n".join(map(str, smallest.log)))
        print_line(
            f"{smallest}\nagain: KRUISE_PROBE_SIMULATION_SEEDS='={each.plan.seed}' hack/test simulation"
        )
    assert not failed, [f"seed {each.plan.seed}: {each.oracle}" for each in failed]
