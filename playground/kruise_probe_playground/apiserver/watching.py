"""Lists and watches: selection, initial events, changes, bookmarks and timeouts.

Source: apiserver pkg/storage/cacher/{cacher,cache_watcher,watch_cache}.go, pkg/endpoints/handlers/watch.go,
pkg/apis/meta/internalversion/validation.
Differs: a list is always whole: it ignores `limit`, as the API allows; no resourceVersionMatch=Exact; bookmarks have a
fixed interval.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from random import uniform
from typing import Final

import msgspec

from kruise_probe.api.times import loop_time
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.presenting import Presenter
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import ListOptions
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.selecting import parse_fields, parse_labels
from kruise_probe_playground.apiserver.store import Change, Scope, Stored


def scope_of(kind: Kind, namespace: str, query: ListOptions) -> Scope:
    fields = parse_fields(query.field_selector, kind.known_fields)
    return Scope(namespace, parse_labels(query.label_selector), fields)


def list_objects(
    registry: Registry,
    kind: Kind,
    scope: Scope,
    query: ListOptions,
) -> list[Stored]:
    """All selected objects, in order."""
    if query.continue_token:
        raise failures.bad_request(
            "this playground's API server sends whole lists; leave out continue"
        )
    return [stored for stored in registry.collection(kind).ordered() if scope.matches(stored)]


BOOKMARK_INTERVAL_SECONDS: Final = 30.0
_MINIMUM_TIMEOUT_SECONDS: Final = 1800.0
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Watch:
    """One watch. The constructor registers it with the collection; `close` removes it.

    The constructor also collects the initial events, so no change is lost between them and the watcher's changes.
    """

    def __init__(
        self, registry: Registry, kind: Kind, scope: Scope, query: ListOptions, presenter: Presenter
    ) -> None:
        current = registry.store.revision
        self._registry = registry
        self._kind = kind
        self._query = query
        self._presenter = presenter
        self._collection = registry.collection(kind)
        self._started_at = max(current, query.resource_version)
        self._failure: Failure | None = None
        self._initial: list[Stored] = []
        self._missed: list[Change] = []
        if self._wants_initial:
            self._initial = [
                stored for stored in self._collection.ordered() if scope.matches(stored)
            ]
        elif 0 < query.resource_version < self._collection.floor:
            floor = self._collection.floor
            self._failure = failures.gone(
                f"too old resource version: {query.resource_version} ({floor})"
            )
        elif query.resource_version:
            self._missed = self._collection.changes_after(query.resource_version)
        self.watcher: Final = self._collection.watch(scope)

    @property
    def _wants_initial(self) -> bool:
        wanted = self._query.send_initial_events
        return not self._query.resource_version if wanted is None else wanted

    def close(self) -> None:
        self._collection.unwatch(self.watcher)

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield frames until the timeout, or until the watcher is closed."""
        if self._failure is not None:
            yield _frame("ERROR", msgspec.json.encode(self._failure.status))
            return
        deadline = loop_time() + (
            self._query.timeout_seconds
            or uniform(_MINIMUM_TIMEOUT_SECONDS, 2 * _MINIMUM_TIMEOUT_SECONDS)
        )
        bookmark_deadline = loop_time() + BOOKMARK_INTERVAL_SECONDS
        if first := b"".join(self._first_events()):
            yield first
        while not self.watcher.closed:
            idle = False
            try:
                async with asyncio.timeout_at(min(deadline, bookmark_deadline)):
                    await self.watcher.wait()
            except TimeoutError:
                idle = True
                bookmark_deadline = loop_time() + BOOKMARK_INTERVAL_SECONDS
            # Read together, so that no bookmark precedes a change of its revision.
            changes = self.watcher.take()
            revision = self._registry.store.revision
            if later := b"".join(self._later_events(changes)):
                yield later
            if idle and self._query.allow_watch_bookmarks:
                yield self._bookmark(revision)
            if loop_time() >= deadline:
                return

    def _first_events(self) -> Iterable[bytes]:
        for stored in self._initial:
            yield _frame("ADDED", self._presenter.one(stored))
        self._initial = []
        if self._query.send_initial_events and self._query.allow_watch_bookmarks:
            yield self._bookmark(self._started_at, end_of_initial=True)
        yield from filter(None, map(self._event, self._missed))
        self._missed = []

    def _later_events(self, changes: Iterable[Change]) -> Iterable[bytes]:
        later = (change for change in changes if change.revision > self._started_at)
        return filter(None, map(self._event, later))

    def _event(self, change: Change) -> bytes:
        """The frame of a change; empty if the object neither is nor was in the scope."""
        scope = self.watcher.scope
        old = change.old if change.old is not None and scope.matches(change.old) else None
        matches = scope.matches(change.new)
        if not matches and old is None:
            return b""
        shown = change.new
        if not matches and old is not None and not change.removed:
            # The last matching state, with the revision of the change that ended the match.
            shown = self._kind.encode(self._kind.decode(old), change.revision)
        name = "DELETED" if change.removed or not matches else "MODIFIED" if old else "ADDED"
        return _frame(name, self._presenter.one(shown))

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
        return _frame("BOOKMARK", msgspec.json.encode(bare))


def _frame(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"
