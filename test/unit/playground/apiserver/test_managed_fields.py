"""managedFields after an update."""

from datetime import UTC, datetime, timedelta

import pytest

from kruise_probe_playground.apiserver.managed_fields import (
    ManagerIdentifier,
    track,
)
from kruise_probe_playground.apiserver.schema import UNTYPED, Json

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def writer(manager: str = "m", subresource: str = "") -> ManagerIdentifier:
    return ManagerIdentifier(manager, "Update", "v1", subresource)


def thing(**spec: object) -> Json:
    return {"metadata": {"name": "t", "uid": "u"}, "spec": dict(spec)}


def written(live: Json, new: Json, by: ManagerIdentifier, *, after_seconds: int = 0) -> Json:
    """`new` with the managed fields that it gets; a client sends none along."""
    track(live, new, UNTYPED, by, EPOCH + timedelta(seconds=after_seconds))
    return new


def fields(of: Json) -> dict[str, Json]:
    return {each["manager"]: each["fieldsV1"] for each in of["metadata"].get("managedFields", [])}


def test_removal_does_not_change_the_time() -> None:
    first = written({}, thing(a=1, b=2), writer())
    second = written(first, thing(a=1), writer(), after_seconds=60)
    (entry,) = second["metadata"]["managedFields"]
    assert entry["time"] == "2026-01-02T03:04:05Z"
    assert entry["fieldsV1"] == {"f:spec": {".": {}, "f:a": {}}}


def test_entries_are_ordered_by_time_then_name() -> None:
    live = written({}, thing(a=1), writer("z"))
    live = written(live, thing(a=1, b=1), writer("y"), after_seconds=5)
    live = written(live, thing(a=1, b=1, c=1), writer("x"), after_seconds=5)
    assert list(fields(live)) == ["z", "x", "y"]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([{"manager": "m", "fieldsV1": {"f:a": 5}}], id="no-set"),
        pytest.param([{"manager": "m"}], id="no-fields"),
    ],
)
def test_invalid_entries_of_a_client_are_ignored(broken: list[Json]) -> None:
    live = written({}, thing(a=1), writer())
    new = thing(a=2)
    new["metadata"]["managedFields"] = broken
    assert fields(written(live, new, writer())) == {"m": {"f:spec": {".": {}, "f:a": {}}}}
