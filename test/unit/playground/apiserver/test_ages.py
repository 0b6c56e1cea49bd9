"""Ages as kubectl prints them."""

from datetime import UTC, datetime

import pytest

from kruise_probe.playground.apiserver.ages import age, human_duration

HOUR, DAY, YEAR = 3600, 86400, 86400 * 365


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 300, "3h5m"),
        (8 * HOUR + 300, "8h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY + HOUR, "8d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (9 * YEAR, "9y"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert human_duration(seconds) == expected


def test_an_age_is_the_time_since_a_stamp() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert age("2026-01-02T03:04:00Z", now) == "5s"
    assert age(None, now) == "<unknown>"
