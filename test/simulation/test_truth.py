"""What is published is true in lives of applications in which it was not, and the oracle sees what is false."""

import pytest
from simulation.applications import HANDLERS
from simulation.plan import PlanStep, SimulationPlan
from simulation.runner import judge_truth
from simulation.world import MANAGERS, POD_NAMES
from support.cases import cases

from kruise_probe.controllers import marking
from kruise_probe.controllers.compiled import CompiledProbe

DELAYED, FREQUENT = 26, 1
"""Variants of the marker: three probes with an initial delay; httpGet every three seconds."""


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
    "a-clock-that-is-stepped-forward": steps(*((at, "skew", manager, at) for at in (120.0, 595.0) for manager in MANAGERS)),
    "the-lease-of-a-dead-daemon-is-deleted": steps((30.0, "lose_daemon_and_lease", "node-1", 330.0)),
    "more-than-ten-field-managers": steps((30.0, "crowd", "web-0"), (40.0, "drop_marker", "app")),
    "a-completed-container": steps((30.0, "complete_container", "web-0")),
    "a-pause-while-a-container-completes": steps(
        (30.0, "pause", "web-0", "true"), (31.0, "complete_container", "web-0"), (300.0, "pause", "web-0", None),
    ),
    "a-pause-while-the-daemon-ends": steps(
        (30.0, "pause", "app", "true"), (31.0, "kill", "daemon-node-1", 400.0), (200.0, "pause", "app", None),
    ),
    "a-silent-daemon": steps((30.0, "kill", "daemon-node-1", 400.0)),
    "a-finished-pod": steps((30.0, "finish_pod", "web-0", "Failed")),
    "a-finished-pod-with-more-than-ten-field-managers": steps((30.0, "crowd", "web-0"), (40.0, "finish_pod", "web-0", "Failed")),
    "a-runtime-that-cannot-be-asked": steps(
        (30.0, "lose_runtime", "node-1", 330.0), *((31.0, "behave", "web-0", name, False, 0.01) for name in HANDLERS),
    ),
    "a-reboot": steps((30.0, "reboot", "node-1", 200.0, 60.0)),
}  # fmt: skip


def problems(name: str) -> str:
    first = PlanStep(0.5, "put_application_marker", (DELAYED,))
    return judge_truth(SimulationPlan(1, tuple(sorted([first, *KNOWN[name]])))).oracle


@pytest.mark.parametrize("name", KNOWN)
def test_what_was_false_once_is_true(name: str) -> None:
    assert not problems(name)


def returns_nothing(*_: object) -> None:
    return None


@cases(
    "known owner name value problem",
    completed=("a-completed-container", marking, "why_unknown", returns_nothing, "instead of"),
    finished=("a-finished-pod", marking, "why_unknown", returns_nothing, "instead of"),
    silent=("a-silent-daemon", marking, "why_unknown", returns_nothing, "without daemon"),
    kept=(
        "a-silent-daemon",
        CompiledProbe,
        "keeps_when_stale",
        False,
        "ProbeDaemonStale without cause",
    ),
    paused=(
        "a-pause-while-a-container-completes",
        marking,
        "_mark_paused",
        returns_nothing,
        "instead of ProbePaused",
    ),
)
def test_the_oracle_sees_what_is_false(
    known: str,
    owner: object,
    name: str,
    value: object,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, value)
    assert problem in problems(known)
