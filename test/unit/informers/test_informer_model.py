"""What an informer promises, over any history of changes, dropped watches, silence, compactions and errors.

- In the end the cache equals the source. At every moment handlers know exactly what the store holds, an object never
  goes back in time, and an object that does not decode any more keeps its last good version.
- Handlers get each change once and in order, as long as its version has not expired, and no list is sent meanwhile.
  Those are the promises of an API server's watches: `support/watch_validation.py`.
"""

import asyncio
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.background import background
from support.fake_source import FakeSource, thing
from support.tables import load_table
from support.watch_validation import WatchedChange, watch_problems
from support.wire import Json

from kruise_probe.api.errors import ConnectionFailed, Expired, ServerError, TooManyRequests
from kruise_probe.api.meta import ApiObject, NamespacedName
from kruise_probe.informers.shared_informer import SharedInformer

HISTORY = [
    WatchedChange(1, "ADDED", "a"),
    WatchedChange(2, "ADDED", "b"),
    WatchedChange(4, "MODIFIED", "a"),
    WatchedChange(5, "DELETED", "b"),
]
STREAMS = load_table(Path(__file__).parents[2] / "data" / "informers.yaml", {})["streams"]


def change_of(text: str) -> WatchedChange:
    version, *type_and_key = text.split()
    return WatchedChange(int(version), *type_and_key)


@pytest.mark.parametrize("row", STREAMS.values(), ids=STREAMS)
def test_each_rule_is_noticed_on_a_broken_stream_and_nothing_on_a_correct_one(row: Json) -> None:
    problems = watch_problems(
        HISTORY,
        [change_of(text) for text in row["events"]],
        since=row.get("since", 0),
        until=row.get("until", 0),
    )
    broken = {problem.partition(":")[0] for problem in problems}
    assert broken == set(row.get("breaks", ()))


RECOVERY_SECONDS = 200.0
"""Until a watch is open again: a silent one ends after 70 s, and the longest pause after a refusal is about 30 s."""


def change(type: str, obj: ApiObject) -> WatchedChange:
    return WatchedChange(int(obj.resource_version), type, obj.key.name)


class Failure:
    """What the source does next: one error per request at most."""

    def __init__(self) -> None:
        self.next: Exception | None = None

    def __call__(self) -> None:
        error = self.next
        self.next = None
        if error is not None:
            raise error


class World:
    """A source, what was written to it, an informer, and a handler with its own copy.

    Attributes:
        written: the changes of the source.
        received: the changes that the handler got.
        unlawful: notifications that contradict the handler's copy.
    """

    def __init__(self, *, streams: bool, page_size: int) -> None:
        self.source: FakeSource[ApiObject] = FakeSource()
        self.source.streams = streams
        self.source.page_size = page_size
        self.source.on_watch = self.watch_failure = Failure()
        self.source.on_list = self.list_failure = Failure()
        self.informer = SharedInformer(self.source, name="things")
        self.informer.add_event_handler(self)
        self.objects: dict[NamespacedName, ApiObject] = {}
        self.written: list[WatchedChange] = []
        self.received: list[WatchedChange] = []
        self.unlawful: list[str] = []
        self.generation = 0
        self._deleted: dict[str, int] = {}
        self._kept: set[NamespacedName] = set()

    def on_add(self, obj: ApiObject, is_initial: bool) -> None:
        self._hold(obj.key not in self.objects, "added twice", obj)
        self.objects[obj.key] = obj
        self.received.append(change("ADDED", obj))

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        self._hold(self.objects.get(new.key) is old, "old state differs from the last call", new)
        self._hold(int(new.resource_version) > int(old.resource_version), "back in time", new)
        self._hold(new.uid == old.uid, "another object", new)
        self.objects[new.key] = new
        self.received.append(change("MODIFIED", new))

    def on_delete(self, last_known: ApiObject) -> None:
        """A handler gets the state before the deletion, which identifies it."""
        known = self.objects.pop(last_known.key, None)
        self._hold(known is last_known, "unknown", last_known)
        version = self._deleted.get(last_known.resource_version, 0)
        self.received.append(WatchedChange(version, "DELETED", last_known.key.name))

    def _hold(self, lawful: bool, what: str, obj: ApiObject) -> None:
        if not lawful:
            self.unlawful.append(f"{what}: {obj}")

    async def step(self, what: str, argument: Any) -> None:
        match what:
            case "wait":
                await asyncio.sleep(argument)
            case "drop":
                self.source.drop_watches(argument)
            case "refuse-watch":
                self.watch_failure.next = argument
            case "refuse-list":
                self.list_failure.next = argument
            case "gap":
                self.source.drop_watches()
                self._change("delete", argument)
                self.source.compact()
            case "black-hole":
                self.source.black_hole()
            case "compact":
                self.source.compact()
            case "bookmark":
                self.source.bookmark()
            case _:
                self._change(what, argument)

    def _change(self, what: str, name: str) -> None:
        key = NamespacedName("ns", name)
        current = self.source.objects.get(key)
        if current is None:
            if what == "put":
                self._put("ADDED", key, self._new_uid())
            return
        match what:
            case "put":
                self._put("MODIFIED", key, current.uid)
            case "break":
                self.source.put_broken(key)
                self._kept |= {key} & self.objects.keys()
            case "resend":
                self._resend(current)
            case _:
                self._delete(current)
                if what == "replace":
                    self._put("ADDED", key, self._new_uid())

    def _put(self, type: str, key: NamespacedName, uid: str) -> None:
        stored = self.source.put(thing(key.name, uid=uid))
        self.written.append(change(type, stored))

    def _delete(self, current: ApiObject) -> None:
        self.source.delete(current.key)
        self._kept.discard(current.key)
        version = int(self.source.resource_version)
        self._deleted[current.resource_version] = version
        self.written.append(WatchedChange(version, "DELETED", current.key.name))

    def _resend(self, current: ApiObject) -> None:
        """An API server that lags behind sends the older events of an object again."""
        if self.objects.get(current.key) is not current:
            return
        for version, event in list(self.source._history):
            is_older = version < int(current.resource_version)
            if is_older and event.object is not None and event.object.key == current.key:
                self.source._send(event)

    def _new_uid(self) -> str:
        self.generation += 1
        return f"uid-{self.generation}"

    def assert_handlers_know_the_store(self) -> None:
        assert self.unlawful == []
        assert self.objects == {cached.key: cached for cached in self.informer.lister.list()}

    def assert_settled(self) -> None:
        assert self.informer.has_synced
        broken = self.source.broken
        mine = {key: obj for key, obj in self.objects.items() if key not in broken}
        theirs = {key: obj for key, obj in self.source.objects.items() if key not in broken}
        assert mine == theirs
        # Of what does not decode the last good version is kept, where there was time to see one.
        assert self._kept <= self.objects.keys() <= self.source.objects.keys()


Step = tuple[str, Any]
Story = list[Step]

names = st.sampled_from("abc")
waits = st.tuples(
    st.just("wait"),
    st.sampled_from([0.0, 0.01, 2.0, 20.0, 100.0]),
)
losses = [ConnectionFailed("reset"), TooManyRequests("later")]
errors = st.sampled_from([None, *losses, Expired("too old"), ServerError("etcd")])
changes = st.tuples(
    st.sampled_from(["put", "put", "put", "replace", "delete", "break", "resend"]),
    names,
)
failures = st.one_of(
    st.tuples(
        st.sampled_from(["drop", "refuse-watch", "refuse-list"]),
        errors,
    ),
    st.tuples(
        st.sampled_from(["black-hole", "compact", "bookmark"]),
        st.none(),
    ),
    st.tuples(st.just("gap"), names),
)


def one_step(step: Step) -> Story:
    return [step]


@given(
    st.booleans(),
    st.sampled_from([0, 1, 3]),
    st.lists(st.one_of(changes, waits, failures), min_size=12, max_size=40),
)
@settings(deadline=None, max_examples=200)
async def test_the_cache_equals_the_source_after_any_failures(
    streams: bool, page_size: int, story: Story
) -> None:
    world = World(streams=streams, page_size=page_size)
    async with background(world.informer.run()):
        for what, argument in story:
            await world.step(what, argument)
            world.assert_handlers_know_the_store()
        await asyncio.sleep(RECOVERY_SECONDS)
        world.assert_settled()
        world.assert_handlers_know_the_store()


def after_a_bookmark(what: str) -> Story:
    """From which the informer can resume: two silent watches in a row end in a list."""
    return [("wait", RECOVERY_SECONDS), ("bookmark", None), ("wait", 0.01), (what, None)]


recoverable = st.one_of(
    st.tuples(st.sampled_from(["put", "put", "delete"]), names).map(one_step),
    st.sampled_from([None, *losses]).map(lambda error: [("drop", error)]),
    st.sampled_from(losses).map(lambda error: [("refuse-watch", error), ("drop", None)]),
    st.sampled_from(["black-hole", "compact"]).map(after_a_bookmark),
    waits.map(one_step),
)


@given(st.booleans(), st.lists(recoverable, min_size=8, max_size=30))
@settings(deadline=None, max_examples=50)
async def test_an_informer_passes_on_every_change_once_and_in_order(
    streams: bool, stories: list[Story]
) -> None:
    world = World(streams=streams, page_size=0)
    source = world.source
    since = int(source.resource_version)
    async with background(world.informer.run()):
        await asyncio.sleep(1)
        for what, argument in chain.from_iterable(stories):
            await world.step(what, argument)
        await asyncio.sleep(RECOVERY_SECONDS)
    problems = watch_problems(
        world.written,
        world.received,
        since=since,
        until=int(source.resource_version),
    )
    assert not problems
    assert source.lists == (1 if streams else 2), "a refused stream and its list"
