"""What is published is true: for random lives of applications, and for those in which it was not."""

import gc
from collections.abc import Callable
from time import monotonic

from simulation.applications import HANDLERS
from simulation.plan import PlanStep, SimulationPlan, make_application_plan
from simulation.runner import RunResult, judge_truth, shrunk
from simulation.world import MANAGERS, POD_NAMES
from support.cases import cases
from support.output import print_line

DELAYED, FREQUENT = 26, 1
"""Variants of the marker: three probes with an initial delay; httpGet every three seconds."""


def test_every_claim_is_true(
    seeds: range, ends_at: float, record_property: Callable[[str, object], None]
) -> None:
    failed: list[RunResult] = []
    count, steps, seconds = 0, 0, 0.0
    for seed in seeds:
        if monotonic() > ends_at:
            break
        count += 1
        result = judge_truth(make_application_plan(seed))
        steps += result.steps
        seconds += result.virtual_seconds
        if result.oracle:
            failed.append(result)
        gc.collect()
    record_property("simulated", (count, steps, seconds))
    for each in failed[:1]:
        print_line(str(shrunk(each, judge_truth)))
    assert not failed, [f"seed {each.plan.seed}: {each.oracle}" for each in failed]


def steps(*timed: tuple[float, str, *tuple[object, ...]]) -> tuple[PlanStep, ...]:
    return tuple(PlanStep(at, name, tuple(arguments)) for at, name, *arguments in timed)


SLOW_PODS = steps(
    (0.4, "put_application_marker", FREQUENT),
    *((1.0, "behave", pod, "http", True, 0.9) for pod in POD_NAMES),
)
CRASHES = steps(
    *(
        (20.0 + 2.3 * number, "restart_container", pod, 330.0)
        for number, pod in enumerate(POD_NAMES)
    )
)
STEPPED_BACK = steps(*((41.0, "skew", manager, -3600.0) for manager in MANAGERS))
KNOWN: dict[str, tuple[PlanStep, ...]] = {
    "a-result-after-the-exit": (*SLOW_PODS, *CRASHES),
    "a-delay-that-ended-while-the-daemon-was-down": steps(
        (30.0, "kill", "daemon-node-1", 45.0), *((31.0, "restart_container", pod, 0.0) for pod in POD_NAMES),
    ),
    "a-clock-that-is-stepped-back": (*STEPPED_BACK, *steps((40.0, "kill", "daemon-node-1", 200.0))),
    "the-lease-of-a-dead-daemon-is-deleted": steps((30.0, "lose_daemon_and_lease", "node-1", 330.0)),
    "more-than-ten-field-managers": steps((30.0, "crowd", "web-0"), (40.0, "drop_marker", "app")),
    "a-finished-pod": steps((30.0, "finish_pod", "web-0", "Failed")),
    "a-finished-pod-with-more-than-ten-field-managers": steps((30.0, "crowd", "web-0"), (40.0, "finish_pod", "web-0", "Failed")),
    "a-runtime-that-cannot-be-asked": steps(
        (30.0, "lose_runtime", "node-1", 330.0), *((31.0, "behave", "web-0", name, False, 0.01) for name in HANDLERS),
    ),
    "a-reboot": steps((30.0, "reboot", "node-1", 200.0, 60.0)),
}  # fmt: skip


@cases("known", **KNOWN)
def test_what_was_false_once_is_true(known: tuple[PlanStep, ...]) -> None:
    first = PlanStep(0.5, "put_application_marker", (DELAYED,))
    result = judge_truth(SimulationPlan(1, tuple(sorted([first, *known]))))
    assert not result.oracle, result
