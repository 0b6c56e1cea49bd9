"""Our own writes are returned until their events arrive."""

import asyncio

import msgspec
import pytest
from support.builders import pod

from kruise_probe.api.pods import Pod
from kruise_probe.informers.mutation_cache import MutationCache
from kruise_probe.informers.store import Store


def at(version: str, ip: str = "", *, uid: str = "uid") -> Pod:
    return msgspec.structs.replace(pod(), resource_version=version, ip=ip, uid=uid)


def caches() -> tuple[Store[Pod], MutationCache[Pod]]:
    store: Store[Pod] = Store()
    return store, MutationCache(store)


async def test_the_newer_of_stored_and_written_is_returned() -> None:
    store, cache = caches()
    store.put(at("5"))
    cache.record_write(at("7", "written"))
    found = cache.get(pod().key)
    assert found is not None
    assert found.ip == "written"
    store.put(at("9", "newer"))
    found = cache.get(pod().key)
    assert found is not None
    assert found.ip == "newer"


async def test_indexes_contain_what_was_written() -> None:
    store, cache = caches()
    store.add_index("ip", lambda found: [found.ip])
    store.put(at("5", "old"))
    cache.record_write(at("7", "new"))
    assert [found.ip for found in cache.by_index("ip", "new")] == ["new"]
    assert not cache.by_index("ip", "old")


async def test_a_written_object_that_is_not_stored_yet_is_returned() -> None:
    _, cache = caches()
    cache.record_write(at("7"))
    assert cache.get(pod().key) == at("7")


async def test_a_written_object_is_returned_and_unseen_for_a_minute() -> None:
    store, cache = caches()
    store.put(at("5"))
    cache.record_write(at("7"))
    await asyncio.sleep(60)
    cache.record_write(msgspec.structs.replace(at("7"), name="another"))
    assert (cache.get(pod().key), cache.unseen()) == (at("7"), [at("7")])
    await asyncio.sleep(0.1)
    assert (cache.get(pod().key), cache.unseen()) == (at("5"), [])


async def test_the_event_of_our_own_write_is_recognised_once() -> None:
    _, cache = caches()
    cache.record_write(at("7"))
    assert [cache.observe(at(version)) for version in ("6", "7", "7")] == [False, True, False]


async def test_a_later_event_replaces_a_written_object() -> None:
    _, cache = caches()
    cache.record_write(at("7"))
    assert not cache.observe(at("8"))
    assert len(cache._written) == 0


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(at("7"), id="of-the-deleted-object"),
        pytest.param(at("9"), id="of-the-deleted-object-if-a-list-reported-it"),
        pytest.param(at("6", uid="former"), id="of-an-earlier-object-of-this-name"),
    ],
)
async def test_a_late_response_to_a_write_is_ignored(late: Pod) -> None:
    _, cache = caches()
    cache.observe_deletion(at("8"))
    cache.record_write(late)
    assert cache.get(pod().key) is None


async def test_a_new_object_of_the_same_name_is_returned() -> None:
    _, cache = caches()
    cache.observe_deletion(at("8"))
    cache.record_write(at("9", uid="new"))
    assert cache.get(pod().key) == at("9", uid="new")


async def test_an_earlier_write_is_dropped() -> None:
    _, cache = caches()
    cache.record_write(at("7"))
    cache.observe_deletion(at("8"))
    assert cache.get(pod().key) is None


async def test_a_late_response_to_a_write_is_ignored_for_a_minute() -> None:
    _, cache = caches()
    cache.observe_deletion(at("8"))
    await asyncio.sleep(60)
    cache.record_write(at("7"))
    assert cache.get(pod().key) is None
    await asyncio.sleep(0.1)
    cache.record_write(at("7"))
    assert cache.get(pod().key) == at("7")


async def test_of_too_many_tombstones_the_oldest_are_dropped() -> None:
    _, cache = caches()
    for number in range(5000):
        cache.observe_deletion(msgspec.structs.replace(at("7"), name=f"web-{number}"))
    assert [key.name for key in cache._tombstones] == [f"web-{each}" for each in range(904, 5000)]
