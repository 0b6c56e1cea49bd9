"""How lists and events change the store and call the handlers, beyond the model in `test_informer_model.py`."""

from pathlib import Path
from typing import Any, Final

import pytest
from support.cases import cases
from support.fake_source import stamp, thing
from support.tables import load_table

from kruise_probe.api.meta import ApiObject, EventType, NamespacedName, Undecodable, WatchEvent
from kruise_probe.informers.replica import Replica


class Listed:
    """A replica whose handler records its calls, with `stale` if the store did not have the change yet."""

    def __init__(self) -> None:
        self.replica = Replica[ApiObject](name="things")
        self.replica.add_event_handler(self)
        self.calls: list[str] = []

    def on_add(self, obj: ApiObject, is_initial: bool) -> None:
        self._write("initial" if is_initial else "add", obj, stored=obj)

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        self._write(f"update from {old.resource_version}", new, stored=new)

    def on_delete(self, last_known: ApiObject) -> None:
        self._write("delete", last_known, stored=None)

    def _write(self, what: str, obj: ApiObject, *, stored: ApiObject | None) -> None:
        stale = "" if self.replica.get(obj.key) is stored else "stale "
        own = "own " if obj.key in self.replica.own_writes else ""
        self.calls.append(f"{stale}{own}{what}: {obj.key.name} {obj.resource_version}")

    def relist(self, *items: ApiObject | Undecodable) -> list[str]:
        """A complete list; returns the calls of the handler."""
        self.calls = []
        self.replica.begin_list()
        for item in items:
            if isinstance(item, Undecodable):
                self.replica.listed_undecodable(item)
            else:
                self.replica.listed(item)
        self.replica.finish_list()
        return self.calls

    def event(self, type: EventType, item: ApiObject | Undecodable) -> list[str]:
        self.calls = []
        event = WatchEvent[ApiObject](type, None, item.resource_version)
        if isinstance(item, Undecodable):
            event = event._replace(undecodable=item)
        else:
            event = event._replace(object=item)
        self.replica.apply(event)
        return self.calls


@pytest.fixture
def listed() -> Listed:
    return Listed()


def at(name: str, version: int) -> ApiObject:
    obj: ApiObject = stamp(thing(name), str(version))
    return obj


def broken(name: str, version: int) -> Undecodable:
    return Undecodable(NamespacedName("ns", name), str(version), "Expected `int`")


def test_c4_a_second_list_reports_only_differences_and_missed_deletes(listed: Listed) -> None:
    assert listed.relist(at("same", 1), at("changed", 2), at("gone", 3)) == [
        "initial: same 1",
        "initial: changed 2",
        "initial: gone 3",
    ]
    assert listed.relist(at("same", 1), at("changed", 7), at("new", 8)) == [
        "update from 2: changed 7",
        "add: new 8",
        "delete: gone 3",
    ]


def test_an_older_list_is_applied_as_etcd_may_have_been_restored(listed: Listed) -> None:
    listed.relist(at("a", 500))
    assert listed.relist(at("a", 7)) == ["update from 500: a 7"]


@cases(
    "type item",
    older_change=(EventType.MODIFIED, at("a", 4)),
    older_add=(EventType.ADDED, at("a", 4)),
    older_delete=(EventType.DELETED, at("a", 4)),
    deletion_of_an_unknown_object=(EventType.DELETED, at("b", 6)),
    undecodable=(EventType.MODIFIED, broken("a", 6)),
)
def test_an_event_that_tells_nothing_new_calls_no_handler(
    listed: Listed, type: EventType, item: ApiObject | Undecodable
) -> None:
    listed.relist(at("a", 5))
    assert listed.event(type, item) == []


def test_a_list_with_an_unnamed_undecodable_item_deletes_nothing(listed: Listed) -> None:
    listed.relist(at("a", 1), at("b", 1))
    unnamed = Undecodable(NamespacedName("", "?"), "", "no metadata")
    assert listed.relist(unnamed) == []


def test_d12_an_undecodable_version_is_kept_in_a_list_and_logged_once(
    listed: Listed, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.relist(at("a", 1))
    for version in (2, 2, 3):
        listed.replica.begin_list()
        assert listed.event(EventType.MODIFIED, broken("a", version)) == []
        listed.replica.finish_list()
        assert listed.relist(broken("a", version)) == []
    assert capsys.readouterr().out.count("object does not decode") == 2
    assert listed.event(EventType.DELETED, broken("a", 4)) == ["delete: a 1"]


FORMER: Final = stamp(thing("a", uid="former"), "3")
OWN_WRITES = load_table(Path(__file__).parents[2] / "data" / "informers.yaml", {})["own-writes"]


@pytest.mark.parametrize("steps", OWN_WRITES.values(), ids=OWN_WRITES)
def test_an_own_write_is_stored_before_its_event(listed: Listed, steps: list[list[Any]]) -> None:
    listed.relist(at("a", 5))
    seen_version = 5
    for what, name, version, *calls in steps:
        listed.calls = []
        obj = at(name, version)
        match what:
            case "written":
                listed.replica.record_write(obj, str(seen_version))
            case "former":
                listed.replica.record_write(FORMER, str(seen_version))
            case "listed":
                listed.relist(obj)
            case _:
                seen_version = max(seen_version, version)
                listed.event(EventType[what], obj)
        assert listed.calls == calls, (what, name, version)
    assert not listed.replica.own_writes or steps[-1][0] == "written"


@cases("version calls", older=(4, []), the_write_itself=(5, ["update from 5: a 5"]))
def test_a_list_that_began_before_an_own_write_does_not_undo_it(
    listed: Listed, version: int, calls: list[str]
) -> None:
    written = at("a", 5)
    listed.relist(at("a", 1))
    listed.replica.begin_list()
    listed.replica.record_write(written, "4")
    listed.calls = []
    listed.replica.listed(at("a", version))
    listed.replica.finish_list()
    assert listed.replica.get(written.key) == written
    assert listed.calls == calls
    assert listed.event(EventType.MODIFIED, written) == []
    assert not listed.replica.own_writes


@pytest.mark.parametrize("listed_too", [True, False])
def test_an_object_created_during_a_relist_is_there_until_the_list_decides(
    listed: Listed, listed_too: bool
) -> None:
    listed.relist()
    created = at("a", 5)
    listed.replica.begin_list()
    listed.replica.record_write(created, "")
    assert listed.replica.get(created.key) == created
    if listed_too:
        listed.replica.listed(created)
    listed.replica.finish_list()
    assert (listed.replica.get(created.key) == created) == listed_too


def test_a_handler_that_raises_does_not_stop_other_handlers() -> None:
    class Bad(Listed):
        def _write(self, what: str, obj: ApiObject, *, stored: ApiObject | None) -> None:
            raise KeyError(what)

    bad = Bad()
    good = Listed()
    bad.replica.add_event_handler(good)
    good.replica = bad.replica
    bad.event(EventType.ADDED, at("a", 1))
    bad.event(EventType.MODIFIED, at("a", 2))
    bad.event(EventType.DELETED, at("a", 3))
    assert good.calls == ["initial: a 1", "update from 1: a 2", "delete: a 2"]
