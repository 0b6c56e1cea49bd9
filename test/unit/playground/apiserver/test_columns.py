"""Cells of tables: ages and JSONPaths."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kruise_probe_playground.apiserver.columns import age, cell_of, human_duration

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR, DAY, YEAR = 3600, 86400, 86400 * 365
OBJECT = {
    "metadata": {"creationTimestamp": "2026-01-02T03:04:00Z"},
    "status": {
        "count": 3,
        "ok": True,
        "list": [{"n": 1}, {"n": 2}],
        "conditions": [{"type": "A", "status": "False"}, {"type": "Synced", "status": "True"}],
    },
}


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        (".status.count", "integer", 3),
        (".status.count", "string", "3"),
        (".status.ok", "integer", 1),
        (".metadata.creationTimestamp", "date", "5s"),
        ('.status.conditions[?(@.type=="Synced")].status', "string", "True"),
        (".status.conditions[?(@.type=='None')].status", "string", None),
        (".status.nothing.at.all", "string", None),
        (".status.list", "string", '[{"n":1},{"n":2}]'),
    ],
)
def test_jsonpaths_select_cells(path: str, kind: str, expected: Any) -> None:
    assert cell_of(path, kind)(OBJECT, NOW) == expected


def test_other_jsonpaths_are_refused() -> None:
    with pytest.raises(ValueError, match="not supported"):
        cell_of(".x[?(@.a>1)]", "string")


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
def test_ages_have_two_units_at_most(seconds: float, expected: str) -> None:
    assert human_duration(seconds) == expected


def test_age_is_the_time_since_a_timestamp() -> None:
    assert age("2026-01-02T03:04:00Z", NOW) == "5s"
    assert age(None, NOW) == "<unknown>"
