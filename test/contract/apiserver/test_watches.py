"""Watches: what comes first, what follows, how selectors and bookmarks behave, how it ends."""

from typing import Any, NamedTuple

import pytest
from contract.contract_api import Api, absent_node, marker, pod

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
LABELS = ({"other": "x"}, {"watched": "yes"}, {"other": "y"}, {"watched": "no"})
PHASES = ("Running", "Failed")
ALL = (
    "ADDED 0",
    "MODIFIED 1",
    "MODIFIED 2",
    "MODIFIED 3",
    "MODIFIED 4",
    "MODIFIED 5",
    "MODIFIED 6",
)


async def write(api: Api) -> list[str]:
    """Create a pod, edit its labels and its phase; return the version of each write."""
    path = api.path("pods", "p")
    answers = [await api.create("pods", pod("p"))]
    answers += [await api.merge(path, {"metadata": {"labels": each}}) for each in LABELS]
    answers += [
        await api.strategic(f"{path}/status", {"status": {"phase": each}}) for each in PHASES
    ]
    return [each.revision for each in answers]


class Row(NamedTuple):
    """`query` of a watch; `{0}` is the version before the writes, `{1}` that of the first.

    `events` have the number of a write, or `old` for the pod before them. `late` opens the watch after the writes.
    """

    query: dict[str, str]
    events: tuple[str, ...]
    late: bool = False


FROM_THE_START = {"resourceVersion": "{0}"}
RUNNING = {"fieldSelector": "spec.nodeName={node},status.phase=Running"}
ROWS = {
    "follows-its-version": Row(FROM_THE_START, ALL),
    "replays-from-its-version": Row(FROM_THE_START, ALL, late=True),
    "replays-from-a-later-version": Row({"resourceVersion": "{1}"}, ALL[1:], late=True),
    "without-a-version": Row({}, ("ADDED old", *ALL)),
    "from-version-0": Row({"resourceVersion": "0"}, ("ADDED old", *ALL)),
    "streaming-list": Row(STREAMING, ("ADDED old", "BOOKMARK end", *ALL)),
    "streaming-list-without-initial-events": Row(
        {**STREAMING, **FROM_THE_START, "sendInitialEvents": "false"}, ALL
    ),
    **{
        f"{name}-selector{'-replayed' * late}": Row({**FROM_THE_START, **selector}, events, late)
        for late in (False, True)
        for name, selector, events in (
            ("label", {"labelSelector": "watched=yes"}, ("ADDED 2", "MODIFIED 3", "DELETED 4")),
            ("field", RUNNING, ("ADDED 5", "DELETED 6")),
        )
    },
}


@pytest.mark.parametrize("row", [pytest.param(each, id=name) for name, each in ROWS.items()])
async def test_a_watch_has_the_changes_that_its_query_selects(api: Api, row: Row) -> None:
    """What leaves a selector is deleted as it was when it matched, at the version of the change."""
    old = await api.create("pods", pod("old"))
    start = (await api.get(api.path("pods"))).revision
    versions = await write(api) if row.late else [start]
    query = {
        key: each.format(start, versions[0], node=absent_node()) for key, each in row.query.items()
    }
    async with api.watch(api.path("pods"), **query) as stream:
        if not row.late:
            versions = await write(api)
        before: Any = None
        for expected in row.events:
            event = await stream.next()
            kind, _, which = expected.partition(" ")
            metadata = event["object"]["metadata"]
            version = metadata.pop("resourceVersion")
            assert event["type"] == kind
            if which == "end":
                assert metadata["annotations"] == {INITIAL_EVENTS_END: "true"}
                assert int(version) >= int(old.revision)
                assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("Pod", "v1")
            else:
                assert version == (old.revision if which == "old" else versions[int(which)])
                assert kind != "DELETED" or event["object"] == before
            before = event["object"]


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
