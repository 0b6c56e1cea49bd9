from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from kruise_probe.daemon.schedule import (
    StartTime,
    Timing,
    due_after_restart,
    stretch,
    ticks_missed,
)

starts = st.builds(
    StartTime,
    wall_seconds=st.floats(1.6e9, 2.2e9),
    loop_seconds=st.floats(0, 1e7),
)
periods = st.sampled_from([0.1, 1.0, 2.0, 3.0, 7.0, 10.0, 60.0, 300.0, 86_400.0])


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    period = draw(periods)
    return Timing(
        period,
        draw(st.floats(0, 0.999)) * period,
    )


def is_multiple(seconds: float, period: float) -> bool:
    off = seconds % period
    return min(off, period - off) < 1e-3


@given(starts, timings(), st.floats(0, 1e6))
def test_next_tick_on_phase_is_the_first_after_the_given_time(
    start: StartTime, timing: Timing, later: float
) -> None:
    after = start.loop_seconds + later
    tick = start.next_on_phase(timing, after)

    wall = start.wall_seconds + (tick - start.loop_seconds)
    assert is_multiple(wall - timing.phase_seconds, timing.period_seconds)
    assert after < tick <= after + timing.period_seconds + 1e-6


@given(
    timings(),
    st.floats(1.6e9, 2.2e9),
    st.floats(0, 1e6),
    st.floats(0, 1e5),
)
def test_phase_is_the_same_after_a_restart(
    timing: Timing,
    wall: float,
    uptime: float,
    restarted_after: float,
) -> None:
    before = StartTime(wall, uptime)
    after = StartTime(wall + restarted_after, 3.0)
    tick = before.next_on_phase(timing, uptime + restarted_after)
    same = after.next_on_phase(timing, 3.0)

    difference = (tick - uptime + wall) - (same - 3.0 + wall + restarted_after)
    assert is_multiple(difference, timing.period_seconds)


@cases(
    "timing due",
    up_to_ten_seconds_on_phase=(Timing(10.0, 3.0), 13.0),
    a_longer_period_is_spread_over_ten_seconds=(Timing(20.0, 5.0), 9.5),
)
def test_due_after_restart_is_on_phase_or_within_ten_seconds(timing: Timing, due: float) -> None:
    assert due_after_restart(StartTime(0.0, 0.0), timing, 7.0) == due


@cases(
    "served missed",
    in_time=(10.0, 0),
    late_within_the_period=(11.9, 0),
    one_period_late=(12.0, 1),
    three=(17.0, 3),
)
def test_ticks_that_passed_meanwhile_are_missed(served: float, missed: int) -> None:
    assert missed == ticks_missed(10.0, served, 2.0)


STRETCHED = {
    "a-single-timeout": (1, 1, 1),
    "two-in-a-row": (2, 1, 2),
    "never-more-than-eight": (1000, 1, 8),
    "not-before-the-probe-has-failed": (4, 5, 1),
    "once-it-has-failed": (5, 5, 2),
}


@cases("timeouts threshold factor", **STRETCHED)
def test_b3_exec_that_hangs_stretches_the_period(
    timeouts: int, threshold: int, factor: int
) -> None:
    assert factor == stretch(timeouts, threshold)
