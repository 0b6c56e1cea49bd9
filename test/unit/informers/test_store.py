from hypothesis import given
from hypothesis import strategies as st
from support.fake_source import stamp, thing

from kruise_probe.api.meta import ApiObject, EventType, WatchEvent
from kruise_probe.informers.replica import Replica


def by_label(obj: ApiObject) -> list[tuple[str, str]]:
    return list((obj.metadata.labels or {}).items())


def names(found: object) -> set[str]:
    return {each.key.name for each in found}  # type: ignore[attr-defined]


def test_an_object_whose_index_function_fails_is_missing_in_that_index_only() -> None:
    store: Replica[ApiObject] = Replica(name="things")
    store.add_index("bad", lambda obj: [1 / len(obj.metadata.labels or {})])
    store.add_index("good", lambda _: ["all"])
    store.listed(thing("no-labels"))
    store.listed(thing("labels", labels={"a": "b"}))
    assert names(store.by_index("good", "all")) == {"no-labels", "labels"}
    assert names(store.by_index("bad", 1.0)) == {"labels"}
    store.apply(WatchEvent(EventType.DELETED, thing("no-labels"), ""))
    assert len(store.list()) == 1


labels = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"))
changes = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | labels), max_size=40)


@given(changes)
def test_indices_equal_a_scan_of_all_objects(
    steps: list[tuple[str, dict[str, str] | None]],
) -> None:
    store: Replica[ApiObject] = Replica(name="things")
    store.add_index("label", by_label)
    for number, (name, of_name) in enumerate(steps):
        if of_name is None:
            store.apply(WatchEvent(EventType.DELETED, thing(name), ""))
        else:
            store.listed(stamp(thing(name, labels=of_name), str(number)))
    for pair in {(key, value) for key in "xyz" for value in "12"}:
        scanned = {each.key for each in store.list() if pair in by_label(each)}
        assert {each.key for each in store.by_index("label", pair)} == scanned
        assert (pair in store._indices["label"]) == bool(scanned)
