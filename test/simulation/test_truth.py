"""What is published is true in lives of applications in which it was not, and the oracle sees what is false."""

import pytest
from simulation.broken import Break, replace, returning
from simulation.plan import PLANS, SimulationPlan, steps_of
from simulation.runner import judge_truth
from support.cases import cases

from kruise_probe.controllers import marking
from kruise_probe.controllers.compiled import CompiledProbe

DELAYED = 26
"""A variant of the marker: three probes with an initial delay."""


def problems(name: str) -> str:
    first = [0.5, "put_application_marker", DELAYED]
    plan = SimulationPlan(1, steps_of([first, *PLANS["known"][name]]))
    return judge_truth(plan).oracle


@pytest.mark.parametrize("name", PLANS["known"])
def test_what_was_false_once_is_true(name: str) -> None:
    assert not problems(name)


NEVER_UNKNOWN = replace(marking, "why_unknown", returning(None))


@cases(
    "known break_it problem",
    completed=("a-completed-container", NEVER_UNKNOWN, "instead of"),
    finished=("a-finished-pod", NEVER_UNKNOWN, "instead of"),
    silent=("a-silent-daemon", NEVER_UNKNOWN, "without daemon"),
    kept=(
        "a-silent-daemon",
        replace(CompiledProbe, "keeps_when_stale", False),
        "ProbeDaemonStale without cause",
    ),
    paused=(
        "a-pause-while-a-container-completes",
        replace(marking, "_mark_paused", returning(None)),
        "instead of ProbePaused",
    ),
)
def test_the_oracle_sees_what_is_false(
    known: str,
    break_it: Break,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_it(monkeypatch)
    assert problem in problems(known)
