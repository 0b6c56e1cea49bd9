"""The fake does what the reflector may expect of an API server."""

import asyncio

import pytest
from support.fake_source import READ_DEADLINE_SECONDS, FakeSource, thing

from kruise_probe.api.errors import ConnectionFailed, Expired, Invalid
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import EventType, WatchEvent
from kruise_probe.api.meta import ApiObject


@pytest.fixture
def source() -> FakeSource[ApiObject]:
    return FakeSource()


async def watched(
    source: FakeSource[ApiObject], version: str, *, initial: bool = False, events: int = 100
) -> list[WatchEvent[ApiObject]]:
    """Up to so many events of a watch that the server ends after 300 s."""
    got: list[WatchEvent[ApiObject]] = []
    async with source.watch(
        resource_version=version, timeout_seconds=300, send_initial_events=initial
    ) as stream:
        async for event in stream:
            got.append(event)
            if len(got) == events:
                break
    return got


async def test_pages_are_one_consistent_list(source: FakeSource[ApiObject]) -> None:
    for name in "abcde":
        source.put(thing(name))
    first = await source.list_page(limit=2, continue_token="", resource_version="")
    source.put(thing("f"))
    second = await source.list_page(
        limit=0, continue_token=first.continue_token, resource_version=""
    )
    assert [each.key.name for each in first.items + second.items] == list("abcde")
    assert first.resource_version == second.resource_version


async def test_a_compacted_page_is_expired(source: FakeSource[ApiObject]) -> None:
    for name in "abc":
        source.put(thing(name))
    page = await source.list_page(limit=2, continue_token="", resource_version="")
    source.compact()
    with pytest.raises(Expired):
        await source.list_page(limit=2, continue_token=page.continue_token, resource_version="")


async def test_a_watch_replays_changes_after_its_version(source: FakeSource[ApiObject]) -> None:
    first = source.put(thing("a"))
    source.put(thing("a"))
    source.delete(NamespacedName("ns", "a"))
    got = await watched(source, first.resource_version, events=2)
    assert [each.type for each in got] == [EventType.MODIFIED, EventType.DELETED]


async def test_a_watch_sends_bookmarks_and_ends_in_time(
    source: FakeSource[ApiObject], looptime: float
) -> None:
    got = await watched(source, source.resource_version)
    assert {each.type for each in got} == {EventType.BOOKMARK}
    assert looptime == 300


async def test_a_watch_from_a_compacted_version_is_expired(
    source: FakeSource[ApiObject],
) -> None:
    old = source.put(thing("a")).resource_version
    source.put(thing("b"))
    source.compact()
    with pytest.raises(Expired):
        await watched(source, old)


async def test_a_streaming_list_ends_with_its_bookmark(source: FakeSource[ApiObject]) -> None:
    source.put(thing("a"))
    got = await watched(source, "", initial=True, events=2)
    assert [(each.type, each.initial_events_end) for each in got] == [
        (EventType.ADDED, False),
        (EventType.BOOKMARK, True),
    ]


async def test_streaming_lists_can_be_refused(source: FakeSource[ApiObject]) -> None:
    source.streams = False
    with pytest.raises(Invalid):
        await watched(source, "", initial=True)


async def test_a_watch_without_data_ends_at_the_read_deadline_and_loses_events(
    source: FakeSource[ApiObject], looptime: float
) -> None:
    async def lose() -> None:
        await asyncio.sleep(1)
        source.black_hole()
        source.put(thing("lost"))

    async with asyncio.TaskGroup() as group:
        group.create_task(lose())
        with pytest.raises(ConnectionFailed):
            await watched(source, source.resource_version)
    assert looptime == READ_DEADLINE_SECONDS


async def test_events_of_undecodable_objects_have_no_object(
    source: FakeSource[ApiObject],
) -> None:
    source.put(thing("good"))
    source.put_broken(NamespacedName("ns", "bad"))
    page = await source.list_page(limit=500, continue_token="", resource_version="")
    assert [each.key.name for each in page.items] == ["good"]
    assert [each.key.name for each in page.undecodable] == ["bad"]
