"""Controller: a work queue and the workers that reconcile its keys.

`mapping` fills the queue: its event handlers map changes to keys.

Source: controller-runtime pkg/controller/controller.go.
Differs: does not own its sources; the manager starts and syncs the informers first.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

import structlog

from kruise_probe.workqueue.consume import RECONCILE_TIMEOUT_SECONDS, Reconcile, run_workers
from kruise_probe.workqueue.rate_limiting import WorkQueue

K = TypeVar("K", bound=Hashable)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Controller(Generic[K]):
    """Reconciles the keys of `queue`, `workers` at a time, each within `timeout_seconds`.

    Cancelling `run` cancels the reconciles in flight. Reconciles are level-triggered, so the next process derives
    the remaining work from the objects.
    """

    def __init__(
        self,
        *,
        name: str,
        queue: WorkQueue[K],
        reconcile: Reconcile[K],
        workers: int,
        timeout_seconds: float = RECONCILE_TIMEOUT_SECONDS,
    ) -> None:
        self.name = name
        self._queue = queue
        self._reconcile = reconcile
        self._workers = workers
        self._timeout_seconds = timeout_seconds

    async def run(self) -> None:
        """Runs until cancelled, or until the queue is shut down and empty."""
        _log.info(
            "starting workers",
            controller=self.name,
            workers=self._workers,
            keys_waiting=len(self._queue),
        )
        await run_workers(
            self._queue,
            self._reconcile,
            name=self.name,
            workers=self._workers,
            timeout_seconds=self._timeout_seconds,
        )
