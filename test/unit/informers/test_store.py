from hypothesis import given
from hypothesis import strategies as st
from support.fake_source import stamp, thing

from kruise_probe.api.meta import ApiObject, EventType, WatchEvent
from kruise_probe.informers.replica import Replica


def color_of(obj: ApiObject) -> str:
    return obj.metadata.labels["color"]


changes = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | st.sampled_from("12")), max_size=40
)


@given(changes)
def test_indices_equal_a_scan_of_all_objects(steps: list[tuple[str, str | None]]) -> None:
    store: Replica[ApiObject] = Replica(name="things")
    store.add_index("color", color_of)
    for number, (name, color) in enumerate(steps):
        if color is None:
            store.apply(WatchEvent(EventType.DELETED, thing(name), ""))
        else:
            store.listed(stamp(thing(name, labels={"color": color}), str(number)))
    for color in "12":
        scanned = {found.key for found in store.list() if color_of(found) == color}
        assert {found.key for found in store.by_index("color", color)} == scanned
        assert (color in store._indices["color"]) == bool(scanned)
