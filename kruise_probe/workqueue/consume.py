"""The worker loop of a queue: get, reconcile, forget or requeue, done. No other module implements it.

The contract of a reconcile: it gets a key, reads the current state from caches, and acts on it. It may
be called at any time, any number of times, but never twice at once for one key. It returns a `Result`
(None: do not requeue) or raises. A key whose reconcile raised is requeued with exponential backoff, or
after the server's Retry-After if that is longer. `TerminalError` is not retried.

Source: controller-runtime pkg/internal/controller/controller.go (reconcileHandler), pkg/reconcile.
Differs: a terminal error also forgets the key's failures; workers yield to the event loop between keys.
"""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import structlog
from structlog.contextvars import bind_contextvars

from kruise_probe.api.errors import KubeError, retry_after_seconds
from kruise_probe.workqueue.metrics import ReconcileMetrics
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import ShutDown
from kruise_probe.workqueue.rate_limiting import WorkQueue

K = TypeVar("K", bound=Hashable)

RECONCILE_TIMEOUT_SECONDS: Final = 30.0

SLICE_SECONDS: Final = 0.005
"""A worker whose reconciles never wait yields to the event loop after this time. Timers, watches and
probes of the same process then stay on time while thousands of keys are processed."""

FORESEEN: Final = (KubeError, OSError, TimeoutError)
"""Expected errors, which a retry can fix. Any other exception is a bug, like a panic in Go, and is logged
with its traceback."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)
_run_id = secrets.token_hex(4)
_reconcile_numbers = itertools.count(1)


class Result(NamedTuple):
    """Result of a successful reconcile.

    Attributes:
        requeue_after_seconds: requeue the key after this delay; None does not requeue it.
        priority: priority of the requeued key; None keeps its priority.
    """

    requeue_after_seconds: float | None = None
    priority: Priority | None = None


class TerminalError(Exception):
    """A failure that a retry cannot fix; the key is not requeued until its next change."""


Reconcile = Callable[[K], Awaitable[Result | None]]


async def run_workers(
    queue: WorkQueue[K],
    reconcile: Reconcile[K],
    *,
    name: str,
    workers: int,
    timeout_seconds: float = RECONCILE_TIMEOUT_SECONDS,
) -> None:
    """Process `queue` with `workers` tasks until it is shut down and empty.

    Cancelling this cancels the reconciles in flight. Their keys are marked done and not requeued.
    """
    consumer = _Consumer(queue, reconcile, ReconcileMetrics(name, workers=workers), timeout_seconds)
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(consumer.work(name), name=f"{name} worker {number}")


class _Consumer(Generic[K]):
    def __init__(
        self,
        queue: WorkQueue[K],
        reconcile: Reconcile[K],
        metrics: ReconcileMetrics,
        timeout_seconds: float,
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds

    async def work(self, controller: str) -> None:
        """Run one worker until the queue is shut down and empty."""
        bind_contextvars(controller=controller)  # each task has its own context
        time = asyncio.get_running_loop().time
        slice_ends_at = time() + SLICE_SECONDS
        while True:
            try:
                key, priority = await self._queue.get_with_priority()
            except ShutDown:
                return
            self._metrics.active_workers.inc()
            started_at = time()
            try:
                await self._handle(key, priority)
            finally:
                self._queue.done(key)
                self._metrics.active_workers.dec()
                self._metrics.seconds.observe(time() - started_at)
            if time() >= slice_ends_at:
                await asyncio.sleep(0)
                slice_ends_at = time() + SLICE_SECONDS

    async def _handle(self, key: K, priority: Priority) -> None:
        bind_contextvars(request=str(key), reconcile_id=f"{_run_id}-{next(_reconcile_numbers)}")
        deadline = asyncio.timeout(self._timeout_seconds)
        try:
            async with deadline:
                result = await self._reconcile(key)
        except TerminalError as error:
            self._queue.forget(key)
            self._metrics.terminal_errors.inc()
            self._count_failure()
            _log.error("reconcile failed, not tried again", error=str(error))
        except Exception as error:  # noqa: BLE001 - one bad key must not stop the others
            if deadline.expired():
                self._metrics.timeouts.inc()
            self._queue.add_rate_limited(key, priority, at_least_seconds=retry_after_seconds(error))
            self._count_failure()
            self._log_retry(key, error, timed_out=deadline.expired())
        else:
            self._handle_success(key, priority, result)

    def _handle_success(self, key: K, priority: Priority, result: Result | None) -> None:
        self._queue.forget(key)
        if result is None or result.requeue_after_seconds is None:
            self._metrics.success.inc()
            return
        next_priority = priority if result.priority is None else result.priority
        self._queue.add_after(key, result.requeue_after_seconds, next_priority)
        self._metrics.requeue_after.inc()

    def _count_failure(self) -> None:
        self._metrics.errors.inc()
        self._metrics.error.inc()

    def _log_retry(self, key: K, error: Exception, *, timed_out: bool) -> None:
        failures = self._queue.num_requeues(key)
        if timed_out:
            _log.warning(
                "reconcile cut off at its deadline",
                timeout_seconds=self._timeout_seconds,
                failures=failures,
            )
        elif isinstance(error, FORESEEN):
            _log.warning("reconcile failed", error=str(error) or repr(error), failures=failures)
        else:
            self._metrics.panics.inc()
            _log.exception("reconcile failed", failures=failures)
