from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_node import exec_probe

from kruise_probe.api.core import Probe
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon import threshold
from kruise_probe.daemon.threshold import Record, Thresholds, thresholds_of

S, F, U = ProbeState.SUCCEEDED, ProbeState.FAILED, ProbeState.UNKNOWN
NOTHING = Record()
LIMITS = Thresholds(success=2, failure=3, grace_seconds=30.0)


def after(*verdicts: ProbeState, record: Record = NOTHING, limits: Thresholds = LIMITS) -> Record:
    for number, verdict in enumerate(verdicts):
        record = threshold.verdict_reached(record, verdict, f"{verdict} {number}", limits)
    return record


def blocked(record: Record, at: float, *, of_container: bool = True) -> Record:
    return threshold.not_reached(
        record, "Reason: detail", of_container=of_container, at=at, thresholds=LIMITS
    )


@pytest.mark.parametrize(
    ("verdicts", "state", "message"),
    [
        pytest.param([], None, "", id="nothing-before-the-first-probe"),
        pytest.param([S], None, "", id="below-the-threshold-nothing-is-published"),
        pytest.param([S, S], S, "Succeeded 1", id="success-threshold"),
        pytest.param([F, F], None, "", id="failures-below"),
        pytest.param([F, F, F], F, "Failed 2", id="failure-threshold"),
        pytest.param([S, S, F, F], S, "Succeeded 1", id="the-old-state-and-message-stand"),
        pytest.param([S, S, F, F, S, F, F], S, "Succeeded 1", id="a-success-ends-a-run"),
        pytest.param([S, S, F, F, F], F, "Failed 4", id="the-newest-message-comes-along"),
        pytest.param([F, S, F, S, F, S], None, "", id="alternating-never-settles"),
        pytest.param([S, S, S, S], S, "Succeeded 3", id="the-message-follows"),
    ],
)
def test_the_state_changes_after_equal_verdicts_in_a_row(
    verdicts: list[ProbeState], state: ProbeState | None, message: str
) -> None:
    record = after(*verdicts)
    assert (record.state, record.message) == (state, message)


Step = tuple[Literal["verdict", "blocked", "away", "container", "question"], ProbeState, float]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["verdict", "verdict", "verdict", "blocked", "away", "container", "question"]
        ),
        st.sampled_from([S, F]),
        st.floats(0, 40),
    ),
    max_size=40,
)


class NaiveModel:
    """The rules as they are told: keeps the whole history and looks at its end each time."""

    def __init__(self, limits: Thresholds, *, delayed: bool) -> None:
        self.limits = limits
        self.delayed = delayed
        self.state: ProbeState | None = None
        self.verdicts: list[ProbeState] = []
        self.blocked_since: float | None = None

    def step(self, kind: str, verdict: ProbeState, at: float) -> None:
        if kind == "verdict":
            self.blocked_since = None
            self.verdicts.append(verdict)
            needed = self.limits.success if verdict is S else self.limits.failure
            if self.verdicts[-needed:] == [verdict] * needed:
                self.state = verdict
        elif kind == "blocked":
            self.blocked_since = at if self.blocked_since is None else self.blocked_since
            if at - self.blocked_since >= self.limits.grace_seconds:
                self.state, self.verdicts = U, []
        elif kind == "away":
            self.blocked_since = None
        else:
            self.verdicts, self.blocked_since = [], None
            if kind == "container" and self.delayed and self.state is not None:
                self.state = U


@given(
    steps,
    st.builds(Thresholds, st.integers(1, 4), st.integers(1, 4), st.sampled_from([30.0, 60.0])),
    st.booleans(),
)
def test_it_agrees_with_a_naive_model(steps: list[Step], limits: Thresholds, delayed: bool) -> None:
    record, model, at = Record(), NaiveModel(limits, delayed=delayed), 0.0
    for kind, verdict, wait in steps:
        at = round(at + wait, 3)
        match kind:
            case "verdict":
                record = threshold.verdict_reached(record, verdict, "", limits)
            case "blocked":
                record = threshold.not_reached(
                    record, "", of_container=True, at=at, thresholds=limits
                )
            case "away":
                record = threshold.put_on_hold(record)
            case "container":
                record = threshold.container_changed(record, initial_delay=delayed)
            case "question":
                record = threshold.question_changed(record)
        model.step(kind, verdict, at)
        assert record.state is model.state


def test_a41_an_obstacle_makes_the_state_unknown_after_the_grace_only() -> None:
    record = blocked(after(S, S), 100.0)
    assert threshold.time_passed(record, 129.9, LIMITS).state is S

    record = threshold.time_passed(record, 130.0, LIMITS)
    assert (record.state, record.message) == (U, "Reason: detail")


def test_an_obstacle_counts_from_its_first_attempt_whatever_follows() -> None:
    record = blocked(after(S, S), 100.0)
    record = threshold.not_reached(
        record, "Other: detail", of_container=False, at=130.0, thresholds=LIMITS
    )
    assert (record.state, record.message) == (U, "Other: detail")


def test_no_verdict_counts_across_unknown() -> None:
    record = threshold.time_passed(blocked(after(S, S, F, F), 100.0), 130.0, LIMITS)
    assert after(F, record=record).state is U
    assert after(F, F, F, record=record).state is F


def test_an_obstacle_that_passes_in_time_leaves_no_trace() -> None:
    record = after(S, S, F, F)
    passed = threshold.container_runs(blocked(record, 100.0))
    assert passed == record
    assert threshold.time_passed(passed, 1000.0, LIMITS).state is S


def test_a_running_container_does_not_end_what_its_attempts_met() -> None:
    record = blocked(after(S, S), 100.0, of_container=False)
    assert threshold.container_runs(record) == record


def test_while_the_runtime_is_away_the_grace_does_not_run() -> None:
    record = threshold.put_on_hold(blocked(after(S, S), 100.0))
    assert threshold.time_passed(record, 1000.0, LIMITS).state is S
    assert blocked(record, 1000.0).state is S


@pytest.mark.parametrize(
    ("record", "initial_delay", "state"),
    [
        pytest.param(after(S, S), False, S, id="without-a-delay-the-state-stands"),
        pytest.param(after(F, F, F), True, U, id="with-a-delay-it-is-unknown"),
        pytest.param(after(S), True, None, id="what-was-never-published-stays-so"),
    ],
)
def test_a_new_container(record: Record, initial_delay: bool, state: ProbeState | None) -> None:
    changed = threshold.container_changed(record, initial_delay=initial_delay)
    assert changed.state is state
    assert changed.run == 0
    if state is U:
        assert changed.message.startswith("ContainerRestarted: ")


def test_counters_belong_to_a_container() -> None:
    record = threshold.container_changed(after(S, S, F, F), initial_delay=False)
    assert after(F, F, record=record).state is S
    assert after(F, F, F, record=record).state is F


def test_new_thresholds_apply_to_the_verdicts_counted_so_far() -> None:
    record = after(S, S, F, F)
    assert threshold.thresholds_changed(record, LIMITS) == record
    changed = threshold.thresholds_changed(record, Thresholds(2, 2, 30.0))
    assert (changed.state, changed.message) == (F, "Failed 3")


def test_another_question_starts_a_new_run_and_keeps_the_state() -> None:
    record = threshold.question_changed(after(S, S, F, F))
    assert after(F, F, record=record).state is S


@pytest.mark.parametrize(
    ("record", "settled"),
    [
        pytest.param(Record(), False, id="nothing"),
        pytest.param(after(S, S), True, id="threshold-met"),
        pytest.param(after(S, S, F), False, id="the-newest-verdict-says-otherwise"),
        pytest.param(after(S, record=threshold.restored(S, "old")), False, id="below"),
        pytest.param(threshold.unknown("no"), False, id="unknown"),
    ],
)
def test_settled_says_that_the_newest_verdicts_carry_the_state(
    record: Record, settled: bool
) -> None:
    assert settled is threshold.settled(record, LIMITS)


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        pytest.param(exec_probe(), Thresholds(1, 1, 30.0), id="a43-absent-numbers-are-kruises"),
        pytest.param(
            exec_probe(failure_threshold=3, period_seconds=20), Thresholds(1, 3, 60.0), id="grace"
        ),
        pytest.param(
            exec_probe(failure_threshold=-3, success_threshold=0, period_seconds=-1),
            Thresholds(1, 1, 30.0),
            id="absurd-numbers-have-effective-values",
        ),
    ],
)
def test_thresholds_of_a_probe(probe: Probe, expected: Thresholds) -> None:
    assert expected == thresholds_of(probe)
