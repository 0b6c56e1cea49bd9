from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon import transitions
from kruise_probe.daemon.transitions import Outcome, Record, Thresholds

HELD_SECONDS = 100.0

S = ProbeState.SUCCEEDED
F = ProbeState.FAILED
U = ProbeState.UNKNOWN


Step = tuple[Literal["result", "blocked", "on-hold", "container", "handler"], ProbeState, float]
KINDS = ["result", "result", "result", "blocked", "on-hold", "container", "handler"]
step = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from([S, F]),
    st.floats(0, 40),
)
steps = st.lists(step, max_size=40)


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
            if self.blocked_since is None:
                self.blocked_since = at
            if at - self.blocked_since >= self.limits.grace_seconds:
                self.state = U
                self.results = []
        elif kind == "on-hold":
            if self.blocked_since is not None:
                self.blocked_since += HELD_SECONDS
        elif kind == "handler":
            self.results = []
        else:
            self.results = []
            self.blocked_since = None
            if self.delayed and self.state is not None:
                self.state = U


counts = st.integers(1, 4)
thresholds = st.builds(
    Thresholds,
    counts,
    counts,
    st.sampled_from([30.0, 60.0]),
)


@given(steps, thresholds, st.booleans())
def test_threshold_agrees_with_a_naive_model(
    steps: list[Step], limits: Thresholds, delayed: bool
) -> None:
    record = Record()
    model = NaiveModel(limits, delayed=delayed)
    at = 0.0
    for kind, result, wait in steps:
        at = round(at + wait, 3)
        match kind:
            case "result":
                record = transitions.result_observed(record, Outcome(result, ""), limits)
            case "blocked":
                record = transitions.attempt_blocked(record, "", by_container=True, at=at)
                record = transitions.time_passed(record, at, limits)
            case "on-hold":
                record = transitions.put_on_hold(record, "away", at)
                at += HELD_SECONDS
                assert transitions.time_passed(record, at, limits) == record
                record = transitions.end_hold(record, at)
            case "container":
                record = transitions.container_replaced(record, keep_state=not delayed)
            case "handler":
                record = transitions.handler_replaced(record)
        model.step(kind, result, at)
        assert (record.shown and record.shown.state) is model.state
