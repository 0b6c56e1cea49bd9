from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon import state
from kruise_probe.daemon.state import Record, Thresholds

S, F, U = ProbeState.SUCCEEDED, ProbeState.FAILED, ProbeState.UNKNOWN
NOTHING = Record()
LIMITS = Thresholds(success=2, failure=3, grace_seconds=30.0)


def after(*results: ProbeState, record: Record = NOTHING, limits: Thresholds = LIMITS) -> Record:
    for number, result in enumerate(results):
        record = state.result_observed(record, result, f"{result} {number}", limits)
    return record


def blocked(record: Record, at: float, *, by_container: bool = True) -> Record:
    return state.attempt_blocked(
        record, "Reason: detail", by_container=by_container, at=at, thresholds=LIMITS
    )


Step = tuple[Literal["result", "blocked", "on-hold", "container", "handler"], ProbeState, float]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["result", "result", "result", "blocked", "on-hold", "container", "handler"]
        ),
        st.sampled_from([S, F]),
        st.floats(0, 40),
    ),
    max_size=40,
)


class NaiveModel:
    """The rules, written naively: keeps the whole history and evaluates its end each time."""

    def __init__(self, limits: Thresholds, *, delayed: bool) -> None:
        self.limits = limits
        self.delayed = delayed
        self.state: ProbeState | None = None
        self.results: list[ProbeState] = []
        self.blocked_since: float | None = None

    def step(self, kind: str, result: ProbeState, at: float) -> None:
        if kind == "result":
            self.blocked_since = None
            self.results.append(result)
            needed = self.limits.success if result is S else self.limits.failure
            if self.results[-needed:] == [result] * needed:
                self.state = result
        elif kind == "blocked":
            self.blocked_since = at if self.blocked_since is None else self.blocked_since
            if at - self.blocked_since >= self.limits.grace_seconds:
                self.state, self.results = U, []
        elif kind == "on-hold":
            self.blocked_since = None
        else:
            self.results, self.blocked_since = [], None
            if kind == "container" and self.delayed and self.state is not None:
                self.state = U


@given(
    steps,
    st.builds(Thresholds, st.integers(1, 4), st.integers(1, 4), st.sampled_from([30.0, 60.0])),
    st.booleans(),
)
def test_threshold_agrees_with_a_naive_model(
    steps: list[Step], limits: Thresholds, delayed: bool
) -> None:
    record, model, at = Record(), NaiveModel(limits, delayed=delayed), 0.0
    for kind, result, wait in steps:
        at = round(at + wait, 3)
        match kind:
            case "result":
                record = state.result_observed(record, result, "", limits)
            case "blocked":
                record = state.attempt_blocked(
                    record, "", by_container=True, at=at, thresholds=limits
                )
            case "on-hold":
                record = state.put_on_hold(record)
            case "container":
                record = state.container_changed(record, initial_delay=delayed)
            case "handler":
                record = state.handler_changed(record)
        model.step(kind, result, at)
        assert record.state is model.state


def test_grace_period_starts_with_the_first_blocked_attempt() -> None:
    record = blocked(after(S, S), 100.0)
    record = state.attempt_blocked(
        record, "Other: detail", by_container=False, at=130.0, thresholds=LIMITS
    )
    assert (record.state, record.message) == (U, "Other: detail")


def test_results_before_unknown_do_not_count() -> None:
    record = state.time_passed(blocked(after(S, S, F, F), 100.0), 130.0, LIMITS)
    assert after(F, record=record).state is U
    assert after(F, F, F, record=record).state is F


def test_first_text_of_a_reason_stays_while_attempts_are_blocked() -> None:
    record, messages = after(S, S), []
    for at, text in enumerate(("A: id 1", "A: id 2", "B: id 3", "A: id 4", "A: id 5")):
        record = state.attempt_blocked(
            record, text, by_container=False, at=100.0 * at, thresholds=LIMITS
        )
        messages.append(record.message)
    assert messages == ["Succeeded 1", "A: id 1", "B: id 3", "A: id 4", "A: id 4"]


def test_text_of_an_edited_handler_replaces_that_of_the_old_one() -> None:
    record = blocked(NOTHING, 0.0, by_container=False)
    record = state.attempt_blocked(
        state.handler_changed(record), "Reason: of the new one", by_container=False, at=1.0, thresholds=LIMITS
    )  # fmt: skip
    assert record.message == "Reason: of the new one"
