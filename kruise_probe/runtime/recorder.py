"""Event recorder. Repeated events on an object are aggregated into one Event with a count.

A series is identified by (object uid, type, reason, message), or by a probe instead of the message. Its first occurrence
creates an Event. Later ones update its count, lastTimestamp and message, which `kubectl describe` shows as `x2 over 47s`.
Failures and recoveries are separate series, so failures never use up the budget of a recovery.

Source: client-go tools/record/event.go, events_cache.go and util/eventutil.go (names).
Differs: series of one object, type and reason share a budget if the message identifies them. Occurrences over budget are
aggregated and written later; a message without a series is dropped. Namespaces share the writers and the memory, so a
namespace with more events than can be written loses its own, and none of another. An event that cannot be written does not
block others.
"""

import asyncio
import random
import sys
from collections.abc import Callable
from datetime import datetime
from itertools import count
from operator import attrgetter
from typing import NamedTuple

import msgspec
import structlog
from cachetools import LRUCache
from prometheus_client import Counter, Gauge

from kruise_probe.api.core import EVENTS
from kruise_probe.api.errors import (
    AlreadyExists,
    ApiError,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    retry_after_seconds,
)
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.times import CLOCK_SLACK_SECONDS, format_time
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.runtime.shared_cache import SharedCache
from kruise_probe.workqueue.queue import WorkQueue

EVENTS_DROPPED = Counter(
    "kruise_probe_events_dropped_total",
    "Occurrences of events that were never written, by reason.",
    ("reason",),
)
EVENTS_PENDING = Gauge("kruise_probe_events_pending", "Series of events that wait to be written.")

_log = structlog.get_logger(__name__)

BURST = 25
REFILL_SECONDS = 60.0
"""A series may be written `BURST` times at once, then once per minute. Occurrences in between are aggregated."""

MAX_NAME_LENGTH = 253

MAX_SERIES_BYTES = 4 << 20
"""Memory for series, shared by namespace. A series that is lost starts again with a new Event; one that was pending is dropped."""

SERIES_BYTES = 1024
"""Memory of a series without its message and what identifies it."""

MAX_BUDGETS = 4096
"""Size of the LRU caches of budgets and of logged failures, as client-go's cache of series."""

WRITERS = 8
"""Events that are written at once, one of each namespace: a webhook that holds those of one namespace delays no other."""

MAX_TRIES = 12
RETRY_SECONDS = 10.0


class ObjectReference(NamedTuple):
    """The object of an event: core/v1 ObjectReference."""

    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    kind: str = "Pod"

    @property
    def event_namespace(self) -> str:
        """The namespace of its events; `default` for an object without a namespace."""
        return self.namespace or "default"


class SeriesKey(NamedTuple):
    """Identity of a series. `series` is a probe or the message."""

    uid: str
    type: str
    reason: str
    series: str


class EventSeries(msgspec.Struct, eq=False):
    """Aggregated occurrences of one event.

    Attributes:
        created: whether the Event `name` exists on the server.
        pending: whether occurrences wait to be written, or are being written.
    """

    key: SeriesKey
    involved: ObjectReference
    name: str
    container: str
    first_at: datetime
    last_at: datetime
    budget: TokenBucket
    message: str = ""
    created: bool = False
    pending: bool = False
    count: int = 0
    tries: int = 0

    @property
    def size_bytes(self) -> int:
        return SERIES_BYTES + sys.getsizeof(self.message) + sys.getsizeof(self.key.series)

    def encode_event(self, component: str, host: str) -> bytes:
        """Encode the whole Event with its count. So a patch is idempotent, and an expired Event can be created again."""
        involved = {
            "apiVersion": self.involved.api_version,
            "kind": self.involved.kind,
            "namespace": self.involved.namespace,
            "name": self.involved.name,
            "uid": self.involved.uid,
        }
        if self.container:
            involved["fieldPath"] = f"spec.containers{{{self.container}}}"
        return EVENTS.encode(
            metadata={"name": self.name, "namespace": self.involved.event_namespace},
            involvedObject=involved,
            reason=self.key.reason,
            type=self.key.type,
            message=self.message,
            source={"component": component, "host": host},
            reportingComponent=component,
            reportingInstance=host,
            count=self.count,
            firstTimestamp=format_time(self.first_at),
            lastTimestamp=format_time(self.last_at),
        )


class EventRecorder:
    """Records events without blocking; `run` writes them, those of one namespace one after the other.

    Cancelling `run` drops pending events. Call `flush` before to wait for them.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        component: str,
        host: str,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._source = (component, host)
        self._now = now
        self._series: SharedCache[SeriesKey, EventSeries] = SharedCache(MAX_SERIES_BYTES)
        self._budgets: LRUCache[SeriesKey, TokenBucket] = LRUCache(MAX_BUDGETS)
        self._queue: WorkQueue[EventSeries] = WorkQueue(
            name="events", group_of=attrgetter("involved.event_namespace")
        )
        self._queue.share(WRITERS, most=1)
        self._order = count()
        self._idle = asyncio.Event()
        self._idle.set()
        self._logged: LRUCache[tuple[str, int], bool] = LRUCache(MAX_BUDGETS)

    def event(
        self,
        involved: ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        container: str = "",
        probe: str | None = None,
    ) -> None:
        """Record one occurrence. Never blocks.

        Args:
            involved: the object of the event; the Event is created in its namespace.
            type: `Normal` or `Warning`.
            reason: one CamelCase word.
            message: identifies the series, unless `probe` does; then it replaces the Event's previous message.
            container: container for `involvedObject.fieldPath`; may be empty.
            probe: probe of the series.
        """
        now = self._now()
        namespace = involved.event_namespace
        if probe is None:
            key = SeriesKey(involved.uid, type, reason, message)
            budget_of = key._replace(series="")
        else:
            key = SeriesKey(involved.uid, type, reason, probe)
            budget_of = key
        series = self._series.get(namespace, key)
        if series is None:
            budget = self._budget(budget_of)
            if budget.wait_seconds(_now()) > 0:
                EVENTS_DROPPED.labels("object_limit").inc()
                return
            name = event_name(involved.name, now, next(self._order))
            series = EventSeries(key, involved, name, container, now, now, budget)
        series.count += 1
        series.last_at = now
        series.message = message
        if not series.pending:
            series.pending = True
            EVENTS_PENDING.inc()
            self._queue.add(series)
            self._idle.clear()
        for lost in self._series.put(namespace, key, series, series.size_bytes):
            self._forget(lost)

    def _forget(self, series: EventSeries) -> None:
        """Drop what a series has to write. If it is being written, that continues."""
        self._queue.discard(series)
        if series.pending:
            EVENTS_DROPPED.labels("queue_full").inc()
            self._finish(series)

    @staticmethod
    def _finish(series: EventSeries) -> None:
        if series.pending:
            series.pending = False
            EVENTS_PENDING.dec()

    def _budget(self, of: SeriesKey) -> TokenBucket:
        """The budget of a series, or of all messages of one object, type and reason."""
        new = TokenBucket(burst=BURST, interval_seconds=REFILL_SECONDS)
        return self._budgets.setdefault(of, new)

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as writers:
            for number in range(WRITERS):
                writers.create_task(self._write_events(), name=f"event writer {number}")

    async def _write_events(self) -> None:
        queue = self._queue
        while True:
            series, _ = await queue.get()
            self._idle.clear()
            await self._write(series)
            queue.done(series)
            if not len(queue) and not queue.processing:
                self._idle.set()

    async def flush(self) -> None:
        """Wait until every ready series was tried once. Series that wait for a retry or budget are not included."""
        await self._idle.wait()

    async def _write(self, series: EventSeries) -> None:
        now = _now()
        wait = series.budget.wait_seconds(now)
        if wait > 0:
            self._queue.add_after(series, wait)
            return
        series.budget.take(now)
        written = series.count
        try:
            await self._send(series)
        except KubeError as error:
            if series.pending:
                self._handle_failure(series, error)
            return
        series.tries = 0
        if series.pending and series.count > written:
            self._queue.add(series)
        else:
            self._finish(series)

    async def _send(self, series: EventSeries) -> None:
        """Create or patch the Event. One that expired is created again; one that exists already is patched."""
        body = series.encode_event(*self._source)
        if series.created and await self._patch(series, body):
            return
        try:
            await self._client.create(EVENTS, body, namespace=series.involved.event_namespace)
        except AlreadyExists:
            await self._patch(series, body)
        series.created = True

    async def _patch(self, series: EventSeries, body: bytes) -> bool:
        key = NamespacedName(series.involved.event_namespace, series.name)
        try:
            await self._client.patch(EVENTS, key, body, patch_type=PatchType.MERGE)
        except NotFound:
            return False
        return True

    def _handle_failure(self, series: EventSeries, error: KubeError) -> None:
        """Retry transient errors. Drop other events, with one warning per namespace and status code."""
        transient = not isinstance(error, ApiError) or isinstance(
            error, ServerError | TooManyRequests
        )
        series.tries += 1
        if transient and series.tries < MAX_TRIES:
            wait = max(RETRY_SECONDS * random.uniform(0.5, 1.0), retry_after_seconds(error))
            self._queue.add_after(series, wait)
            return
        series.tries = 0
        self._finish(series)
        EVENTS_DROPPED.labels("no_answer" if transient else "refused").inc()
        failure = (series.involved.namespace, getattr(error, "code", 0))
        log_line = _log.warning
        if failure in self._logged or "being terminated" in str(error):
            log_line = _log.debug
        self._logged[failure] = True
        log_line(
            "event not written",
            object=f"{series.involved.namespace}/{series.involved.name}",
            error=str(error),
        )


def event_name(involved: str, at: datetime, order: int) -> str:
    """Return `<object>.<hex>`, unique in a process and at most `MAX_NAME_LENGTH` long."""
    suffix = f".{int(at.timestamp() * 1_000_000):x}{order & 0xFFFF:04x}"
    return involved[: MAX_NAME_LENGTH - len(suffix)].rstrip(".-") + suffix


def _now() -> float:
    """The time for budgets, within the tolerance of timers."""
    return asyncio.get_running_loop().time() + CLOCK_SLACK_SECONDS
