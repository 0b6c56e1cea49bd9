from hypothesis import given
from hypothesis import strategies as st
from support.fake_source import stamp, thing

from kruise_probe.api.meta import ApiObject, EventType, WatchEvent
from kruise_probe.informers.replica import Replica


def color_of(obj: ApiObject) -> str:
    return obj.metadata.labels["color"]


names = st.sampled_from("abcd")
colors_or_deletions = st.none() | st.sampled_from("12")


@given(st.lists(st.tuples(names, colors_or_deletions), max_size=40))
def test_indices_equal_a_scan_of_all_objects(steps: list[tuple[str, str | None]]) -> None:
    store: Replica[ApiObject] = Replica(name="things")
    store.add_index("color", color_of)
    for number, (name, color) in enumerate(steps):
        if color is None:
            store.apply(WatchEvent(EventType.DELETED, thing(name), ""))
        else:
            obj = thing(name, labels={"color": color})
            store.listed(stamp(obj, str(number)))
    for color in "12":
        scanned = {obj.key for obj in store.list() if color_of(obj) == color}
        indexed = {obj.key for obj in store.by_index("color", color)}
        assert indexed == scanned
        assert (color in store._indices["color"]) == bool(scanned)
