"""Watches: what comes first, what follows, how selectors and bookmarks behave, how it ends."""

from pathlib import Path
from typing import Any

import pytest
from contract.contract_api import Api, absent_node, marker, pod
from support.tables import load_table
from support.wire import Json

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
LABELS = ({"other": "x"}, {"watched": "yes"}, {"other": "y"}, {"watched": "no"})
PHASES = ("Running", "Failed")
ROWS = load_table(Path(__file__).parents[2] / "data" / "watches.yaml", {})["watches"]


async def write(api: Api) -> list[str]:
    """Create a pod, edit its labels and its phase; return the version of each write."""
    path = api.path("pods", "p")
    answers = [await api.create("pods", pod("p"))]
    answers += [await api.merge(path, {"metadata": {"labels": each}}) for each in LABELS]
    answers += [
        await api.strategic(f"{path}/status", {"status": {"phase": each}}) for each in PHASES
    ]
    return [each.revision for each in answers]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_a_watch_has_the_changes_that_its_query_selects(api: Api, row: Json) -> None:
    """What leaves a selector is deleted as it was when it matched, at the version of the change."""
    old = await api.create("pods", pod("old"))
    start = (await api.get(api.path("pods"))).revision
    late = row.get("late", False)
    versions = await write(api) if late else [start]
    query = {
        key: each.format(start, versions[0], node=absent_node())
        for key, each in row["query"].items()
    }
    async with api.watch(api.path("pods"), **query) as stream:
        if not late:
            versions = await write(api)
        before: Any = None
        for expected in row["events"]:
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
