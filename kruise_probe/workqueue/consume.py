"""The protocol of a queue's consumer: get, reconcile, forget or requeue, done. It stands here only.

The contract of a reconcile: it gets a key, reads what is true now from caches, and makes it so. It may
be called at any time, any number of times, never twice at once for one key. It returns a `Result`
(None is "done"), or raises: then it is tried again after a growing delay, or after the one that the API
server asked for if that is longer, unless it raised `TerminalError`.

Source: controller-runtime pkg/internal/controller/controller.go (reconcileHandler), pkg/reconcile.
Differs: a terminal error also forgets the key's failures; workers hand the loop on between keys.
"""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import structlog
from structlog.contextvars import bind_contextvars

from kruise_probe.api.errors import KubeError, wish_seconds
from kruise_probe.workqueue.metrics import ReconcileMetrics
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import ShutDown
from kruise_probe.workqueue.rate_limiting import WorkQueue

K = TypeVar("K", bound=Hashable)

RECONCILE_TIMEOUT_SECONDS: Final = 30.0

SLICE_SECONDS: Final = 0.005
"""A worker whose reconciles never wait hands the loop on after this time: timers, watches and probes of
the same process keep their beat while thousands of keys are worked off."""

FORESEEN: Final = (KubeError, OSError, TimeoutError)
"""What fails without anyone's mistake and heals by trying again. Any other exception is a defect, Go's
panic: it is logged with its traceback."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)
_run_id = secrets.token_hex(4)
_reconcile_numbers = itertools.count(1)


class Result(NamedTuple):
    """What a reconcile that did not fail wants next.

    Attributes:
        requeue_after_seconds: look again then, whatever happens; None for not before something changes.
        priority: of that later look; None for the one that the key had.
    """

    requeue_after_seconds: float | None = None
    priority: Priority | None = None


class TerminalError(Exception):
    """A failure that trying again cannot heal; the key waits for its next change."""


Reconcile = Callable[[K], Awaitable[Result | None]]


async def run_workers(
    queue: WorkQueue[K],
    reconcile: Reconcile[K],
    *,
    name: str,
    workers: int,
    timeout_seconds: float = RECONCILE_TIMEOUT_SECONDS,
) -> None:
    """Works `queue` off with `workers` tasks until it is shut down and empty.

    Cancelling it cancels the reconciles in process; their keys are done, and not queued again.
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
        """One worker: key after key."""
        bind_contextvars(controller=controller)  # of this task's own context
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
            self._failed()
            _log.error("reconcile failed, not tried again", error=str(error))
        except Exception as error:  # noqa: BLE001 - one bad key must not stop the others
            if deadline.expired():
                self._metrics.timeouts.inc()
            self._queue.add_rate_limited(key, priority, at_least_seconds=wish_seconds(error))
            self._failed()
            self._log_retry(key, error, timed_out=deadline.expired())
        else:
            self._succeeded(key, priority, result)

    def _succeeded(self, key: K, priority: Priority, result: Result | None) -> None:
        self._queue.forget(key)
        if result is None or result.requeue_after_seconds is None:
            self._metrics.success.inc()
            return
        again = priority if result.priority is None else result.priority
        self._queue.add_after(key, result.requeue_after_seconds, again)
        self._metrics.requeue_after.inc()

    def _failed(self) -> None:
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
