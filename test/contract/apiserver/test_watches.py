"""Watches: what comes first, what follows, how selectors and bookmarks behave, how it ends."""

from typing import Any

import pytest
from contract.contract_api import DATA, Api, absent_node, marker, pod
from support.tables import load_table
from support.wire import Json

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
LABELS = ({"other": "x"}, {"watched": "yes"}, {"other": "y"}, {"watched": "no"})
PHASES = ("Running", "Failed")
ROWS = load_table(DATA / "watches.yaml", {})["watches"]


async def write(api: Api) -> list[str]:
    """Create a pod, edit its labels and its phase; return the version of each write."""
    path = api.path("pods", "p")
    answers = [await api.create("pods", pod())]
    answers += [await api.merge(path, {"metadata": {"labels": labels}}) for labels in LABELS]
    status = f"{path}/status"
    answers += [await api.strategic(status, {"status": {"phase": phase}}) for phase in PHASES]
    return [answer.revision for answer in answers]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_a_watch_has_the_changes_that_its_query_selects(api: Api, row: Json) -> None:
    """What leaves a selector is deleted as it was when it matched, at the version of the change."""
    path = api.path("pods")
    old = await api.create("pods", pod("old"))
    start = (await api.get(path)).revision
    late = row.get("late", False)
    versions = await write(api) if late else [start]
    query = {
        key: value.format(start, versions[0], node=absent_node())
        for key, value in row["query"].items()
    }
    async with api.watch(path, **query) as stream:
        if not late:
            versions = await write(api)
        before: Any = None
        for expected in row["events"]:
            kind, _, which = expected.partition(" ")
            event = await stream.next()
            found = event["object"]
            version = found["metadata"].pop("resourceVersion")
            assert event["type"] == kind
            if which == "end":
                assert found["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
                assert int(version) >= int(old.revision)
                assert (found["kind"], found["apiVersion"]) == ("Pod", "v1")
            elif which == "old":
                assert version == old.revision
            else:
                assert version == versions[int(which)]
            if kind == "DELETED":
                assert found == before
            before = found


async def test_a_watch_with_bookmarks_ends_with_one(api: Api) -> None:
    path = api.path("pods")
    listed = await api.get(path)
    query = {
        "resourceVersion": listed.revision,
        "timeoutSeconds": "4",
        "allowWatchBookmarks": "true",
    }
    events: list[Any] = []
    # The real server sends it 2 s before the end, and none if it is later than that.
    for attempt in range(5 if api.real else 1):
        async with api.watch(path, **query) as stream:
            await api.create("podprobemarkers", marker(f"m-{attempt}"))
            events = await stream.rest()
        if events:
            break
    assert {event["type"] for event in events} == {"BOOKMARK"}
    newest = events[-1]["object"]["metadata"]["resourceVersion"]
    assert int(newest) >= int(listed.revision)
