"""Our own writes are read before their events arrive, and no longer than that."""

import asyncio

import msgspec
import pytest
from support.builders import pod

from kruise_probe.api.pods import Pod
from kruise_probe.controllers.mutation_cache import LONGEST_LAG_SECONDS, MutationCache
from kruise_probe.informers.store import Store


def at(version: str, ip: str = "", *, uid: str = "uid") -> Pod:
    return msgspec.structs.replace(pod(), resource_version=version, ip=ip, uid=uid)


def caches() -> tuple[Store[Pod], MutationCache[Pod]]:
    store: Store[Pod] = Store({})
    return store, MutationCache(store)


async def test_the_newer_of_both_is_read() -> None:
    store, cache = caches()
    store.put(at("5"))
    cache.wrote(at("7", "written"))
    found = cache.get(pod().key)
    assert found is not None
    assert found.ip == "written"
    store.put(at("9", "newer"))
    found = cache.get(pod().key)
    assert found is not None
    assert found.ip == "newer"
    assert len(cache) == 0


async def test_versions_compare_as_numbers() -> None:
    store, cache = caches()
    store.put(at("9"))
    cache.wrote(at("10", "written"))
    found = cache.get(pod().key)
    assert found is not None
    assert found.ip == "written"


async def test_what_the_store_does_not_have_yet_is_read() -> None:
    _, cache = caches()
    cache.wrote(at("7"))
    assert cache.get(pod().key) == at("7")


async def test_a_write_whose_event_never_comes_is_forgotten() -> None:
    _, cache = caches()
    cache.wrote(at("7"))
    await asyncio.sleep(LONGEST_LAG_SECONDS + 1)
    assert cache.get(pod().key) is None


async def test_what_the_store_does_not_show_yet_is_unseen() -> None:
    store, cache = caches()
    cache.wrote(at("7"))
    assert cache.unseen() == [], "the store holds no such object any more"
    store.put(at("5"))
    assert cache.unseen() == [at("7")]
    store.put(at("7"))
    assert cache.unseen() == []
    store.put(at("5"))
    await asyncio.sleep(LONGEST_LAG_SECONDS + 1)
    assert cache.unseen() == []


async def test_an_echo_is_known_once() -> None:
    _, cache = caches()
    cache.wrote(at("7"))
    assert not cache.is_echo(at("6"))
    assert cache.is_echo(at("7"))
    assert not cache.is_echo(at("7"))


async def test_a_later_event_ends_the_wait_and_is_no_echo() -> None:
    _, cache = caches()
    cache.wrote(at("7"))
    assert not cache.is_echo(at("8"))
    assert len(cache) == 0


class TestAfterADeletion:
    @pytest.mark.parametrize(
        "late",
        [
            pytest.param(at("7"), id="of-what-was-deleted"),
            pytest.param(at("9"), id="of-what-was-deleted-as-a-list-told"),
            pytest.param(at("6", uid="former"), id="of-an-earlier-namesake"),
        ],
    )
    async def test_the_late_answer_to_a_write_is_not_believed(self, late: Pod) -> None:
        _, cache = caches()
        cache.deleted(at("8"))
        cache.wrote(late)
        assert cache.get(pod().key) is None

    async def test_what_was_made_anew_is_read(self) -> None:
        _, cache = caches()
        cache.deleted(at("8"))
        cache.wrote(at("9", uid="new"))
        assert cache.get(pod().key) == at("9", uid="new")

    async def test_what_was_written_before_is_forgotten(self) -> None:
        _, cache = caches()
        cache.wrote(at("7"))
        cache.deleted(at("8"))
        assert cache.get(pod().key) is None
