"""When the results of a daemon are stale."""

from datetime import UTC, datetime, timedelta

import pytest
from support.builders import lease, npp, pod_status_wire, pod_wire, state_wire

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.api.times import parse_time
from kruise_probe.controllers.staleness import (
    LeaseRenewal,
    LeaseRenewals,
    newest_result_at,
    observed_renewal,
    stale_message,
)

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RENEWAL = LeaseRenewal("2026-01-01T11:59:00Z", NOON - MINUTE, NOON - MINUTE, MINUTE)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def renewal_of(clock_error: float) -> LeaseRenewal:
    """Renewed a minute before noon by a node whose clock is `clock_error` seconds ahead, and observed by us."""
    renewed_at = NOON - MINUTE + timedelta(seconds=clock_error)
    return LeaseRenewal(renewed_at.isoformat(), renewed_at, NOON - MINUTE, MINUTE)


@pytest.mark.parametrize(
    ("renewal", "newest", "now", "stale"),
    [
        pytest.param(RENEWAL, None, after(-1), False, id="in-time"),
        pytest.param(RENEWAL, None, after(0), True, id="expired"),
        pytest.param(RENEWAL, after(-30), after(9), True, id="expired-with-older-results"),
        pytest.param(RENEWAL, after(5), after(9), False, id="a-result-since-then"),
        pytest.param(None, after(-9000), after(9000), False, id="never-had-a-lease"),
        pytest.param(renewal_of(90), after(85), after(9), True, id="clock-of-the-node-ahead"),
        pytest.param(
            renewal_of(90), after(95), after(9), False, id="ahead-and-a-result-since-then"
        ),
        pytest.param(renewal_of(-90), after(-95), after(9), True, id="clock-of-the-node-behind"),
        pytest.param(
            renewal_of(-90), after(-85), after(9), False, id="behind-and-a-result-since-then"
        ),
    ],
)
def test_stale_means_an_expired_lease_and_no_newer_result(
    renewal: LeaseRenewal | None, newest: datetime | None, now: datetime, stale: bool
) -> None:
    assert bool(stale_message("node-1", renewal, newest, now)) is stale


def test_the_stale_message_is_stable() -> None:
    assert stale_message("n", RENEWAL, None, after(1)) == stale_message(
        "n", RENEWAL, None, after(9000)
    )


@pytest.mark.parametrize(
    ("clock_error", "expires_at"),
    [
        pytest.param(0, after(60), id="clocks-agree"),
        pytest.param(-20, after(40), id="clock-of-the-node-behind"),
        pytest.param(3600, after(60), id="clock-of-the-node-ahead"),
    ],
)
def test_a_lease_seen_first_counts_from_its_stamp_but_never_from_the_future(
    clock_error: float, expires_at: datetime
) -> None:
    seen = observed_renewal(lease(renewed=after(clock_error).isoformat()), None, NOON)
    assert seen is not None
    assert seen.expires_at == expires_at


@pytest.mark.parametrize("clock_error", [-7200, 0, 7200])
def test_an_observed_renewal_counts_from_our_own_clock(clock_error: float) -> None:
    renewal = lease(renewed=after(clock_error).isoformat())
    renewed = observed_renewal(renewal, renewal_of(clock_error), NOON)
    assert renewed is not None
    assert renewed.expires_at == after(60)


@pytest.mark.parametrize(
    ("clock_error", "expires_at"),
    [
        pytest.param(-3600, after(-3540), id="into-the-past"),
        pytest.param(20, after(60), id="from-a-clock-that-was-ahead"),
    ],
)
def test_an_earlier_renew_time_is_no_renewal(clock_error: float, expires_at: datetime) -> None:
    edited = observed_renewal(lease(renewed=after(clock_error).isoformat()), renewal_of(7200), NOON)
    assert edited is not None
    assert edited.expires_at == expires_at


def test_a_lease_that_was_touched_but_not_renewed_expires_as_before() -> None:
    assert observed_renewal(lease(renewed=RENEWAL.renewed), RENEWAL, after(50)) == RENEWAL


def test_another_duration_counts_from_the_observed_renewal() -> None:
    renewal = renewal_of(7200)
    shorter = observed_renewal(lease(renewed=renewal.renewed, seconds=10), renewal, NOON)
    assert shorter is not None
    assert shorter.expires_at == NOON - MINUTE + timedelta(seconds=10)


def test_out_of_range_times_are_compared() -> None:
    for stamp in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        renewal = observed_renewal(lease(renewed=stamp), None, NOON)
        for newest in (parse_time("0001-01-01T00:00:00Z"), parse_time("9999-12-31T23:59:59Z")):
            assert isinstance(stale_message("node-1", renewal, newest, after(9000)), str)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lease(renewed=""), id="no-stamp"),
        pytest.param(lease(renewed="soon"), id="no-time"),
        pytest.param(Lease(ObjectMeta(name="x")), id="no-spec"),
    ],
)
def test_a_lease_without_a_valid_renew_time_is_ignored(bad: Lease) -> None:
    assert observed_renewal(bad, None, NOON) is None


def test_a_lease_without_duration_lasts_a_minute() -> None:
    bare = Lease(ObjectMeta(name="x"), spec=LeaseSpec(renew_time="2026-01-01T12:00:00Z"))
    seen = observed_renewal(bare, None, NOON)
    assert seen is not None
    assert seen.expires_at == after(60)


def test_a_deleted_lease_is_forgotten() -> None:
    renewals = LeaseRenewals()
    renewals.observe("node-1", lease(), NOON)
    renewals.forget("node-1")
    assert renewals.get("node-1") is None


def test_the_newest_result_is_found_among_malformed_times() -> None:
    stamps = ["2026-01-01T11:00:00Z", "", "yesterday", "2026-01-01T11:30:00Z"]
    statuses = [
        pod_status_wire(pod_wire(f"web-{n}"), state_wire(probed=each))
        for n, each in enumerate(stamps)
    ]
    assert newest_result_at(npp(statuses=statuses).status) == after(-1800)
    assert newest_result_at(npp().status) is None
