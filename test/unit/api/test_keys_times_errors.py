"""Probe names, times, and errors of the API server."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.errors import Status, StatusDetails, error_of
from kruise_probe.api.names import ProbeName
from kruise_probe.api.times import format_micro_time, format_time, parse_time


@given(
    marker=st.from_regex(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", fullmatch=True),
    probe=st.text(min_size=1).filter(lambda text: "#" not in text),
)
def test_probe_name_round_trips(marker: str, probe: str) -> None:
    name = ProbeName(marker, probe)
    assert ProbeName.parse(str(name)) == name


@given(st.text())
def test_any_text_parses_as_a_probe_name(text: str) -> None:
    parsed = ProbeName.parse(text)

    assert str(parsed) == text or not parsed.marker


AT = datetime(2022, 9, 9, 7, 13, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2022-09-09T07:13:04Z", AT),
        ("2022-09-09T09:13:04+02:00", AT),
        ("2022-09-09T07:13:04.123456Z", AT.replace(microsecond=123456)),
        ("", None),
        (None, None),
        ("yesterday", None),
        ("2022-13-41T99:00:00Z", None),
        ("0000-00-00T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_malformed_times_parse_as_none(text: str | None, expected: datetime | None) -> None:
    assert parse_time(text) == expected


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_round_trip_at_their_resolution(at: datetime) -> None:
    assert parse_time(format_micro_time(at)) == at
    assert parse_time(format_time(at)) == at.replace(microsecond=0)


def test_early_years_have_four_digits() -> None:
    """Go reads no others."""
    at = datetime(1, 1, 1, tzinfo=UTC)
    assert format_time(at) == "0001-01-01T00:00:00Z"
    assert format_micro_time(at) == "0001-01-01T00:00:00.000000Z"


def test_retry_after_of_the_status_is_kept() -> None:
    details = StatusDetails(retry_after_seconds=3)

    assert error_of(429, Status(details=details)).retry_after_seconds == 3.0
    assert error_of(429, None, retry_after_seconds=1.5).retry_after_seconds == 1.5
