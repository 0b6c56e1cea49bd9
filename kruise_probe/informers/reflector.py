"""Reflector: keeps a replica current with list and watch.

A list is streamed: one request, without buffering. If the server refuses it, or the attempt fails, the reflector
lists in pages of 500 instead. It then watches from the last version seen. It lists
again when that version has expired, or when a watch ended after 70 s without one event (`client/watch.py`). It retries after every error and every end of a watch.

Source: client-go tools/cache/reflector.go; KEP-3157 (streaming lists), KEP-365 (paginated lists).
Differs: fallback lists read the most recent version, so the store never goes back in time. A streaming
list has 20 s. A watch error causes no list while its version is still valid. The backoff is measured
from the start of one attempt to the start of the next, and only an attempt that lasted a minute resets it. So a load
balancer that closes each watch after 50 s causes no gap, and a server that closes each watch at once gets five attempts
in ten seconds.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Generic, Protocol, TypeVar

import structlog
from prometheus_client import Counter

from kruise_probe.api.errors import (
    ApiError,
    Expired,
    Forbidden,
    KubeError,
    NoResponse,
    ResponseTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
    retry_after_seconds,
)
from kruise_probe.api.meta import EventType, KubeObject, ListPage, WatchEvent
from kruise_probe.api.times import loop_time
from kruise_probe.informers.attempts import Backoff, Outage
from kruise_probe.informers.replica import Replica, is_older

T = TypeVar("T", bound=KubeObject)

PAGE_SIZE: Final = 500
SHRINK_PAGES_BY: Final = 8
"""Divides the page size after a page that was too large: 500, 62, 7, 1."""

WATCH_SECONDS: Final = (300, 600)
"""Range of the random watch timeout, which spreads watches over the API servers."""

WATCH_GRACE_SECONDS: Final = 30.0
"""A watch that exceeds its timeout by this long is cancelled, even if its connection seems healthy."""

STREAM_SECONDS: Final = 20.0
"""Limit of a streaming list. A proxy may hold streams back, and a server may not know where the initial events end."""

STEP_SECONDS: Final = 0.01
"""How long objects are handled before other tasks run."""
GAP_SECONDS: Final = 0.0005
"""After a longer time without an object, other tasks have run."""

SERVER_ERRORS: Final = 3
"""After this many 5xx responses without an event in between, the version is dropped.
After an etcd restore, or behind a server that lags permanently, "too large resource version" never ends.
Some servers send it only after accepting the watch."""

_UNRELATED_TO_VERSION = (Unauthorized, Forbidden, TooManyRequests, ServerError)
"""Errors that do not show whether the requested version is still valid."""

_lists_total: Final = Counter(
    "kruise_probe_informer_lists_total", "Lists begun, streamed or in pages", ["informer"]
)
_watches_total: Final = Counter(
    "kruise_probe_informer_watches_total",
    "Watch requests sent, including those of streaming lists",
    ["informer"],
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ListerWatcher(Protocol[T]):
    """The client interface of a reflector, bound to one kind, namespace and selectors.

    The client sets the deadlines of requests and of idle streams, and raises `api.errors`.
    """

    async def list_page(
        self,
        *,
        limit: int,
        continue_token: str,
        resource_version: str,
    ) -> ListPage[T]:
        """Return one page; `limit` 0 returns all objects at once."""

    def watch(
        self,
        *,
        resource_version: str,
        timeout_seconds: int,
        send_initial_events: bool,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent[T]]]:
        """Open a watch with bookmarks. Entering returns once the server has accepted the watch."""


class _StreamRefused(Exception):
    """The server did not accept the request for a streaming list: it does not know them."""


class _StreamUnusable(Exception):
    """The streaming list ended or timed out before it was complete."""


class _SilentWatch(NoResponse):
    """The server accepted a watch, or only the connection, and sent no event.

    A server sends a bookmark each minute. A restored etcd sends nothing to a watch from its future, until its versions
    arrive there; what happened before then is only in a list. Some proxies hold back the start of a stream.
    """


class Reflector(Generic[T]):
    """Keeps `replica` current. `run` ends only by cancellation, and does not clear the replica.

    Attributes:
        watches: number of watches opened. The server ends all watches of a kind when its CRD is replaced.
        last_error: error of the last attempt; empty once the server responds again.
    """

    def __init__(
        self,
        lister_watcher: ListerWatcher[T],
        replica: Replica[T],
        *,
        name: str,
    ) -> None:
        self.watches = 0
        self.last_error = ""
        self._source = lister_watcher
        self._replica = replica
        self._log = _log.bind(informer=name)
        self._lists_total = _lists_total.labels(name)
        self._watches_total = _watches_total.labels(name)
        self._backoff = Backoff()
        self._handled_at = 0.0
        self._busy_seconds = 0.0
        self._resource_version = ""
        self._server_errors = 0
        self._streams = True
        """Whether the next list is streamed."""
        self._events = 0
        self._listed_at = 0.0
        self._active_at: float | None = None
        self._outage = Outage()

    def seconds_since_activity(self) -> float:
        """Return the seconds since the server last sent data, or since `run` began; 0.0 before that."""
        if self._active_at is None:
            return 0.0
        return loop_time() - self._active_at

    def seconds_since_outage(self) -> float:
        """Return the seconds since the server responded after an outage; 0.0 in an outage, infinite if there was none."""
        return self._outage.seconds_since()

    async def run(self) -> None:
        self._active_at = loop_time()
        while True:
            started_at = loop_time()
            version = self._resource_version
            self._outage.begin_attempt()
            error: Exception | None = None
            try:
                await self._list_and_watch()
            except Exception as caught:  # noqa: BLE001 - a reflector never ends; it logs the error and retries
                error = caught
            self._outage.end_attempt(error)
            if self._is_version_invalid(error):
                self._resource_version = ""
            self._streams = self._may_stream_after(error, had_version=bool(version))
            if version and not self._resource_version:
                # The server responds, but the version has expired. The new list need not wait for a backoff
                # that an outage caused. It only keeps its interval to the last list.
                started_at = min(started_at, self._listed_at)
            lasted_seconds = loop_time() - started_at
            backoff = self._backoff.delay_after(lasted_seconds)
            delay_seconds = max(backoff, retry_after_seconds(error))
            self._log_end(error, retry_seconds=round(delay_seconds, 3))
            await asyncio.sleep(delay_seconds)

    async def _list_and_watch(self) -> None:
        """List if needed, and watch until the watch ends."""
        if not self._resource_version and not self._streams:
            await self._list_by_pages()
        try:
            await self._watch()
        except _StreamRefused as refusal:
            self._log.info("streaming lists refused, listing in pages", reason=str(refusal))
            await self._list_by_pages()
            await self._watch()

    def _is_version_invalid(self, error: Exception | None) -> bool:
        """Whether the end of an attempt shows that the resource version is no longer valid."""
        if isinstance(error, ServerError):
            self._server_errors += 1
            return self._server_errors >= SERVER_ERRORS
        if isinstance(error, ApiError):
            return not isinstance(error, _UNRELATED_TO_VERSION)
        return isinstance(error, _SilentWatch)

    def _may_stream_after(self, error: Exception | None, *, had_version: bool) -> bool:
        """Whether the next list is streamed: not if this attempt had to list and failed, nor if streams may be the cause."""
        if error is None:
            return True
        return had_version and not isinstance(error, _SilentWatch | ServerError)

    def _log_end(self, error: Exception | None, *, retry_seconds: float) -> None:
        log = self._log
        if error is None:
            log.debug("watch ended", retry_seconds=retry_seconds)
            return
        self.last_error = str(error) or repr(error)
        if isinstance(error, Expired | _StreamUnusable):
            log.info("relisting", reason=self.last_error, retry_seconds=retry_seconds)
        elif isinstance(error, KubeError | OSError | TimeoutError):
            log.warning("watch failed", error=self.last_error, retry_seconds=retry_seconds)
        else:
            log.error("reflector failed", exc_info=error, retry_seconds=retry_seconds)

    def _record_event(self) -> None:
        self._events += 1
        self._record_activity()

    def _record_activity(self) -> None:
        self._active_at = loop_time()
        self.last_error = ""
        self._outage.record_response()

    async def _list_by_pages(self) -> None:
        limit = PAGE_SIZE
        while True:
            try:
                await self._list(limit=limit)
            except Expired:
                # The continue token expired between two pages. List all at once, so that it cannot expire again.
                await self._list(limit=0)
            except ResponseTooLarge:
                if limit == 1:
                    raise
                limit = max(limit // SHRINK_PAGES_BY, 1)
                continue
            return

    async def _list(self, *, limit: int) -> None:
        self._lists_total.inc()
        self._replica.begin_list()
        continue_token = ""
        while True:
            page = await self._source.list_page(
                limit=limit, continue_token=continue_token, resource_version=""
            )
            self._record_activity()
            for obj in page.items:
                began_at = loop_time()
                self._replica.listed(obj)
                await self._pause_after(began_at)
            for item in page.undecodable:
                self._replica.listed_undecodable(item)
            continue_token = page.continue_token
            if not continue_token:
                self._finish_list(page.resource_version)
                return

    def _finish_list(self, resource_version: str) -> None:
        self._replica.finish_list()
        self._resource_version = resource_version or "0"
        self._server_errors = 0
        self._listed_at = loop_time()

    async def _watch(self) -> None:
        """Apply changes from the last version on until the server ends the watch; without a version, list first.

        Raises:
            _StreamRefused: the server does not know streaming lists.
            _SilentWatch: the server sent no event.
        """
        events_before = self._events
        try:
            async with AsyncExitStack() as stack:
                events = await self._open_watch(stack)
                self._record_activity()
                if not self._resource_version:
                    await self._take_initial_events(events)
                async for event in events:
                    self._record_event()
                    self._server_errors = 0
                    began_at = loop_time()
                    self._replica.apply(event)
                    await self._pause_after(began_at)
                    version = event.resource_version
                    if version and not is_older(version, self._resource_version):
                        self._resource_version = version
        except NoResponse as error:
            if self._events == events_before:
                raise _SilentWatch(str(error)) from error
            raise

    async def _open_watch(self, stack: AsyncExitStack) -> AsyncIterator[WatchEvent[T]]:
        timeout_seconds = random.randint(*WATCH_SECONDS)
        streamed = not self._resource_version
        self._watches_total.inc()
        self.watches += 1
        watch = self._source.watch(
            resource_version=self._resource_version,
            timeout_seconds=timeout_seconds,
            send_initial_events=streamed,
        )
        limit = asyncio.timeout(timeout_seconds + WATCH_GRACE_SECONDS)
        await stack.enter_async_context(limit)
        try:
            return await stack.enter_async_context(watch)
        except ApiError as error:
            # 404: the CRD is not installed yet.
            if streamed and not isinstance(error, _UNRELATED_TO_VERSION) and error.code != 404:
                raise _StreamRefused(str(error)) from error
            raise

    async def _pause_after(self, began_at: float) -> None:
        """After an object whose handlers began at this loop time: let other tasks run, if those of its step took long.

        A page, or the buffer of a connection, holds hundreds of objects.
        """
        now = loop_time()
        if began_at - self._handled_at > GAP_SECONDS:
            self._busy_seconds = 0.0
        self._handled_at = now
        self._busy_seconds += now - began_at
        if self._busy_seconds >= STEP_SECONDS:
            self._busy_seconds = 0.0
            await asyncio.sleep(0)

    async def _take_initial_events(self, events: AsyncIterator[WatchEvent[T]]) -> None:
        """Apply a streaming list up to the bookmark that ends it.

        Raises:
            _StreamUnusable: the stream ended or timed out before that bookmark.
        """
        replica = self._replica
        self._server_errors = 0
        self._lists_total.inc()
        replica.begin_list()
        limit = asyncio.timeout(STREAM_SECONDS)
        try:
            async with limit:
                async for event in events:
                    began_at = loop_time()
                    self._record_event()
                    if event.initial_events_end:
                        self._finish_list(event.resource_version)
                        return
                    # Initial events are unordered; changes may come between them.
                    if event.type is not EventType.ADDED:
                        replica.apply(event)
                    elif event.object is not None:
                        replica.listed(event.object)
                    elif event.undecodable is not None:
                        replica.listed_undecodable(event.undecodable)
                    await self._pause_after(began_at)
        except TimeoutError:
            if not limit.expired():
                raise
            raise _StreamUnusable("the streaming list did not complete in time") from None
        raise _StreamUnusable("the streaming list ended before it was complete")
