"""After any mix of changes, dropped watches, silence, compactions and errors the cache equals the source.

And at every moment: an object never goes back in time, handlers know exactly what the store holds, and
no list is sent while the version is valid.
"""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_source import FakeSource, thing

from kruise_probe.api.errors import ConnectionFailed, Expired, ServerError, TooManyRequests
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import ApiObject
from kruise_probe.informers.shared_informer import SharedInformer

errors = st.sampled_from(
    [
        None,
        ConnectionFailed("reset"),
        Expired("too old"),
        ServerError("etcd"),
        TooManyRequests("later"),
    ]
)
changes = st.tuples(
    st.sampled_from(["put", "put", "put", "replace", "delete", "break"]), st.sampled_from("abc")
)
waits = st.tuples(st.just("wait"), st.sampled_from([0.0, 0.01, 2.0, 20.0, 100.0]))
failures = st.one_of(
    st.tuples(st.sampled_from(["drop", "refuse-watch", "refuse-list"]), errors),
    st.tuples(st.sampled_from(["black-hole", "compact", "bookmark"]), st.none()),
    st.tuples(st.just("gap"), st.sampled_from("abc")),
)
stories = st.lists(st.one_of(changes, waits, failures), min_size=12, max_size=40)


class Mirror:
    """A handler that keeps its own copy, and notes each notification that is not lawful."""

    def __init__(self) -> None:
        self.objects: dict[NamespacedName, ApiObject] = {}
        self.unlawful: list[str] = []

    def on_add(self, obj: ApiObject, is_initial: bool) -> None:
        self._hold(obj.key not in self.objects, "added twice", obj)
        self.objects[obj.key] = obj

    def on_update(self, old: ApiObject, new: ApiObject) -> None:
        self._hold(self.objects.get(new.key) is old, "old state differs from the last call", new)
        self._hold(int(new.resource_version) > int(old.resource_version), "back in time", new)
        self._hold(new.uid == old.uid, "another object", new)
        self.objects[new.key] = new

    def on_delete(self, last_known: ApiObject) -> None:
        self._hold(self.objects.pop(last_known.key, None) is last_known, "unknown", last_known)

    def _hold(self, lawful: bool, what: str, obj: ApiObject) -> None:
        if not lawful:
            self.unlawful.append(f"{what}: {obj}")


class Failure:
    """What the source does next: one error per request at most."""

    def __init__(self) -> None:
        self.next: Exception | None = None

    def __call__(self) -> None:
        error, self.next = self.next, None
        if error is not None:
            raise error


class World:
    def __init__(self, *, streams: bool, page_size: int) -> None:
        self.source: FakeSource[ApiObject] = FakeSource()
        self.source.streams = streams
        self.source.page_size = page_size
        self.source.on_watch = self.watch_failure = Failure()
        self.source.on_list = self.list_failure = Failure()
        self.informer = SharedInformer(self.source, name="things")
        self.mirror = Mirror()
        self.informer.add_event_handler(self.mirror)
        self.generation = 0

    async def step(self, what: str, argument: object) -> None:
        match what, argument:
            case "wait", float(seconds):
                await asyncio.sleep(seconds)
            case (("put" | "replace" | "delete" | "break"), str(name)):
                self.change(what, NamespacedName("ns", name))
            case "drop", error:
                self.source.drop_watches(error)  # type: ignore[arg-type]
            case "refuse-watch", error:
                self.watch_failure.next = error  # type: ignore[assignment]
            case "refuse-list", error:
                self.list_failure.next = error  # type: ignore[assignment]
            case "gap", str(name):
                self.source.drop_watches()
                self.change("delete", NamespacedName("ns", name))
                self.source.compact()
            case "black-hole", _:
                self.source.black_hole()
            case "compact", _:
                self.source.compact()
            case _:
                self.source.bookmark()

    def change(self, what: str, key: NamespacedName) -> None:
        current = self.source.objects.get(key)
        if what == "put":
            self.source.put(thing(key.name, uid=current.uid if current else self.new_uid()))
        elif current is not None and what == "break":
            self.source.put_broken(key)
        elif current is not None:
            self.source.delete(key)
            if what == "replace":
                self.source.put(thing(key.name, uid=self.new_uid()))

    def new_uid(self) -> str:
        self.generation += 1
        return f"uid-{self.generation}"

    def assert_handlers_know_the_store(self) -> None:
        assert self.mirror.unlawful == []
        assert self.mirror.objects == {each.key: each for each in self.informer.lister.list()}

    def assert_settled(self) -> None:
        assert self.informer.has_synced
        broken = self.source.broken
        mine = {key: obj for key, obj in self.mirror.objects.items() if key not in broken}
        theirs = {key: obj for key, obj in self.source.objects.items() if key not in broken}
        assert mine == theirs
        # Of what does not decode the last good version is kept, where there was time to see one.
        assert self.mirror.objects.keys() <= self.source.objects.keys()


@given(st.booleans(), st.sampled_from([0, 1, 3]), stories)
@settings(deadline=None, max_examples=200)
async def test_the_cache_equals_the_source_after_any_failures(
    streams: bool, page_size: int, story: list[tuple[str, object]]
) -> None:
    world = World(streams=streams, page_size=page_size)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.informer.run())
        for what, argument in story:
            await world.step(what, argument)
            world.assert_handlers_know_the_store()
        await asyncio.sleep(200)
        world.assert_settled()
        world.assert_handlers_know_the_store()
        running.cancel()
