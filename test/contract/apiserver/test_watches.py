"""Watches: what comes first, what follows, how selectors and bookmarks behave, how it ends."""

from typing import Any

import pytest
from support.contract_api import TABLE, Api, WatchStream, absent_node, marker, pod

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


async def label(api: Api, name: str, **labels: str | None) -> int:
    patched = await api.merge(api.path("pods", name), {"metadata": {"labels": labels}})
    assert patched.code == 200
    return int(patched.revision)


async def seen(stream: WatchStream) -> tuple[str, str, int]:
    event = await stream.next()
    metadata = event["object"]["metadata"]
    return event["type"], metadata.get("name", ""), int(metadata["resourceVersion"])


async def test_a_watch_follows_the_list_it_comes_from(api: Api) -> None:
    await api.create("pods", pod("old"))
    listed = await api.get(api.path("pods"))
    async with api.watch(api.path("pods"), resourceVersion=listed.revision) as stream:
        created = await api.create("pods", pod("p"))
        assert await seen(stream) == ("ADDED", "p", int(created.revision))
        revision = await label(api, "p", a="b")
        assert await seen(stream) == ("MODIFIED", "p", revision)
        await api.delete(api.path("pods", "p"), gracePeriodSeconds=0)
        event = await stream.next()
        while event["type"] == "MODIFIED":  # the real server marks it first
            event = await stream.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "p")
        assert event["object"]["metadata"]["labels"] == {"a": "b"}
        assert int(event["object"]["metadata"]["resourceVersion"]) > revision


async def test_a_watch_replays_what_happened_since_its_version(api: Api) -> None:
    listed = await api.get(api.path("pods"))
    created = await api.create("pods", pod("p"))
    first = await label(api, "p", a="1")
    second = await label(api, "p", a="2")
    async with api.watch(api.path("pods"), resourceVersion=listed.revision) as stream:
        assert await seen(stream) == ("ADDED", "p", int(created.revision))
        assert await seen(stream) == ("MODIFIED", "p", first)
        assert await seen(stream) == ("MODIFIED", "p", second)
    async with api.watch(api.path("pods"), resourceVersion=first) as stream:
        assert await seen(stream) == ("MODIFIED", "p", second)


@pytest.mark.parametrize("version", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_version_starts_with_what_is_there(
    api: Api, version: dict[str, str]
) -> None:
    await api.create("pods", pod("a"))
    await api.create("pods", pod("b"))
    listed = await api.get(api.path("pods"))
    async with api.watch(api.path("pods"), **version) as stream:
        first = [await stream.next(), await stream.next()]
        assert [(each["type"], each["object"]["metadata"]["name"]) for each in first] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]
        revision = await label(api, "a", x="y")
        assert revision > int(listed.revision)
        assert await seen(stream) == ("MODIFIED", "a", revision)


async def test_a_streaming_list_ends_with_its_bookmark(api: Api) -> None:
    await api.create("pods", pod("a"))
    newest = await api.create("pods", pod("b"))
    async with api.watch(api.path("pods"), **STREAMING) as stream:
        events = [await stream.next() for _ in range(3)]
        assert [each["type"] for each in events] == ["ADDED", "ADDED", "BOOKMARK"]
        end = events[2]["object"]
        assert end["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
        assert int(end["metadata"]["resourceVersion"]) >= int(newest.revision)
        assert (end["kind"], end["apiVersion"]) == ("Pod", "v1")
        created = await api.create("pods", pod("c"))
        assert await seen(stream) == ("ADDED", "c", int(created.revision))


async def test_a_streaming_list_may_leave_out_what_is_there(api: Api) -> None:
    await api.create("pods", pod("a"))
    query = {**STREAMING, "sendInitialEvents": "false"}
    listed = await api.get(api.path("pods"))
    async with api.watch(api.path("pods"), resourceVersion=listed.revision, **query) as stream:
        await api.create("pods", pod("b"))
        event = await stream.next()
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")


async def test_objects_come_and_go_with_the_label_selector(api: Api) -> None:
    await api.create("pods", pod("p", labels={"app": "a"}))
    listed = await api.get(api.path("pods"))
    async with api.watch(
        api.path("pods"), resourceVersion=listed.revision, labelSelector="watched=yes"
    ) as stream:
        await label(api, "p", other="x")
        revision = await label(api, "p", watched="yes")
        assert await seen(stream) == ("ADDED", "p", revision)
        revision = await label(api, "p", other="y")
        assert await seen(stream) == ("MODIFIED", "p", revision)
        revision = await label(api, "p", watched="no")
        event = await stream.next()
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["resourceVersion"] == str(revision)
        assert event["object"]["metadata"]["labels"]["watched"] == "yes", "the last that matched"


async def test_objects_come_and_go_with_the_field_selector(api: Api) -> None:
    await api.create("pods", pod("p"))
    await api.create("pods", pod("q"))
    listed = await api.get(api.path("pods"))
    async with api.watch(
        api.path("pods"),
        resourceVersion=listed.revision,
        fieldSelector=f"spec.nodeName={absent_node()},status.phase=Running",
    ) as stream:
        path = api.path("pods", "p") + "/status"
        await api.strategic(path, {"status": {"phase": "Running"}})
        assert (await seen(stream))[:2] == ("ADDED", "p")
        await api.strategic(path, {"status": {"phase": "Failed"}})
        assert (await seen(stream))[:2] == ("DELETED", "p")


async def test_a_namespace_hears_of_itself_only(api: Api) -> None:
    other = f"{api.namespace}-b"
    await api.post(api.path("namespaces"), {"metadata": {"name": other}})
    listed = await api.get(api.path("podprobemarkers"))
    async with api.watch(api.path("podprobemarkers"), resourceVersion=listed.revision) as stream:
        await api.post(api.path("podprobemarkers", namespace=other), marker("elsewhere"))
        await api.create("podprobemarkers", marker("here"))
        assert (await seen(stream))[:2] == ("ADDED", "here")
    await api.delete(api.path("namespaces", other))


async def test_a_watch_ends_at_its_timeout(api: Api) -> None:
    listed = await api.get(api.path("pods"))
    async with api.watch(
        api.path("pods"), resourceVersion=listed.revision, timeoutSeconds=1
    ) as stream:
        assert await stream.ended()


async def test_a_watch_with_bookmarks_ends_with_one(api: Api) -> None:
    listed = await api.get(api.path("pods"))
    events: list[Any] = []
    # The real server sends it 2 s before the end, and none if it is later than that.
    for attempt in range(5 if api.real else 1):
        async with api.watch(
            api.path("pods"),
            resourceVersion=listed.revision,
            timeoutSeconds=4,
            allowWatchBookmarks="true",
        ) as stream:
            await api.create("podprobemarkers", marker(f"m-{attempt}"))
            events = await stream.rest()
        if events:
            break
    assert {each["type"] for each in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(listed.revision)


async def test_a_burst_arrives_whole_and_in_order(api: Api) -> None:
    await api.create("pods", pod("p"))
    listed = await api.get(api.path("pods"))
    async with api.watch(api.path("pods"), resourceVersion=listed.revision) as stream:
        revisions = [await label(api, "p", n=str(number)) for number in range(100)]
        assert [(await seen(stream))[2] for _ in range(100)] == revisions


async def test_a_table_can_be_watched(api: Api) -> None:
    await api.create("pods", pod("p"))
    async with api.watch(api.path("pods"), accept=TABLE) as stream:
        first = (await stream.next())["object"]
        assert first["kind"] == "Table"
        assert first["columnDefinitions"][0]["name"] == "Name"
        assert first["rows"][0]["cells"][0] == "p"
        await label(api, "p", a="b")
        second: dict[str, Any] = (await stream.next())["object"]
        assert second["columnDefinitions"] is None
        assert second["rows"][0]["object"]["metadata"]["labels"] == {"a": "b"}


async def test_the_bookmark_of_a_streaming_list_of_metadata_is_metadata(api: Api) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    path = api.path("leases")
    async with api.watch(path, accept=accept, allowWatchBookmarks="true", **query) as stream:
        bookmark = await stream.next()
    assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "PartialObjectMetadata")


@pytest.mark.parametrize(
    ("node", "marked"),
    [
        pytest.param("", False, id="no-node"),
        pytest.param(None, False, id="no-grace-period"),
        pytest.param(None, True, id="as-the-kubelet-ends-it"),
    ],
)
async def test_a_pod_that_is_deleted_at_once_is_modified_first(
    api: Api, node: str | None, marked: bool
) -> None:
    last = await api.create("pods", pod("p", node=node))
    if marked:
        last = await api.delete(api.path("pods", "p"))
    async with api.watch(api.path("pods"), resourceVersion=last.revision) as stream:
        await api.delete(api.path("pods", "p"), gracePeriodSeconds=0)
        events = [await stream.next() for _ in range(2)]
    assert [each["type"] for each in events] == ["MODIFIED", "DELETED"]
    assert {each["object"]["metadata"]["deletionGracePeriodSeconds"] for each in events} == {0}


FUTURE = {"resourceVersion": str(10**15)}


async def test_a_streaming_list_from_the_future(api: Api) -> None:
    async with api.watch(api.path("leases"), **STREAMING, **FUTURE) as stream:
        event = await stream.line()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
    assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_watch_from_the_future(api: Api) -> None:
    async with api.watch(api.path("leases"), **FUTURE, timeoutSeconds=2) as stream:
        await api.create("leases", {"metadata": {"name": "l"}})
        assert await stream.rest() == []
    async with api.watch(api.path("leases"), resourceVersion="abc") as stream:
        assert stream.code == 500
