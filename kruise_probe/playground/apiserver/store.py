"""Objects in memory: one revision counter, one bounded history, watchers.

Objects are kept as the bytes that lists answer, so that nothing that was stored can be changed by accident,
and a list is a join. Every change happens between two awaits: readers never see half of one.

Source: apiserver pkg/storage/cacher (watch cache, triggers by field); etcd's revisions.
Differs: one store in one process; a watch whose reader is too slow is ended, as there.
"""

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kruise_probe.api.keys import NamespacedName
from kruise_probe.playground.apiserver.selecting import FieldFilter, LabelFilter

HISTORY_CHANGES: Final = 20_000
"""Bound of the history of one kind, in changes."""

HISTORY_BYTES: Final = 64 << 20
"""Bound of the history of one kind, in bytes of its newest states."""

WATCHER_BACKLOG: Final = 20_000
"""Changes that may wait for one slow reader before its watch is ended."""

TRIGGER_FIELDS: Final = ("metadata.name", "spec.nodeName")
"""A watch that pins one of these hears of nothing else; a thousand of them cost one look-up a change."""


class Stored(NamedTuple):
    """One state of one object.

    Attributes:
        body: its JSON as a list shows it.
        fields: what field selectors ask for.
        owners: uids of the objects that it depends on.
        ending: somebody asked for its deletion.
    """

    key: NamespacedName
    uid: str
    revision: int
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...] = ()
    ending: bool = False


class Change(NamedTuple):
    """`old` is None for a creation; after a removal `new` is the last state, at the removal's revision."""

    revision: int
    old: Stored | None
    new: Stored
    removed: bool


class Scope(NamedTuple):
    """What a list or a watch looks at."""

    namespace: str = ""
    labels: LabelFilter = LabelFilter()
    fields: FieldFilter = FieldFilter()

    def holds(self, stored: Stored) -> bool:
        return (
            (not self.namespace or stored.key.namespace == self.namespace)
            and (not self.labels.requirements or self.labels.matches(stored.labels))
            and (not self.fields.terms or self.fields.matches(stored.fields))
        )

    @property
    def selects(self) -> bool:
        return bool(self.labels.requirements or self.fields.terms)


class Watcher:
    """The changes that one watch has still to send. Owned by its reader; `close` ends it from outside."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope
        self.closed = False
        self._backlog: deque[Change] = deque()
        self._wake = asyncio.Event()

    def offer(self, change: Change) -> None:
        if len(self._backlog) >= WATCHER_BACKLOG:
            self.close()
            return
        self._backlog.append(change)
        self._wake.set()

    def take(self) -> list[Change]:
        """Everything that waits, oldest first."""
        taken = list(self._backlog)
        self._backlog.clear()
        self._wake.clear()
        return taken

    async def wait(self) -> None:
        """Returns once something waits or the watch was closed; check `closed` afterwards."""
        await self._wake.wait()

    def close(self) -> None:
        self.closed = True
        self._backlog.clear()
        self._wake.set()


class Collection:
    """All objects of one kind, their recent history and their watchers."""

    def __init__(self) -> None:
        self.objects: dict[NamespacedName, Stored] = {}
        self._order: list[str] = []
        self._keys: dict[str, NamespacedName] = {}
        self._history: deque[Change] = deque()
        self._history_bytes = 0
        self.floor = 0
        self._watchers: set[Watcher] = set()
        self._triggered: dict[tuple[str, str], set[Watcher]] = {}

    def record(self, change: Change) -> None:
        """Takes over one change: objects, history, watchers."""
        key = change.new.key
        if change.removed:
            del self.objects[key]
            del self._keys[str(key)]
            del self._order[bisect_left(self._order, str(key))]
        else:
            if change.old is None:
                insort(self._order, str(key))
                self._keys[str(key)] = key
            self.objects[key] = change.new
        self._remember(change)
        for watcher in self._interested(change):
            watcher.offer(change)

    def _remember(self, change: Change) -> None:
        self._history.append(change)
        self._history_bytes += len(change.new.body)
        while len(self._history) > HISTORY_CHANGES or self._history_bytes > HISTORY_BYTES:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = self._history.popleft()
        self._history_bytes -= len(oldest.new.body)
        self.floor = oldest.revision

    def forget_until(self, revision: int) -> None:
        """Drops the whole history; versions below `revision` are expired from now on."""
        self._history.clear()
        self._history_bytes = 0
        self.floor = revision

    def _interested(self, change: Change) -> list[Watcher]:
        found = list(self._watchers)
        if self._triggered:
            for name in TRIGGER_FIELDS:
                values = {change.new.fields.get(name, "")}
                if change.old is not None:
                    values.add(change.old.fields.get(name, ""))
                for value in values:
                    found.extend(self._triggered.get((name, value), ()))
        return found

    def changes_after(self, revision: int) -> list[Change]:
        """The history after `revision`, oldest first; ask `floor` first whether it reaches that far."""
        found = []
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    def ordered(self, after: str = "") -> Iterator[Stored]:
        """All objects in the order of lists, from the first key after `after`."""
        start = bisect_left(self._order, after + "\0") if after else 0
        for key in self._order[start:]:
            yield self.objects[self._keys[key]]

    def ordered_at(self, revision: int, after: str = "") -> Iterator[Stored]:
        """The same as it stood at `revision`, which must not be below `floor`."""
        undone: dict[NamespacedName, Stored | None] = {}
        for change in reversed(self.changes_after(revision)):
            undone[change.new.key] = change.old
        if not undone:
            yield from self.ordered(after)
            return
        past = {**self.objects, **undone}
        for key in sorted(past, key=str):
            stored = past[key]
            if stored is not None and str(key) > after:
                yield stored

    def watch(self, scope: Scope) -> Watcher:
        """Registers a watcher; give it back with `unwatch`."""
        watcher = Watcher(scope)
        self._watchers_for(scope).add(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers_for(watcher.scope).discard(watcher)
        trigger = _trigger(watcher.scope)
        if trigger and not self._triggered.get(trigger):
            self._triggered.pop(trigger, None)

    def _watchers_for(self, scope: Scope) -> set[Watcher]:
        trigger = _trigger(scope)
        return self._triggered.setdefault(trigger, set()) if trigger else self._watchers

    @property
    def watchers(self) -> list[Watcher]:
        return [*self._watchers, *(each for some in self._triggered.values() for each in some)]


def _trigger(scope: Scope) -> tuple[str, str] | None:
    for name in TRIGGER_FIELDS:
        value = scope.fields.pinned(name)
        if value is not None:
            return name, value
    return None


class Store:
    """The collections, and the revision that all of them share."""

    def __init__(self) -> None:
        self.revision = 1
        self._collections: dict[str, Collection] = {}

    def collection(self, qualified_resource: str) -> Collection:
        """The collection of e.g. `podprobemarkers.apps.kruise.io`."""
        return self._collections.setdefault(qualified_resource, Collection())

    @property
    def collections(self) -> Mapping[str, Collection]:
        return self._collections

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def expire(self) -> None:
        """Makes every resource version that was handed out so far too old."""
        revision = self.next_revision()
        for each in self._collections.values():
            each.forget_until(revision)
