import pytest

from kruise_probe.workqueue.rate_limiters import (
    MAX_DELAY_SECONDS,
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    default_controller_rate_limiter,
)


def exponential() -> ItemExponentialFailureRateLimiter[str]:
    return ItemExponentialFailureRateLimiter(base_seconds=1, max_seconds=10)


def test_delays_double_up_to_the_bound() -> None:
    limiter = exponential()
    assert [limiter.when("a") for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_failures_of_one_key_do_not_delay_another() -> None:
    limiter = exponential()
    for _ in range(5):
        limiter.when("a")
    assert limiter.when("b") == 1


def test_a_forgotten_key_starts_again() -> None:
    limiter = exponential()
    limiter.when("a")
    limiter.when("a")
    assert limiter.num_requeues("a") == 2
    limiter.forget("a")
    assert (limiter.num_requeues("a"), limiter.when("a")) == (0, 1)


def test_the_delay_does_not_overflow_after_many_failures() -> None:
    limiter = exponential()
    limiter._failures["a"] = 1_000_000
    assert limiter.when("a") == 10


async def test_a_bucket_allows_its_burst_and_then_its_rate() -> None:
    limiter = BucketRateLimiter(per_second=10, burst=3)
    assert [round(limiter.when("any"), 6) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]


async def test_the_longest_delay_of_several_limiters_counts() -> None:
    bucket = BucketRateLimiter(per_second=0.5, burst=1)
    limiter = MaxOfRateLimiter[str](exponential(), bucket)
    assert [round(limiter.when("a"), 6) for _ in range(3)] == [1, 2, 4]
    assert round(limiter.when("b"), 6) == 6
    assert limiter.num_requeues("a") == 3
    limiter.forget("a")
    assert limiter.num_requeues("a") == 0


async def test_a_key_that_always_fails_is_retried_every_30_s() -> None:
    limiter = default_controller_rate_limiter()
    delays = [limiter.when("a") for _ in range(20)]
    assert delays[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert delays[-1] == MAX_DELAY_SECONDS == 30, "as its name says, and as a reflector's backoff"
    assert [limiter.when("a") for _ in range(2000)][-1] == 30


async def test_retries_of_thousands_of_keys_are_spread_over_time() -> None:
    limiter = default_controller_rate_limiter()
    delays = [limiter.when(number) for number in range(5000)]
    assert max(delays[:500]) == 0.005
    assert max(delays) == pytest.approx(45), "100 per second"
