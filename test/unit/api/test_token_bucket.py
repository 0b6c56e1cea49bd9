"""The token bucket of requests, retries, events and writes."""

from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.token_bucket import TokenBucket

pauses = st.lists(st.floats(0, 30), min_size=1, max_size=60)


def test_burst_is_available_at_once_then_one_token_per_interval() -> None:
    bucket = TokenBucket(burst=3, interval_seconds=10)
    assert [bucket.take(0.0) for _ in range(5)] == [0, 0, 0, 10, 20]
    assert bucket.wait_seconds(15.0) == 15


@given(st.integers(1, 5), st.integers(0, 3), pauses)
def test_any_window_has_at_most_burst_plus_rate(
    burst: int, extra: int, pauses: list[float]
) -> None:
    """A caller that waits as returned, with any pauses of its own."""
    interval = 10.0
    bucket = TokenBucket(burst=burst, interval_seconds=interval)
    now = 0.0
    taken: list[float] = []
    for pause in pauses:
        now += pause
        now += bucket.wait_seconds(now, extra=extra)
        bucket.take(now)
        taken.append(now)
    for first, begin in enumerate(taken):
        for tokens, end in enumerate(taken[first:], start=1):
            allowed = burst + extra + (end - begin) / interval
            assert tokens <= allowed + 1e-6
