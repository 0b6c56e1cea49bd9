"""managedFields after an update."""

from datetime import UTC, datetime, timedelta

import pytest

from kruise_probe.playground.apiserver.managed_fields import (
    ANCIENT_CHANGES,
    MAX_UPDATE_MANAGERS,
    Writer,
    same_but_for_times,
    track,
)
from kruise_probe.playground.apiserver.schema import UNTYPED, Json

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def writer(manager: str = "m", subresource: str = "") -> Writer:
    return Writer(manager, "Update", "v1", subresource)


def thing(**spec: object) -> Json:
    return {"metadata": {"name": "t", "uid": "u"}, "spec": dict(spec)}


def written(live: Json, new: Json, by: Writer, *, after_seconds: int = 0) -> Json:
    """`new` with the managed fields that it gets; a client sends none along."""
    track(live, new, UNTYPED, by, EPOCH + timedelta(seconds=after_seconds))
    return new


def fields(of: Json) -> dict[str, Json]:
    return {each["manager"]: each["fieldsV1"] for each in of["metadata"].get("managedFields", [])}


def test_identity_belongs_to_nobody() -> None:
    assert fields(written({}, thing(a=1), writer())) == {"m": {"f:spec": {".": {}, "f:a": {}}}}


def test_the_own_entry_grows_and_keeps_what_others_did_not_touch() -> None:
    first = written({}, thing(a=1), writer("one"))
    second = written(first, thing(a=1, b=2), writer("two"))
    third = written(second, thing(a=1, b=2, c=3), writer("one"))
    assert fields(third) == {
        "one": {"f:spec": {".": {}, "f:a": {}, "f:c": {}}},
        "two": {"f:spec": {"f:b": {}}},
    }


def test_a_removal_alone_leaves_no_stamp() -> None:
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


def test_the_oldest_entries_are_merged_into_one() -> None:
    live = written({}, thing(), writer("m00"))
    spec: dict[str, object] = {}
    for number in range(1, MAX_UPDATE_MANAGERS + 4):
        spec[f"k{number:02}"] = 1
        live = written(live, thing(**spec), writer(f"m{number:02}"), after_seconds=number)
    after = fields(live)
    assert len(after) == MAX_UPDATE_MANAGERS
    assert {"f:k01", "f:k02", "f:k03"} <= after[ANCIENT_CHANGES]["f:spec"].keys()


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([{"manager": "m", "fieldsV1": {"f:a": 5}}], id="no-set"),
        pytest.param([{"manager": "m"}], id="no-fields"),
    ],
)
def test_unreadable_entries_of_a_client_are_ignored(broken: list[Json]) -> None:
    live = written({}, thing(a=1), writer())
    new = thing(a=2)
    new["metadata"]["managedFields"] = broken
    assert fields(written(live, new, writer())) == {"m": {"f:spec": {".": {}, "f:a": {}}}}


def test_entries_of_a_status_write_are_those_that_are_stored() -> None:
    live = written({}, thing(a=1), writer())
    new = thing(a=1, b=2)
    new["metadata"]["managedFields"] = [{}]
    assert fields(written(live, new, writer("s", "status"))).keys() == {"m", "s"}


def test_objects_are_the_same_whatever_their_stamps() -> None:
    one = written({}, thing(a=1), writer())
    other = written({}, thing(a=1), writer(), after_seconds=60)
    assert one != other
    assert same_but_for_times(one, other)
    assert not same_but_for_times(one, written({}, thing(a=2), writer()))
