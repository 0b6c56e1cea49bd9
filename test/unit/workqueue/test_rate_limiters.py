import pytest

from kruise_probe.workqueue.rate_limiters import MAX_DELAY_SECONDS, RetryRateLimiter


async def test_a_key_that_always_fails_is_retried_every_30_s() -> None:
    limiter = RetryRateLimiter[str]()
    delays = [limiter.when("a") for _ in range(2000)]
    assert delays[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert max(delays[:500]) == MAX_DELAY_SECONDS == 30, "as a reflector's backoff"
    assert delays[-1] == 30, "and no overflow"


async def test_a_forgotten_key_starts_again_and_delays_no_other() -> None:
    limiter = RetryRateLimiter[str]()
    for _ in range(5):
        limiter.when("a")
    assert (limiter.num_requeues("a"), limiter.when("b")) == (5, 0.005)
    limiter.forget("a")
    assert (limiter.num_requeues("a"), limiter.when("a")) == (0, 0.005)


async def test_retries_of_thousands_of_keys_are_spread_over_time() -> None:
    limiter = RetryRateLimiter[int]()
    delays = [limiter.when(number) for number in range(5000)]
    assert max(delays[:500]) == 0.005
    assert max(delays) == pytest.approx(45), "100 per second"
