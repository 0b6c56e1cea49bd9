"""A source of objects for informers in memory, with faults on demand.

It does what an API server does with resource versions, pages, streamed lists, bookmarks and compaction;
`contract/apiserver/test_watches.py` has those of a server.

Source: client-go tools/cache/testing/fake_controller_source.go.
Differs: streamed lists, compaction, and watches that go silent.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kruise_probe.api.errors import ConnectionFailed, Expired, Invalid, NoResponse
from kruise_probe.api.meta import (
    ApiObject,
    EventType,
    KubeObject,
    ListPage,
    NamespacedName,
    ObjectMeta,
    Undecodable,
    WatchEvent,
)
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time

T = TypeVar("T", bound=KubeObject)

READ_DEADLINE_SECONDS = 70.0
"""The client closes a watch without events after this time."""

BOOKMARK_SECONDS = 60.0
NO_LABELS: Mapping[str, str] = {}


def thing(name: str, *, uid: str = "", labels: Mapping[str, str] = NO_LABELS) -> ApiObject:
    """An object of no particular kind."""
    meta = ObjectMeta(
        name=name,
        namespace="ns",
        uid=uid or f"uid-{name}",
        labels=labels,
    )
    return ApiObject(metadata=meta)


def stamp(obj: Any, resource_version: str) -> Any:
    """`obj` as the API server returns it at that version."""
    if isinstance(obj, ApiObject):
        metadata = msgspec.structs.replace(obj.metadata, resource_version=resource_version)
        return msgspec.structs.replace(obj, metadata=metadata)
    return msgspec.structs.replace(obj, resource_version=resource_version)


def raising(error: Exception) -> Callable[..., None]:
    """A hook that always raises this error."""

    def hook(*_: object) -> None:
        raise error

    return hook


class SourceRequest(NamedTuple):
    """A request that the source received; `at` is loop time."""

    at: float
    verb: str
    resource_version: str
    limit: int = 0
    streamed: bool = False
    continued: bool = False

    @property
    def begins_list(self) -> bool:
        return self.streamed or (self.verb == "list" and not self.continued)


class _Ended(NamedTuple):
    """The end of a watch: in order, or by an error."""

    error: Exception | None


class _Watch(Generic[T]):
    def __init__(self) -> None:
        self.pending: deque[WatchEvent[T] | _Ended] = deque()
        self.wake = asyncio.Event()
        self.silent = False

    def push(self, item: WatchEvent[T] | _Ended) -> None:
        if not self.silent:
            self.pending.append(item)
            self.wake.set()


class FakeSource(Generic[T]):
    """Satisfies `ListerWatcher`. The test puts and deletes objects; the source numbers their versions.

    Attributes:
        requests: all requests, in order.
        page_size: maximum size of a page, whatever the limit of the request; 0 for none.
        streams: whether streamed lists are served; otherwise they are refused as Invalid.
        ends_initial_events: whether the bookmark that completes a streamed list is sent.
        ends_watches_at_once: whether each watch ends, in order, before its first event.
        on_list: called at each page; may raise its error.
        on_watch: called when a watch is opened; may raise its error.
    """

    def __init__(self) -> None:
        self.requests: list[SourceRequest] = []
        self.page_size = 0
        self.streams = True
        self.ends_initial_events = True
        self.ends_watches_at_once = False
        self.on_list: Callable[[], None] = lambda: None
        self.on_watch: Callable[[], None] = lambda: None
        self.objects: dict[NamespacedName, T] = {}
        self.broken: dict[NamespacedName, Undecodable] = {}
        self._version = 10
        self._oldest = 10
        self._history: list[tuple[int, WatchEvent[T]]] = []
        self._watches: list[_Watch[T]] = []
        self._held: list[WatchEvent[T]] | None = None
        self._lists: dict[str, tuple[str, list[T], list[Undecodable]]] = {}

    @property
    def resource_version(self) -> str:
        return str(self._version)

    @property
    def lists(self) -> int:
        """Lists begun: streamed ones, and first pages."""
        return sum(request.begins_list for request in self.requests)

    def put(self, obj: T) -> T:
        """Creates or changes an object; returns it with its new version."""
        event = self._event_of(obj.key)
        self._version += 1
        stored: T = stamp(obj, self.resource_version)
        self.objects[obj.key] = stored
        self.broken.pop(obj.key, None)
        self._record(event, stored)
        return stored

    def put_broken(self, key: NamespacedName) -> None:
        """Changes the object of that key to bytes that do not decode."""
        event = self._event_of(key)
        self._version += 1
        problem = "Expected `int`, got `str` - at `$.spec`"
        item = Undecodable(key, self.resource_version, problem)
        self.broken[key] = item
        self._record(event, None, item)

    def _event_of(self, key: NamespacedName) -> EventType:
        return EventType.MODIFIED if key in self.objects else EventType.ADDED

    def delete(self, key: NamespacedName) -> None:
        self._version += 1
        self.broken.pop(key, None)
        last: T = stamp(self.objects.pop(key), self.resource_version)
        self._record(EventType.DELETED, last)

    def bookmark(self, *, ends_initial_events: bool = False) -> None:
        """Sends all watches a bookmark at the newest version."""
        self._send(self._bookmark(ends_initial_events))

    def _bookmark(self, ends_initial_events: bool = False) -> WatchEvent[T]:
        version = self.resource_version
        return WatchEvent(
            EventType.BOOKMARK,
            None,
            version,
            ends_initial_events,
        )

    def drop_watches(self, error: Exception | None = None) -> None:
        """Ends all watches: in order, or by `error`."""
        for watch in self._watches:
            watch.push(_Ended(error))

    def black_hole(self) -> None:
        """Sends no more events to the open watches, without an error."""
        for watch in self._watches:
            watch.silent = True

    def hold(self) -> None:
        """Delays the events of all watches until `release`."""
        self._held = []

    def release(self) -> None:
        held = self._held or []
        self._held = None
        for event in held:
            self._send(event)

    def restore(self, version: int) -> None:
        """Numbers changes from `version` on, as after a restore of etcd, and breaks all watches."""
        self._version = self._oldest = version
        self._history.clear()
        self.drop_watches(ConnectionFailed("reset"))

    def compact(self) -> None:
        """Drops all history: older versions expire."""
        self._oldest = self._version
        self._history.clear()
        self._lists.clear()

    def _record(
        self,
        event: EventType,
        obj: T | None,
        undecodable: Undecodable | None = None,
    ) -> None:
        change = WatchEvent(
            event,
            obj,
            self.resource_version,
            undecodable=undecodable,
        )
        self._history.append((self._version, change))
        self._send(change)

    def _send(self, event: WatchEvent[T]) -> None:
        if self._held is not None:
            self._held.append(event)
            return
        for watch in self._watches:
            watch.push(event)

    async def list_page(
        self,
        *,
        limit: int,
        continue_token: str,
        resource_version: str,
    ) -> ListPage[T]:
        self._note(
            "list",
            resource_version,
            limit=limit,
            continued=bool(continue_token),
        )
        self.on_list()
        await asyncio.sleep(0)
        if continue_token:
            if continue_token not in self._lists:
                raise Expired("the provided continue parameter is too old")
            version, items, broken = self._lists.pop(continue_token)
        else:
            version = self.resource_version
            broken = list(self.broken.values())
            items = self._decodable()
        size = min(limit, self.page_size or limit)
        if not size or len(items) <= size:
            return ListPage(items, broken, version, "")
        token = f"{version}/{len(self.requests)}"
        self._lists[token] = (version, items[size:], [])
        return ListPage(
            items[:size],
            broken,
            version,
            token,
        )

    def _decodable(self) -> list[T]:
        return [obj for key, obj in self.objects.items() if key not in self.broken]

    @asynccontextmanager
    async def watch(
        self,
        *,
        resource_version: str,
        timeout_seconds: int,
        send_initial_events: bool,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        self._note("watch", resource_version, streamed=send_initial_events)
        self.on_watch()
        if send_initial_events and not self.streams:
            raise Invalid("sendInitialEvents is forbidden for watch")
        watch: _Watch[T] = _Watch()
        if self.ends_watches_at_once:
            watch.push(_Ended(None))
        elif send_initial_events:
            self._send_initial(watch)
        else:
            self._send_since(watch, int(resource_version))
        self._watches.append(watch)
        try:
            yield self._events(watch, timeout_seconds)
        finally:
            self._watches.remove(watch)

    def _note(self, verb: str, resource_version: str, **more: Any) -> None:
        request = SourceRequest(loop_time(), verb, resource_version, **more)
        self.requests.append(request)

    def _send_initial(self, watch: _Watch[T]) -> None:
        for obj in self._decodable():
            watch.push(WatchEvent(EventType.ADDED, obj, obj.resource_version))
        for item in self.broken.values():
            watch.push(
                WatchEvent(
                    EventType.ADDED,
                    None,
                    item.resource_version,
                    undecodable=item,
                )
            )
        if self.ends_initial_events:
            watch.push(self._bookmark(ends_initial_events=True))

    def _send_since(self, watch: _Watch[T], version: int) -> None:
        watch.silent = version > self._version  # as the real one, after a restore of etcd
        if version < self._oldest:
            watch.push(_Ended(Expired(f"too old resource version: {version}")))
        for at, event in self._history:
            if at > version:
                watch.push(event)

    async def _events(self, watch: _Watch[T], timeout_seconds: int) -> AsyncIterator[WatchEvent[T]]:
        heard_at = loop_time()
        ends_at = heard_at + timeout_seconds
        while True:
            while watch.pending:
                item = watch.pending.popleft()
                if isinstance(item, _Ended):
                    if item.error:
                        raise item.error
                    return
                heard_at = loop_time()
                yield item
            now = loop_time() + CLOCK_SLACK_SECONDS
            if watch.silent and now >= heard_at + READ_DEADLINE_SECONDS:
                raise NoResponse("nothing read for 70 s")
            if now >= ends_at:
                return
            watch.wake.clear()
            await self._sleep_until_event(watch, min(ends_at, heard_at + BOOKMARK_SECONDS))
            if (
                not watch.pending
                and not watch.silent
                and loop_time() + CLOCK_SLACK_SECONDS < ends_at
            ):
                watch.push(self._bookmark())

    async def _sleep_until_event(self, watch: _Watch[T], until: float) -> None:
        if watch.silent:
            until += READ_DEADLINE_SECONDS - BOOKMARK_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await watch.wake.wait()


class RecordingHandler:
    """An event handler that keeps its calls as texts; a resync is an update without a change."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_add(self, obj: KubeObject, is_initial: bool) -> None:
        self.calls.append(f"{'initial' if is_initial else 'add'} {obj.key.name}")

    def on_update(self, old: KubeObject, new: KubeObject) -> None:
        self.calls.append(f"{'resync' if old is new else 'update'} {new.key.name}")

    def on_delete(self, last_known: KubeObject) -> None:
        self.calls.append(f"delete {last_known.key.name}")
