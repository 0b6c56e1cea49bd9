from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.runtime.shared_cache import SharedCache

LIMIT = 100


class Item(NamedTuple):
    namespace: str
    key: int
    size: int


items = st.builds(
    Item,
    st.sampled_from("abc"),
    st.integers(0, 5),
    st.integers(1, 40),
)


@given(st.lists(items, max_size=30))
def test_a_namespace_within_its_share_loses_nothing(puts: list[Item]) -> None:
    cache: SharedCache[int, Item] = SharedCache(LIMIT)
    held: dict[tuple[str, int], Item] = {}
    for item in puts:
        held[item.namespace, item.key] = item
        used = Counter[str]()
        for other in held.values():
            used[other.namespace] += other.size
        all_lost = cache.put(
            item.namespace,
            item.key,
            item,
            item.size,
        )
        for lost in all_lost:
            of_namespace = used[lost.namespace]
            assert of_namespace == max(used.values())
            assert of_namespace > LIMIT // len(used)
            assert held.pop((lost.namespace, lost.key)) == lost
            used[lost.namespace] -= lost.size
        assert sum(used.values()) <= LIMIT
        for namespace, key in held:
            assert cache.get(namespace, key) == held[namespace, key]


def test_what_was_used_least_recently_is_lost_first() -> None:
    cache: SharedCache[str, str] = SharedCache(LIMIT)

    def put(key: str, size: int = 30) -> list[str]:
        return cache.put("default", key, key, size)

    for key in "abcab":
        assert put(key) == []
    assert put("d") == ["c"]
    assert cache.get("default", "c") is None
    assert put("e", LIMIT + 1) == ["a", "b", "d", "e"]
