"""Objects in memory: one revision counter, bounded histories, watchers.

Objects are stored as the bytes of list items. So a stored object cannot be changed by accident, and a list is a join.
No change contains an await, so readers never see an incomplete one.

Source: apiserver pkg/storage/cacher (watch cache); etcd's revisions.
Differs: one store in one process.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kruise_probe.api.labels import Requirement
from kruise_probe.api.meta import NamespacedName
from kruise_probe_playground.apiserver.selecting import FieldTerm

HISTORY_CHANGES: Final = 20_000
"""Bound of one kind's history, in changes."""

HISTORY_BYTES: Final = 64 << 20
"""Bound of one kind's history, in bytes."""

WATCHER_BACKLOG: Final = 20_000
"""Bound of one watch's backlog; a slower reader loses its watch."""


class Stored(NamedTuple):
    """One state of one object.

    Attributes:
        body: the JSON of a list item.
        fields: the values for field selectors.
        owners: uids of its owners.
        terminating: has a deletionTimestamp.
        new: not changed since it was created.
    """

    key: NamespacedName
    uid: str
    revision: int
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...] = ()
    terminating: bool = False
    new: bool = False


class Change(NamedTuple):
    """`old` is None for a create. For a removal, `new` is the last state with the removal's revision."""

    revision: int
    old: Stored | None
    new: Stored
    removed: bool


class Scope(NamedTuple):
    """The objects of a list or a watch."""

    namespace: str = ""
    labels: Sequence[Requirement] = ()
    fields: Sequence[FieldTerm] = ()

    def matches(self, stored: Stored) -> bool:
        return (
            (not self.namespace or stored.key.namespace == self.namespace)
            and all(label.matches(stored.labels) for label in self.labels)
            and all(field.matches(stored.fields) for field in self.fields)
        )


class Watcher:
    """The backlog of one watch. Its reader owns it; `close` ends the watch."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope
        self.closed = False
        self._backlog: deque[Change] = deque()
        self._wake = asyncio.Event()

    def offer(self, change: Change) -> None:
        """Add a change of an object that is, or was, in the scope."""
        old_matches = change.old is not None and self.scope.matches(change.old)
        if not old_matches and not self.scope.matches(change.new):
            return
        if len(self._backlog) >= WATCHER_BACKLOG:
            self.close()
            return
        self._backlog.append(change)
        self._wake.set()

    def take(self) -> list[Change]:
        """Remove and return the backlog, oldest first."""
        taken = list(self._backlog)
        self._backlog.clear()
        self._wake.clear()
        return taken

    async def wait(self) -> None:
        """Wait until the backlog is not empty or the watch is closed."""
        await self._wake.wait()

    def close(self) -> None:
        self.closed = True
        self._backlog.clear()
        self._wake.set()


class Collection:
    """All objects of one kind, their recent history and watchers. Versions below `floor` are expired."""

    def __init__(self) -> None:
        self.objects: dict[NamespacedName, Stored] = {}
        self._history: deque[Change] = deque()
        self._history_bytes = 0
        self.floor = 0
        # A dictionary instead of a set: changes reach watchers in the order of their registration.
        self._watchers: dict[Watcher, None] = {}

    def record(self, change: Change) -> None:
        """Apply one change to objects, history and watchers."""
        key = change.new.key
        if change.removed:
            del self.objects[key]
        else:
            self.objects[key] = change.new
        self._remember(change)
        for watcher in list(self._watchers):
            watcher.offer(change)

    def _remember(self, change: Change) -> None:
        self._history.append(change)
        self._history_bytes += len(change.new.body)
        while len(self._history) > HISTORY_CHANGES or self._history_bytes > HISTORY_BYTES:
            oldest = self._history.popleft()
            self._history_bytes -= len(oldest.new.body)
            self.floor = oldest.revision

    def changes_after(self, revision: int) -> list[Change]:
        """The history after `revision`, oldest first. `revision` must not be below `floor`."""
        found = []
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    def ordered(self) -> list[Stored]:
        """All objects in the order of lists."""
        return [self.objects[key] for key in sorted(self.objects, key=str)]

    def watch(self, scope: Scope) -> Watcher:
        """Register a watcher; `unwatch` removes it."""
        watcher = Watcher(scope)
        self._watchers[watcher] = None
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)


class ObjectStore:
    """The collections, by qualified resource as `podprobemarkers.apps.kruise.io`, and their common revision."""

    def __init__(self) -> None:
        self.revision = 1
        self.collections: Final = defaultdict[str, Collection](Collection)

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision
