from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.runtime.shared_cache import SharedCache

LIMIT = 100

puts = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 40)), max_size=30
)
"""Namespace, key and bytes."""


@given(puts)
def test_a_namespace_within_its_share_loses_nothing(of: list[tuple[str, int, int]]) -> None:
    cache: SharedCache[int, tuple[str, int, int]] = SharedCache(LIMIT)
    held: dict[tuple[str, int], int] = {}
    for namespace, key, size in of:
        held[namespace, key] = size
        used = Counter[str]()
        for (name, _), bytes_ in held.items():
            used[name] += bytes_
        for name, lost_key, lost in cache.put(namespace, key, (namespace, key, size), size):
            assert used[name] == max(used.values())
            assert used[name] > LIMIT // len(used)
            assert held.pop((name, lost_key)) == lost
            used[name] -= lost
        assert sum(held.values()) <= LIMIT
        for (name, held_key), bytes_ in held.items():
            assert cache.get(name, held_key) == (name, held_key, bytes_)


def test_what_was_used_least_recently_is_lost_first() -> None:
    cache: SharedCache[str, str] = SharedCache(LIMIT)
    for key in "abcab":
        assert cache.put("default", key, key, 30) == []
    assert cache.put("default", "d", "d", 30) == ["c"]
    assert cache.get("default", "c") is None
    assert cache.put("default", "e", "e", LIMIT + 1) == ["a", "b", "d", "e"]
