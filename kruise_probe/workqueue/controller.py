"""Controller: workers that reconcile the keys of a queue. Only the event recorder, which has one worker, calls get and done itself.

The contract of a reconcile: it gets a key, reads the current state from caches, and acts on it. It may
be called at any time, any number of times, but never twice at once for one key. It returns a `Result`
(None: do not requeue) or raises. A key whose reconcile raised is requeued with exponential backoff, or
after the server's Retry-After if that is longer.

Source: controller-runtime pkg/controller, pkg/internal/controller/controller.go (reconcileHandler), pkg/reconcile.
Differs: a controller does not own its sources. The manager starts and syncs the informers first. Their
event handlers fill the queue, which may be closed until the manager leads. Workers yield to the event loop between keys, all of them
together after a slice. There is no TerminalError.
"""

import asyncio
import itertools
import math
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import structlog
from structlog.contextvars import bind_contextvars

from kruise_probe.api.errors import KubeError, retry_after_seconds
from kruise_probe.api.times import loop_time
from kruise_probe.workqueue.metrics import ReconcileMetrics, publish
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.steps import measured
from kruise_probe.workqueue.turns import Priority

K = TypeVar("K", bound=Hashable)

RECONCILE_TIMEOUT_SECONDS: Final = 30.0

SLOW_SECONDS: Final = 5.0
SLOW_LOG_SECONDS: Final = 60.0
"""A reconcile that took longer than `SLOW_SECONDS` is logged, one in this time: keys of its group may wait for it."""

SLICE_SECONDS: Final = 0.005
"""In a pass of the event loop, all workers of a controller begin reconciles for this time only. Timers, watches and
probes of the same process then stay on time while thousands of keys are processed."""

WORKERS_PER_SLICE: Final = 8
"""Workers that are woken for a slice. One could not use it up if its reconcile waits, and others of this process need the pass too."""

EXPECTED_ERRORS: Final = (KubeError, OSError, TimeoutError)
"""Errors that a retry can fix. Any other exception is a bug, like a panic in Go, and is logged with its traceback."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)
_run_id = secrets.token_hex(4)
_reconcile_numbers = itertools.count(1)


class Result(NamedTuple):
    """Result of a reconcile without an error: requeue the key after this delay; None does not requeue it.

    `finished` is False if the reconcile only found that it must wait. The key then keeps its failures: if an action is
    refused each time, its backoff grows although the reconciles in between did not fail.
    """

    requeue_after_seconds: float | None = None
    finished: bool = True


Reconcile = Callable[[K], Awaitable[Result | None]]


class Controller(Generic[K]):
    """Reconciles the keys of `queue`, whose name it has, `workers` at a time.

    Cancelling `run` cancels the reconciles in flight. Their keys are marked done and not requeued: reconciles are
    level-triggered, so the next process derives the remaining work from the objects.
    """

    def __init__(
        self,
        queue: WorkQueue[K],
        reconcile: Reconcile[K],
        *,
        workers: int,
    ) -> None:
        self.name = queue.name
        self._queue = queue
        self._reconcile = reconcile
        self._workers = workers
        self._log_slow_after = -math.inf
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        """Workers that wait for a slice."""
        self._slice_ends_at = -math.inf
        self._metrics = ReconcileMetrics(self.name)
        queue.share(workers)
        publish(queue)

    async def run(self) -> None:
        """Run until cancelled."""
        _log.info(
            "starting workers",
            controller=self.name,
            workers=self._workers,
        )
        self._metrics.max_concurrent.set(self._workers)
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name} worker {number}")

    async def _work(self) -> None:
        bind_contextvars(controller=self.name)  # each task has its own context
        while True:
            key, priority = await self._queue.get()
            started_at = loop_time()
            try:
                while started_at >= self._slice_ends_at:
                    await self._next_slice()
                    started_at = loop_time()
                await self._handle(key, priority, started_at)
            finally:
                self._queue.done(key)
                self._metrics.seconds.observe(loop_time() - started_at)

    async def _next_slice(self) -> None:
        """Wait for another pass of the event loop, in turns with the other workers."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._begin_slice)
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _begin_slice(self) -> None:
        """Begin the slice of this pass, for workers that were woken in the pass before, and wake those of the next one."""
        self._slice_ends_at = loop_time() + SLICE_SECONDS
        if not self._waiting:
            return
        asyncio.get_running_loop().call_soon(self._begin_slice)
        for _ in range(min(WORKERS_PER_SLICE, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _handle(self, key: K, priority: Priority, started_at: float) -> None:
        bind_contextvars(
            request=str(key),
            reconcile_id=f"{_run_id}-{next(_reconcile_numbers)}",
        )
        deadline = asyncio.timeout(RECONCILE_TIMEOUT_SECONDS)
        try:
            async with deadline:
                result = await measured(self._reconcile(key))
        except Exception as error:  # noqa: BLE001 - one bad key must not stop the others
            if deadline.expired():
                self._metrics.timeouts.inc()
            self._queue.add_rate_limited(key, priority, at_least_seconds=retry_after_seconds(error))
            self._metrics.errors.inc()
            self._metrics.error.inc()
            self._log_retry(key, error, timed_out=deadline.expired())
        else:
            self._log_if_slow(started_at)
            self._handle_success(key, priority, result)

    def _handle_success(
        self,
        key: K,
        priority: Priority,
        result: Result | None,
    ) -> None:
        if result is None or result.finished:
            self._queue.forget(key)
        if result is None or result.requeue_after_seconds is None:
            self._metrics.success.inc()
            return
        self._queue.add_after(key, result.requeue_after_seconds, priority)
        self._metrics.requeue_after.inc()

    def _log_if_slow(self, started_at: float) -> None:
        now = loop_time()
        if now - started_at < SLOW_SECONDS or now < self._log_slow_after:
            return
        self._log_slow_after = now + SLOW_LOG_SECONDS
        _log.warning(
            "reconcile was slow: an admission webhook or the API server held its requests",
            seconds=round(now - started_at, 1),
            keys_waiting=len(self._queue),
        )

    def _log_retry(self, key: K, error: Exception, *, timed_out: bool) -> None:
        failures = self._queue.num_requeues(key)
        if timed_out:
            _log.warning(
                "reconcile timed out",
                timeout_seconds=RECONCILE_TIMEOUT_SECONDS,
                failures=failures,
            )
        elif isinstance(error, EXPECTED_ERRORS):
            _log.warning(
                "reconcile failed",
                error=str(error) or repr(error),
                failures=failures,
            )
        else:
            self._metrics.panics.inc()
            _log.exception("reconcile failed", failures=failures)
