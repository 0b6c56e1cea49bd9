from typing import NamedTuple

import pytest
from prometheus_client import REGISTRY
from support.fake_source import stamp, thing

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import EventType, Undecodable, WatchEvent
from kruise_probe.api.meta import ApiObject
from kruise_probe.informers.replica import Replica
from kruise_probe.informers.store import Store


class Call(NamedTuple):
    what: str
    name: str
    version: str


class Recorder:
    """A handler that records its calls, with `stale` if the store did not have the change yet."""

    def __init__(self, store: Store[ApiObject]) -> None:
        self.calls: list[Call] = []
        self._store = store

    def on_add(self, obj: ApiObject, is_initial: bool) -> None:
        self._write("initial" if is_initial else "add", obj, stored=obj)

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        self._write(f"update-from-{old.resource_version}", new, stored=new)

    def on_delete(self, last_known: ApiObject) -> None:
        self._write("delete", last_known, stored=None)

    def _write(self, what: str, obj: ApiObject, *, stored: ApiObject | None) -> None:
        if self._store.get(obj.key) is not stored:
            what = f"stale {what}"
        self.calls.append(Call(what, obj.key.name, obj.resource_version))


class Setup:
    def __init__(self) -> None:
        self.replica = Replica[ApiObject](name="things")
        self.store = self.replica.store
        self.recorder = Recorder(self.store)
        self.replica.add_event_handler(self.recorder)

    def relist(self, *objects: ApiObject, broken: tuple[Undecodable, ...] = ()) -> None:
        self.replica.begin_list()
        for obj in objects:
            self.replica.listed(obj)
        for item in broken:
            self.replica.listed_undecodable(item)
        self.replica.finish_list()

    def event(self, event_type: EventType, obj: ApiObject) -> None:
        self.replica.apply(WatchEvent(event_type, obj, obj.resource_version))

    def broken_event(self, event_type: EventType, item: Undecodable) -> None:
        self.replica.apply(WatchEvent(event_type, None, item.resource_version, undecodable=item))

    def take(self) -> list[Call]:
        calls, self.recorder.calls = self.recorder.calls, []
        return calls

    @property
    def versions(self) -> dict[str, str]:
        return {each.key.name: each.resource_version for each in self.store.list()}


@pytest.fixture
def setup() -> Setup:
    return Setup()


def at(name: str, version: int, uid: str = "") -> ApiObject:
    obj: ApiObject = stamp(thing(name, uid=uid), str(version))
    return obj


def broken(name: str, version: int) -> Undecodable:
    return Undecodable(NamespacedName("ns", name), str(version), "Expected `int`")


def undecodable() -> float:
    """The number of undecodable versions so far."""
    labels = {"informer": "things"}
    return REGISTRY.get_sample_value("kruise_probe_informer_undecodable_total", labels) or 0.0


def test_c4_a_second_list_reports_only_differences_and_missed_deletes(setup: Setup) -> None:
    setup.relist(at("same", 1), at("changed", 2), at("gone", 3))
    setup.take()
    setup.relist(at("same", 1), at("changed", 7), at("new", 8))
    assert setup.take() == [
        Call("update-from-2", "changed", "7"),
        Call("add", "new", "8"),
        Call("delete", "gone", "3"),
    ]


def test_changes_between_the_pages_of_a_list_are_kept(setup: Setup) -> None:
    setup.relist(at("a", 1), at("b", 1))
    setup.replica.begin_list()
    setup.event(EventType.MODIFIED, at("a", 5))
    setup.event(EventType.DELETED, at("b", 6))
    setup.event(EventType.ADDED, at("c", 7))
    setup.replica.finish_list()
    assert setup.versions == {"a": "5", "c": "7"}


@pytest.mark.parametrize(
    ("event_type", "version", "after"),
    [
        pytest.param(EventType.MODIFIED, 6, {"a": "6"}, id="newer-change"),
        pytest.param(EventType.MODIFIED, 4, {"a": "5"}, id="older-change"),
        pytest.param(EventType.ADDED, 4, {"a": "5"}, id="older-add"),
        pytest.param(EventType.DELETED, 6, {}, id="newer-delete"),
        pytest.param(EventType.DELETED, 4, {"a": "5"}, id="older-delete"),
    ],
)
def test_an_event_older_than_the_stored_object_is_ignored(
    setup: Setup, event_type: EventType, version: int, after: dict[str, str]
) -> None:
    setup.relist(at("a", 5))
    setup.event(event_type, at("a", version))
    assert setup.versions == after


def test_an_older_list_is_applied_as_etcd_may_have_been_restored(
    setup: Setup,
) -> None:
    setup.relist(at("a", 500))
    setup.relist(at("a", 7))
    assert setup.versions == {"a": "7"}


def test_d12_an_object_that_does_not_decode_keeps_its_last_good_version(setup: Setup) -> None:
    setup.relist(at("a", 1))
    setup.broken_event(EventType.MODIFIED, broken("a", 2))
    setup.relist(broken=(broken("a", 2),))
    assert setup.versions == {"a": "1"}


@pytest.mark.parametrize(
    "end", ["event", "broken-event", "list"], ids=lambda end: f"deleted-by-{end}"
)
def test_the_deletion_of_an_undecodable_object_is_reported(setup: Setup, end: str) -> None:
    setup.relist(at("a", 1))
    setup.broken_event(EventType.MODIFIED, broken("a", 2))
    if end == "event":
        setup.event(EventType.DELETED, at("a", 3))
    elif end == "broken-event":
        setup.broken_event(EventType.DELETED, broken("a", 3))
    else:
        setup.relist()
    assert setup.versions == {}
    assert setup.replica._undecodable == {}


def test_a_list_with_an_unnamed_undecodable_item_deletes_nothing(setup: Setup) -> None:
    setup.relist(at("a", 1), at("b", 1))
    setup.relist(at("a", 1), broken=(Undecodable(NamespacedName("", "?"), "", "no metadata"),))
    assert setup.versions == {"a": "1", "b": "1"}


def test_an_object_that_stops_decoding_during_a_list_is_kept_and_counted(setup: Setup) -> None:
    setup.relist(at("a", 1))
    before = undecodable()
    setup.replica.begin_list()
    setup.broken_event(EventType.MODIFIED, broken("a", 2))
    setup.replica.finish_list()
    assert setup.versions == {"a": "1"}
    assert undecodable() == before + 1


def test_an_undecodable_version_is_logged_once(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in (2, 2, 3):
        setup.broken_event(EventType.MODIFIED, broken("a", version))
        setup.relist(broken=(broken("a", version),))
    assert capsys.readouterr().out.count("object does not decode") == 2


def test_the_deletion_of_an_unknown_object_calls_no_handler(setup: Setup) -> None:
    setup.event(EventType.DELETED, at("a", 1))
    assert setup.take() == []


def test_a_handler_that_raises_does_not_stop_other_handlers(setup: Setup) -> None:
    class Bad:
        def on_add(self, obj: ApiObject, is_initial: bool) -> None:
            raise KeyError("add")

        def on_update(self, old: ApiObject, new: ApiObject) -> None:
            raise KeyError("update")

        def on_delete(self, last_known: ApiObject) -> None:
            raise KeyError("delete")

    replica, recorder = setup.replica, Recorder(setup.store)
    replica.add_event_handler(Bad())
    replica.add_event_handler(recorder)
    replica.apply(WatchEvent(EventType.ADDED, at("a", 1), "1"))
    replica.apply(WatchEvent(EventType.MODIFIED, at("a", 2), "2"))
    replica.apply(WatchEvent(EventType.DELETED, at("a", 3), "3"))
    assert [each.what for each in recorder.calls] == ["initial", "update-from-1", "delete"]
