"""Watches: initial events, changes, bookmarks and timeouts.

Source: apiserver pkg/storage/cacher/{cacher,cache_watcher,watch_cache}.go, pkg/endpoints/handlers/watch.go.
Differs: bookmarks have a fixed interval.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from random import uniform
from typing import Final

import msgspec

from kruise_probe_playground.apiserver.failures import Failure, gone, too_large_version
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.listing import check_options
from kruise_probe_playground.apiserver.presenting import Presenter
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import ListQuery
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Change, Scope, Stored

BOOKMARK_INTERVAL_SECONDS: Final = 30.0
FRAME_BYTES: Final = 256 << 10
"""Events are sent together up to this size."""

_MINIMUM_TIMEOUT_SECONDS: Final = 1800.0
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Watch:
    """One watch. The constructor registers it with the collection; `close` removes it.

    The constructor also collects the initial events, so no change is lost between them and the watcher's changes.
    """

    def __init__(
        self, registry: Registry, kind: Kind, scope: Scope, query: ListQuery, presenter: Presenter
    ) -> None:
        check_options(query, watch=True)
        current = registry.store.revision
        self._registry = registry
        self._kind = kind
        self._query = query
        self._presenter = presenter
        self._collection = registry.collection(kind)
        self._started_at = max(current, query.revision or 0)
        self._failure: Failure | None = None
        self._initial: list[Stored] = []
        self._missed: list[Change] = []
        if query.send_initial_events and (query.revision or 0) > current:
            self._failure = too_large_version(query.revision or 0, current)
        elif self._wants_initial:
            self._initial = [each for each in self._collection.ordered() if scope.matches(each)]
        elif query.revision and query.revision < self._collection.floor:
            floor = self._collection.floor
            self._failure = gone(f"too old resource version: {query.revision} ({floor})")
        elif query.revision:
            self._missed = self._collection.changes_after(query.revision)
        self.watcher: Final = self._collection.watch(scope)

    @property
    def _wants_initial(self) -> bool:
        wanted = self._query.send_initial_events
        return not self._query.revision if wanted is None else wanted

    def close(self) -> None:
        self._collection.unwatch(self.watcher)

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield frames until the timeout, or until the watcher is closed."""
        if self._failure is not None:
            yield _frame("ERROR", msgspec.json.encode(self._failure.status))
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (
            self._query.timeout_seconds
            or uniform(_MINIMUM_TIMEOUT_SECONDS, 2 * _MINIMUM_TIMEOUT_SECONDS)
        )
        bookmark_deadline = loop.time() + BOOKMARK_INTERVAL_SECONDS
        for frame in joined(self._first_events()):
            yield frame
        while not self.watcher.closed:
            idle = False
            try:
                async with asyncio.timeout_at(min(deadline, bookmark_deadline)):
                    await self.watcher.wait()
            except TimeoutError:
                idle = True
                bookmark_deadline = loop.time() + BOOKMARK_INTERVAL_SECONDS
            # Read together, so that no bookmark precedes a change of its revision.
            changes, revision = self.watcher.take(), self._registry.store.revision
            for frame in joined(self._later_events(changes)):
                yield frame
            if idle and self._query.bookmarks:
                yield self._bookmark(revision)
            if loop.time() >= deadline:
                return

    def _first_events(self) -> Iterable[bytes]:
        while self._initial:
            batch, self._initial = self._initial[:500], self._initial[500:]
            for stored in batch:
                yield _frame("ADDED", self._presenter.one(stored))
        if self._query.send_initial_events and self._query.bookmarks:
            yield self._bookmark(self._started_at, end_of_initial=True)
        missed, self._missed = self._missed, []
        for change in missed:
            yield from self._event(change)

    def _later_events(self, changes: Iterable[Change]) -> Iterable[bytes]:
        for change in changes:
            if change.revision > self._started_at:
                yield from self._event(change)

    def _event(self, change: Change) -> Iterable[bytes]:
        scope = self.watcher.scope
        matched = change.old is not None and scope.matches(change.old)
        matches = not change.removed and scope.matches(change.new)
        if change.removed:
            if matched or scope.matches(change.new):
                yield _frame("DELETED", self._presenter.one(change.new))
        elif matches:
            yield _frame("MODIFIED" if matched else "ADDED", self._presenter.one(change.new))
        elif matched and change.old is not None:
            # The last matching state, with the revision of the change that ended the match.
            last = self._kind.encode(self._kind.decode(change.old), change.revision)
            yield _frame("DELETED", self._presenter.one(last))

    def _bookmark(self, revision: int, *, end_of_initial: bool = False) -> bytes:
        metadata: Json = {"resourceVersion": str(revision)}
        if end_of_initial:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        bare = {
            "kind": self._kind.kind,
            "apiVersion": self._kind.api_version,
            **self._kind.blank,
            "metadata": metadata,
        }
        return _frame("BOOKMARK", self._presenter.bookmark(bare))


def _frame(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


def joined(events: Iterable[bytes]) -> Iterable[bytes]:
    """Join small frames into larger ones."""
    waiting: list[bytes] = []
    size = 0
    for each in events:
        waiting.append(each)
        size += len(each)
        if size >= FRAME_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
