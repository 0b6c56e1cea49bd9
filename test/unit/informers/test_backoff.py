import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.informers.reflector import LAST_INTERVAL_SECONDS, Backoff


def delays(lasted_seconds: float, tries: int) -> list[float]:
    backoff = Backoff()
    return [backoff.delay_after(lasted_seconds) for _ in range(tries)]


def test_c3_delays_grow_from_under_2_s_to_at_most_30_s() -> None:
    first, second, *_, last = delays(0, 10)
    assert 0.8 <= first <= 1.6
    assert 1.6 <= second <= 3.2
    assert 15 <= last <= LAST_INTERVAL_SECONDS


def test_delays_are_jittered() -> None:
    assert len({round(delays(0, 8)[-1], 3) for _ in range(20)}) > 10


@given(st.floats(min_value=0, max_value=0.79))
def test_a_server_that_ends_each_attempt_at_once_gets_at_most_five_in_10_s(
    lasted: float,
) -> None:
    at, starts = 0.0, [0.0]
    for delay in delays(lasted, 10):
        at += lasted + delay
        starts.append(at)
    assert sum(start <= 10 for start in starts) <= 5


def test_watches_that_are_closed_every_50_s_reopen_without_delay() -> None:
    assert delays(50, 20) == [0.0] * 20


@pytest.mark.parametrize(
    ("lasted", "healed"),
    [
        pytest.param(60, True, id="a-healthy-minute-heals"),
        pytest.param(59, False, id="less-does-not"),
    ],
)
def test_only_an_attempt_of_a_minute_resets_the_backoff(lasted: float, healed: bool) -> None:
    backoff = Backoff()
    for _ in range(10):
        backoff.delay_after(0)
    assert backoff.delay_after(lasted) == 0
    assert (backoff.delay_after(0) <= 1.6) is healed
