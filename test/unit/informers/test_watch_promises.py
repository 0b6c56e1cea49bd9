"""An informer passes each change on once and in order, as long as its version has not expired.

The same promises as those of an API server's watches: `support/watch_validation.py`.
"""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.background import background
from support.fake_source import FakeSource, thing
from support.watch_validation import BOOKMARK, WatchedChange, watch_problems

from kruise_probe.api.errors import ConnectionFailed, TooManyRequests
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import ApiObject
from kruise_probe.informers.shared_informer import SharedInformer

HISTORY = [
    WatchedChange(1, "ADDED", "a"),
    WatchedChange(2, "ADDED", "b"),
    WatchedChange(4, "MODIFIED", "a"),
    WatchedChange(5, "DELETED", "b"),
]
ONE, TWO, FOUR, FIVE = HISTORY


@pytest.mark.parametrize(
    ("events", "since", "until"),
    [
        pytest.param(HISTORY, 0, 5, id="all"),
        pytest.param([FOUR, FIVE], 2, 5, id="from-a-version"),
        pytest.param([], 5, 5, id="nothing-new"),
        pytest.param([ONE], 0, 0, id="ended-early"),
        pytest.param([ONE, TWO, WatchedChange(3, BOOKMARK), FOUR, FIVE, WatchedChange(5, BOOKMARK)], 0, 5, id="bookmarks"),
    ],
)  # fmt: skip
def test_a_correct_stream_has_no_problem(
    events: list[WatchedChange], since: int, until: int
) -> None:
    assert watch_problems(HISTORY, events, since=since, until=until) == []


@pytest.mark.parametrize(
    ("events", "since", "until", "rules"),
    [
        pytest.param([ONE, FOUR, TWO, FIVE], 0, 0, {"ordered"}, id="swapped"),
        pytest.param([ONE, TWO, TWO, FOUR], 0, 0, {"unique"}, id="repeated"),
        pytest.param([ONE, FOUR], 0, 0, {"resumable"}, id="left-out"),
        pytest.param([ONE, TWO], 0, 5, {"resumable"}, id="left-out-at-the-end"),
        pytest.param([TWO, FOUR, FIVE], 2, 0, {"resumable"}, id="from-before-its-version"),
        pytest.param([FOUR, FIVE], 0, 0, {"resumable"}, id="begins-too-late"),
        pytest.param([ONE, WatchedChange(3, BOOKMARK), TWO], 0, 0, {"bookmarkable", "ordered"}, id="bookmark-too-early"),
        pytest.param([ONE, WatchedChange(2, BOOKMARK)], 0, 0, {"bookmarkable"}, id="bookmark-of-what-never-came"),
        pytest.param([ONE, TWO, WatchedChange(3, "ADDED", "c")], 0, 0, {"true"}, id="invented"),
        pytest.param([WatchedChange(1, "MODIFIED", "a")], 0, 0, {"true", "resumable"}, id="another-type"),
    ],
)  # fmt: skip
def test_each_rule_is_noticed_on_a_broken_stream(
    events: list[WatchedChange], since: int, until: int, rules: set[str]
) -> None:
    problems = watch_problems(HISTORY, events, since=since, until=until)
    assert {each.partition(":")[0] for each in problems} == rules


class History:
    """Writes to a source, and a handler that notes what an informer passes on."""

    def __init__(self) -> None:
        self.source: FakeSource[ApiObject] = FakeSource()
        self.source.on_watch = self._refuse
        self.refusals: list[Exception] = []
        self.written: list[WatchedChange] = []
        self.received: list[WatchedChange] = []
        self._deleted: dict[tuple[str, str], int] = {}

    def _refuse(self) -> None:
        if self.refusals:
            raise self.refusals.pop()

    def put(self, name: str) -> None:
        key = NamespacedName("ns", name)
        type = "MODIFIED" if key in self.source.objects else "ADDED"
        stored = self.source.put(thing(name))
        self.written.append(WatchedChange(int(stored.resource_version), type, name))

    def delete(self, name: str) -> None:
        last = self.source.objects.get(NamespacedName("ns", name))
        if last is not None:
            self.source.delete(last.key)
            version = int(self.source.resource_version)
            self._deleted[name, last.resource_version] = version
            self.written.append(WatchedChange(version, "DELETED", name))

    def on_add(self, obj: ApiObject, is_initial: bool) -> None:
        self.received.append(WatchedChange(int(obj.resource_version), "ADDED", obj.key.name))

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        self.received.append(WatchedChange(int(new.resource_version), "MODIFIED", new.key.name))

    def on_delete(self, last_known: ApiObject) -> None:
        """A handler gets the state before the deletion, which identifies it."""
        name = last_known.key.name
        version = self._deleted.get((name, last_known.resource_version), 0)
        self.received.append(WatchedChange(version, "DELETED", name))

    async def recover(self) -> None:
        self.refusals.clear()
        await asyncio.sleep(LONGEST_FAILURE_SECONDS)

    async def step(self, what: str, argument: object) -> None:
        match what, argument:
            case "put", str(name):
                self.put(name)
            case "delete", str(name):
                self.delete(name)
            case "drop", error:
                self.source.drop_watches(error)  # type: ignore[arg-type]
            case "refuse", Exception() as error:
                self.refusals.append(error)
                self.source.drop_watches()
            case "black-hole", _:  # after data: two in a row end in a list
                await self.recover()
                self.source.bookmark()
                await asyncio.sleep(0.01)
                self.source.black_hole()
            case "compact", _:  # after a bookmark, from which the informer can resume
                await self.recover()
                self.source.bookmark()
                await asyncio.sleep(0.01)
                self.source.compact()
            case "wait", float(seconds):
                await asyncio.sleep(seconds)
            case _:  # a refusal without an error
                pass


LONGEST_FAILURE_SECONDS = 150.0
"""Until a watch is open again: a silent one ends after 70 s, and the longest pause after a refusal is about 30 s."""

errors = st.sampled_from([None, ConnectionFailed("reset"), TooManyRequests("later")])
stories = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "put", "delete"]), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["drop", "refuse"]), errors),
        st.tuples(st.sampled_from(["black-hole", "compact"]), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 2.0, 90.0])),
    ),
    min_size=8,
    max_size=30,
)


@given(stories, st.booleans())
@settings(deadline=None, max_examples=50)
async def test_an_informer_passes_on_every_change_once_and_in_order(
    story: list[tuple[str, object]], streams: bool
) -> None:
    history = History()
    source = history.source
    source.streams = streams
    informer = SharedInformer(source, name="things")
    informer.add_event_handler(history)
    since = int(source.resource_version)
    async with background(informer.run()):
        await asyncio.sleep(1)
        for what, argument in story:
            await history.step(what, argument)
        await history.recover()
    until = int(source.resource_version)
    assert watch_problems(history.written, history.received, since=since, until=until) == []
    assert source.lists == (1 if streams else 2), "a refused stream and its list"
