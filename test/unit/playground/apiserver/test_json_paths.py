"""The JSONPath of printer columns."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kruise_probe.playground.apiserver.json_paths import cell_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OBJECT = {
    "metadata": {"creationTimestamp": "2026-01-02T03:04:00Z", "labels": {"x.io/a": "b"}},
    "status": {
        "count": 3,
        "ratio": 0.5,
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
        (".status.ratio", "number", 0.5),
        (".status.ok", "boolean", True),
        (".status.ok", "integer", 1),
        (".metadata.creationTimestamp", "date", "5s"),
        ('.status.conditions[?(@.type=="Synced")].status', "string", "True"),
        (".status.conditions[?(@.type=='None')].status", "string", None),
        (".status.list[1].n", "integer", 2),
        (".status.list[9].n", "integer", None),
        (".status.list[*].n", "integer", 1),
        (".metadata.labels['x.io/a']", "string", "b"),
        (r".metadata.labels.x\.io/a", "string", "b"),
        (".status.nothing.at.all", "string", None),
        (".status.list", "string", '[{"n":1},{"n":2}]'),
    ],
)
def test_cells(path: str, kind: str, expected: Any) -> None:
    assert cell_of(path, kind)(OBJECT, NOW) == expected


def test_a_path_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match=r"\[\?\(@\.a>1\)\]"):
        cell_of(".x[?(@.a>1)]", "string")
