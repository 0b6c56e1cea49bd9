"""Our own writes are returned until their events arrive."""

import asyncio

import msgspec
from support.builders import pod
from support.cases import cases

from kruise_probe.api.meta import EventType, WatchEvent
from kruise_probe.api.pods import Pod
from kruise_probe.informers.mutation_cache import MAX_TOMBSTONES, MutationCache
from kruise_probe.informers.replica import Replica

KEY = pod().key


def at(version: int, ip: str = "", *, uid: str = "uid", name: str = KEY.name) -> Pod:
    fields = {"resource_version": str(version), "ip": ip, "uid": uid, "name": name}
    return msgspec.structs.replace(pod(), **fields)


class Cached:
    """A mutation cache over a store, driven by steps such as `("stored", at(5))`."""

    def __init__(self) -> None:
        self.store: Replica[Pod] = Replica(name="pods")
        self.store.add_index("ip", lambda found: [found.ip])
        self.cache = MutationCache(self.store)

    async def play(self, *steps: tuple[str, Pod | float]) -> None:
        for what, argument in steps:
            match what, argument:
                case "wait", int() | float():
                    await asyncio.sleep(argument)
                case "stored", Pod():
                    self.store.listed(argument)
                case "written", Pod():
                    self.cache.record_write(argument)
                case "event", Pod():
                    self.cache.observe(argument)
                case _:
                    assert isinstance(argument, Pod)
                    self.store.apply(WatchEvent(EventType.DELETED, argument, ""))
                    self.cache.observe_deletion(argument)


@cases(
    "steps found",
    written_is_newer=([("stored", at(5)), ("written", at(7))], at(7)),
    stored_is_newer=([("written", at(7)), ("stored", at(9))], at(9)),
    not_stored_yet=([("written", at(7))], at(7)),
    for_a_minute=([("stored", at(5)), ("written", at(7)), ("wait", 60)], at(7)),
    after_a_minute=([("stored", at(5)), ("written", at(7)), ("wait", 60.1)], at(5)),
    dropped_by_a_later_event=([("written", at(7)), ("event", at(8))], None),
    kept_at_an_earlier_event=([("written", at(7)), ("event", at(6))], at(7)),
    dropped_by_a_deletion=([("written", at(7)), ("deleted", at(8))], None),
    late_response=([("deleted", at(8)), ("written", at(7))], None),
    late_response_if_a_list_reported_the_end=([("deleted", at(8)), ("written", at(9))], None),
    late_response_of_an_earlier_object=([("deleted", at(8)), ("written", at(6, uid="former"))], None),
    new_object_of_the_name=([("deleted", at(8)), ("written", at(9, uid="new"))], at(9, uid="new")),
    late_for_a_minute=([("deleted", at(8)), ("wait", 60), ("written", at(7))], None),
    tombstone_expired=([("deleted", at(8)), ("wait", 60.1), ("written", at(7))], at(7)),
)  # fmt: skip
async def test_the_newer_of_stored_and_written_is_returned(
    steps: list[tuple[str, Pod | float]], found: Pod | None
) -> None:
    cached = Cached()
    await cached.play(*steps)
    assert cached.cache.get(KEY) == found
    assert list(cached.cache.by_index("ip", "")) == [found] * (found is not None)
    stale = found is not None and (stored := cached.store.get(KEY)) is not None and stored != found
    assert cached.cache.unseen() == [found] * stale


async def test_indexes_contain_what_was_written() -> None:
    cached = Cached()
    await cached.play(("stored", at(5, "old")), ("written", at(7, "new")))
    assert list(cached.cache.by_index("ip", "new")) == [at(7, "new")]
    assert not cached.cache.by_index("ip", "old")


async def test_the_event_of_our_own_write_is_recognised_once() -> None:
    cache = Cached().cache
    cache.record_write(at(7))
    assert [cache.observe(at(version)) for version in (6, 7, 7)] == [False, True, False]


async def test_of_too_many_tombstones_and_expired_writes_the_oldest_are_dropped() -> None:
    cache = Cached().cache
    for number in range(MAX_TOMBSTONES + 9):
        cache.observe_deletion(at(7, name=f"web-{number}"))
    assert [key.name for key in cache._tombstones][:: MAX_TOMBSTONES - 1] == [
        "web-9",
        f"web-{MAX_TOMBSTONES + 8}",
    ]
    cache.record_write(at(7))
    await asyncio.sleep(61)
    cache.record_write(at(7, name="another"))
    assert [key.name for key in cache._written] == ["another"]
