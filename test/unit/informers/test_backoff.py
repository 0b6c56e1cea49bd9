import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.informers.backoff import HEALTHY_SECONDS, LAST_INTERVAL_SECONDS, Backoff


def delays(lasted_seconds: float, tries: int) -> list[float]:
    backoff = Backoff()
    return [backoff.delay_after(lasted_seconds) for _ in range(tries)]


def test_c3_delays_start_at_less_than_two_seconds_and_end_within_half_a_minute() -> None:
    first, second, *_, last = delays(0, 10)
    assert 0.8 <= first <= 1.6
    assert 1.6 <= second <= 3.2
    assert 15 <= last <= LAST_INTERVAL_SECONDS


def test_many_clients_do_not_return_in_step() -> None:
    assert len({round(delays(0, 8)[-1], 3) for _ in range(20)}) > 10


@given(st.floats(min_value=0, max_value=1000))
def test_tries_are_never_closer_than_the_first_interval_allows(lasted: float) -> None:
    assert all(lasted + delay >= 0.8 for delay in delays(lasted, 20))


@given(st.floats(min_value=0, max_value=0.79))
def test_a_server_that_ends_each_try_at_once_gets_at_most_five_in_ten_seconds(
    lasted: float,
) -> None:
    at, starts = 0.0, [0.0]
    for delay in delays(lasted, 10):
        at += lasted + delay
        starts.append(at)
    assert sum(start <= 10 for start in starts) <= 5


def test_watches_that_are_cut_every_fifty_seconds_cost_no_gap() -> None:
    assert delays(50, 20) == [0.0] * 20


@pytest.mark.parametrize(
    ("lasted", "healed"),
    [
        pytest.param(HEALTHY_SECONDS, True, id="a-healthy-minute-heals"),
        pytest.param(HEALTHY_SECONDS - 1, False, id="less-does-not"),
    ],
)
def test_backing_off_ends_after_a_healthy_minute_only(lasted: float, healed: bool) -> None:
    backoff = Backoff()
    for _ in range(10):
        backoff.delay_after(0)
    assert backoff.delay_after(lasted) == 0
    assert (backoff.delay_after(0) <= 1.6) is healed
