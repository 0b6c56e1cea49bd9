"""Retry rules and Retry-After."""

from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from kruise_probe.client.retries import parse_retry_after, wait_before_retry


@cases(
    "header seconds",
    seconds=("3", 3.0),
    at_once=("0", 0.0),
    negative=("-5", None),
    date=("Sat, 21 Nov 2026 10:00:07 GMT", None),
    many_digits=("9" * 5000, 999999999.0),
    other_digits=("\u0663", 3.0),
    no_number=("\u00b2", None),
    empty=("", None),
    absent=(None, None),
)
def test_retry_after_is_a_number_of_seconds(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header) == seconds


@cases(
    "status retry_after retries left wait",
    too_many_requests=(429, 2.0, 0, 30.0, 2.0),
    unavailable=(503, 2.0, 0, 30.0, 2.0),
    without_retry_after=(429, None, 0, 30.0, None),
    may_have_taken_effect=(500, 2.0, 0, 30.0, None),
    conflict=(409, 2.0, 0, 30.0, None),
    tenth_retry=(429, 2.0, 9, 30.0, 2.0),
    often_enough=(429, 2.0, 10, 30.0, None),
    in_time=(429, 20.0, 0, 20.1, 20.0),
    longer_than_there_is_time=(429, 20.0, 0, 20.0, None),
    never_without_a_pause=(429, 0.0, 0, 30.0, 0.05),
    pauses_double=(429, 0.0, 9, 30.0, 25.6),
    whole_seconds_do_not_double=(429, 1.0, 9, 30.0, 1.0),
)
def test_retry_requires_429_or_503_with_retry_after(
    status: int,
    retry_after: float | None,
    retries: int,
    left: float,
    wait: float | None,
) -> None:
    found = wait_before_retry(
        status,
        retry_after,
        retries=retries,
        left_seconds=left,
        chance=0.0,
    )
    assert found == wait


@given(
    retry_after=st.floats(min_value=0, max_value=20),
    chance=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_jitter_never_shortens_retry_after(retry_after: float, chance: float) -> None:
    wait = wait_before_retry(
        429,
        retry_after,
        retries=0,
        left_seconds=30,
        chance=chance,
    )

    assert wait is not None
    assert retry_after <= wait <= max(retry_after, 0.05) * 1.2
