"""Keeps exactly one running worker for every probe that the NodePodProbe names.

Source: kubelet pkg/kubelet/prober/prober_manager.go; Kruise pkg/daemon/podprobe/pod_probe_controller.go (sync).
Differs: an edit changes the running worker. At start, workers get the results that the previous daemon published.
If the NodePodProbe is deleted and created again within `REPAIR_SECONDS`, workers get the results from before.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from kruise_probe.api.keys import ProbeKey
from kruise_probe.api.v1alpha1 import ContainerProbeState, NodePodProbe
from kruise_probe.daemon import metrics
from kruise_probe.daemon.diff import DesiredProbe, Recorded, desired_probes, recorded_in
from kruise_probe.daemon.metrics import ProbeSeries
from kruise_probe.daemon.reporter import Reporter
from kruise_probe.daemon.schedule import StartTime
from kruise_probe.daemon.worker import Worker, WorkerContext

CLOCK_CHECK_SECONDS: Final = 1.0
"""How often the wall clock is compared with the loop's."""

REPAIR_SECONDS: Final = 60.0
"""How long results are kept after the NodePodProbe is deleted."""


class Supervisor:
    """Owns the workers and the tasks of their probes.

    `apply` is synchronous and may be called once `run` runs. Cancelling `run` ends all probes and keeps the results,
    so that the last status write removes no state.

    Attributes:
        desired: every probe in the newest spec.
    """

    def __init__(self, context: WorkerContext, reporter: Reporter) -> None:
        self.desired: Mapping[ProbeKey, DesiredProbe] = {}
        self._context = context
        self._reporter = reporter
        self._log = structlog.get_logger()
        self._workers: dict[ProbeKey, Worker] = {}
        self._kept_results: dict[ProbeKey, ContainerProbeState] = {}
        self._keep_until = -math.inf
        self._group: asyncio.TaskGroup | None = None
        self._started_at: StartTime | None = None
        self._running = asyncio.Event()

    @property
    def series(self) -> Iterator[ProbeSeries]:
        """The metrics of every running probe."""
        return (worker.series for worker in self._workers.values())

    async def run(self) -> None:
        """Run the workers until cancelled."""
        async with asyncio.TaskGroup() as group:
            now = self._context.now().timestamp()
            self._started_at = StartTime(now, asyncio.get_running_loop().time())
            self._group = group
            self._running.set()
            try:
                await self._probe_after_suspends()
            finally:
                for worker in self._workers.values():
                    worker.halt()

    async def _probe_after_suspends(self) -> None:
        """Run probes at once after the node was suspended for more than their period: loop time stood still meanwhile."""
        offset = self._clock_offset()
        while True:
            await asyncio.sleep(CLOCK_CHECK_SECONDS)
            before, offset = offset, self._clock_offset()
            for worker in self._workers.values():
                if offset - before > worker.desired.probe.effective_period_seconds:
                    worker.probe_at_once()

    def _clock_offset(self) -> float:
        return self._context.now().timestamp() - asyncio.get_running_loop().time()

    async def wait_until_running(self) -> None:
        await self._running.wait()

    def apply(self, node_pod_probe: NodePodProbe | None, *, first: bool = False) -> None:
        """Add, edit and remove workers to match `node_pod_probe`; None (deleted) removes all and keeps their results.

        `first`: the object existed when this daemon started. Its status is read back, and its containers may have been
        probed before.
        """
        before = self.desired
        self.desired = desired_probes(node_pod_probe.spec if node_pod_probe else None)
        recorded = recorded_in(node_pod_probe.status) if first and node_pod_probe else {}
        self._keep_results(node_pod_probe)
        for key in [key for key in before if key not in self.desired]:
            self._remove(key)
        for key, desired in self.desired.items():
            if before.get(key) != desired:
                self._set_up(desired, recorded, first=first)

    def _keep_results(self, node_pod_probe: NodePodProbe | None) -> None:
        now = asyncio.get_running_loop().time()
        if node_pod_probe is None:
            self._kept_results = dict(self._reporter.results)
            self._keep_until = now + REPAIR_SECONDS
        elif now > self._keep_until:
            self._kept_results.clear()

    def _set_up(self, desired: DesiredProbe, recorded: Recorded, *, first: bool) -> None:
        """Add or edit a worker. One bad probe never stops another, so every exception is logged."""
        try:
            if worker := self._workers.get(desired.key):
                worker.edit(desired)
            else:
                self._add(desired, recorded, first=first)
        except Exception:  # noqa: BLE001 - one bad probe never stops another
            metrics.WORKER_ERRORS.inc()
            self._log.exception(
                "probe could not be set up",
                pod=str(desired.pod),
                container=desired.key.container,
                probe=str(desired.key.probe),
            )

    def _add(self, desired: DesiredProbe, recorded: Recorded, *, first: bool) -> None:
        if self._group is None or self._started_at is None:
            raise RuntimeError("the supervisor does not run yet")
        known = recorded.get((desired.key.pod_uid, desired.entry.name))
        worker = Worker(
            desired,
            self._context,
            self._reporter,
            daemon_start=self._started_at,
            spawn=self._group.create_task,
            recorded=known or self._kept_results.pop(desired.key, None),
            from_start=first,
        )
        self._workers[desired.key] = worker
        worker.start()

    def _remove(self, key: ProbeKey) -> None:
        if worker := self._workers.pop(key, None):
            worker.halt()
        self._reporter.remove(key)
