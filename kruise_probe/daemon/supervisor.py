"""The whole daemon: watches the node's NodePodProbe, runs a worker for each of its probes, reports results and renews the Lease.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (Run, sync); kubelet pkg/kubelet/prober/prober_manager.go.
Differs: watches a single object, and never reads or writes a Pod. An edit changes the running worker. At start, workers
get the results that the previous daemon published. If the NodePodProbe is deleted and created again within
`REPAIR_SECONDS`, workers get the results from before.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog
from prometheus_client import REGISTRY

from kruise_probe.api.messages import code_of
from kruise_probe.api.names import (
    EVENT_FAILED,
    EVENT_SUCCEEDED,
    EVENT_UNKNOWN,
    SYSTEM_NAMESPACE,
    ProbeKey,
)
from kruise_probe.api.node_pod_probe import ContainerProbeState, NodePodProbe
from kruise_probe.api.times import loop_time, parse_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon import metrics
from kruise_probe.daemon.adoption import SILENCE_SLACK_SECONDS, Handover
from kruise_probe.daemon.cri.containers import ContainerWatcher
from kruise_probe.daemon.desired import DesiredProbe, desired_probes
from kruise_probe.daemon.heartbeat import RENEW_SECONDS, Heartbeat
from kruise_probe.daemon.metrics import ProbeCollector
from kruise_probe.daemon.probers.prober import Reason
from kruise_probe.daemon.reporter import Reporter
from kruise_probe.daemon.schedule import StartTime
from kruise_probe.daemon.status import recorded_in
from kruise_probe.daemon.worker import Worker, WorkerContext
from kruise_probe.informers.replica import EventHandler
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.runtime.recorder import EventRecorder, ObjectReference

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CLOCK_CHECK_SECONDS: Final = 1.0
"""How often the wall clock is compared with the loop's."""

REPAIR_SECONDS: Final = 60.0
"""How long results are kept after the NodePodProbe is deleted."""

LAST_EVENTS_SECONDS: Final = 1.0
"""Time to send the last events at shutdown, after the last status write."""

_EVENTS: Final = {
    ProbeState.SUCCEEDED: ("Normal", EVENT_SUCCEEDED),
    ProbeState.FAILED: ("Normal", EVENT_FAILED),
    ProbeState.UNKNOWN: ("Warning", EVENT_UNKNOWN),
}
"""Type and reason of the event of a new state."""


async def run_supervisor(
    *,
    node_name: str,
    informer: SharedInformer[NodePodProbe],
    client: RestClient,
    context: WorkerContext,
    recorder: EventRecorder,
    message_sync_seconds: float = 2.0,
    refresh_seconds: float = 600.0,
    renew_seconds: float = RENEW_SECONDS,
    system_namespace: str = SYSTEM_NAMESPACE,
) -> None:
    """Run the arguments and the probes until cancelled.

    Then stop probes, write the last results, and send the last events. This takes three seconds at most. The Lease is
    not released; it expires.
    """
    heartbeat = Heartbeat(
        client=client,
        node_name=node_name,
        system_namespace=system_namespace,
        renew_seconds=renew_seconds,
        now=context.now,
    )
    reporter = Reporter(
        client=client,
        node_name=node_name,
        message_sync_seconds=message_sync_seconds,
        refresh_seconds=refresh_seconds,
        on_transition=partial(_record_transition, recorder, context.containers),
        on_write=heartbeat.record_status_write,
    )
    async with asyncio.TaskGroup() as events:
        recording = events.create_task(recorder.run(), name="event recorder")
        try:
            # Attempts have a group of their own: workers may spawn until `halt`, also while the others are cancelled.
            async with asyncio.TaskGroup() as attempts, asyncio.TaskGroup() as group:
                supervisor = Supervisor(
                    context,
                    reporter,
                    heartbeat,
                    spawn=attempts.create_task,
                    last_renewal=await heartbeat.last_renewal(),
                )
                group.create_task(_renew_lease(heartbeat, informer), name="heartbeat")
                group.create_task(supervisor.run(), name="supervisor")
                group.create_task(context.containers.run(), name="containers")
                group.create_task(reporter.run(), name="reporter")
                # Last: its events start workers, and they need the tasks above.
                informer.add_event_handler(supervisor)
                group.create_task(informer.run(), name="informer")
                try:
                    await asyncio.Event().wait()
                finally:
                    supervisor.halt()
        finally:
            try:
                # In a cancelled task, `asyncio.timeout` of Python 3.11.2 raises no TimeoutError.
                await asyncio.wait_for(recorder.flush(), LAST_EVENTS_SECONDS)
            except TimeoutError:
                _log.warning(
                    "the last events were not sent in time and are dropped",
                    seconds=LAST_EVENTS_SECONDS,
                )
            recording.cancel()


async def _renew_lease(heartbeat: Heartbeat, informer: SharedInformer[NodePodProbe]) -> None:
    """Renew from when it is known whether the node has entries."""
    await informer.wait_for_sync()
    await heartbeat.run()


def _record_transition(
    recorder: EventRecorder,
    containers: ContainerWatcher,
    desired: DesiredProbe,
    result: ContainerProbeState,
) -> None:
    type, reason = _EVENTS[ProbeState(result.state)]
    message = result.message or ""
    if result.state == ProbeState.UNKNOWN and code_of(message) == Reason.CONTAINER_NOT_RUNNING:
        view = containers.find(desired.key.pod_uid, desired.key.container)
        if view is not None and view.exit_code == 0:
            type = "Normal"
    probe = str(desired.key.probe)
    text = probe
    if message:
        text += f": {message}"
    pod = desired.pod
    recorder.event(
        ObjectReference(pod.namespace, pod.name, desired.key.pod_uid),
        type,
        reason,
        text,
        container=desired.key.container,
        probe=probe,
    )


class Supervisor(EventHandler[NodePodProbe]):
    """Keeps exactly one running worker for every probe that the NodePodProbe names, by the events of its watch.

    `halt` ends all probes and keeps the results, so that the last status write removes no state.

    Args:
        spawn: starts the tasks of probes; their owner cancels them at the end.
        last_renewal: of the Lease by the previous daemon; None if unknown.
    """

    def __init__(
        self,
        context: WorkerContext,
        reporter: Reporter,
        heartbeat: Heartbeat,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        last_renewal: datetime | None,
    ) -> None:
        self._context = context
        self._reporter = reporter
        self._heartbeat = heartbeat
        self._spawn = spawn
        self._last_renewal = last_renewal
        self._started_at = StartTime(context.now().timestamp(), loop_time())
        self._desired: dict[ProbeKey, DesiredProbe] = {}
        self._workers: dict[ProbeKey, Worker] = {}
        # Results from before, by pod uid and probe name, for new workers.
        self._known: dict[tuple[str, str], ContainerProbeState] = {}
        self._known_until = -math.inf
        self._watched_until = math.inf

    def halt(self) -> None:
        """Halt the workers; no tick starts an attempt after this step."""
        for worker in self._workers.values():
            worker.halt()

    async def run(self) -> None:
        """Watch for suspends of the node until cancelled."""
        collector = ProbeCollector(lambda: [worker.series for worker in self._workers.values()])
        REGISTRY.register(collector)
        try:
            await self._probe_after_suspends()
        finally:
            REGISTRY.unregister(collector)

    async def _probe_after_suspends(self) -> None:
        """Run probes at once after the node was suspended for more than their period: loop time stood still meanwhile."""
        offset = self._clock_offset()
        while True:
            await asyncio.sleep(CLOCK_CHECK_SECONDS)
            before = offset
            offset = self._clock_offset()
            for worker in self._workers.values():
                if offset - before > worker.desired.probe.effective_period_seconds:
                    worker.probe_at_once()

    def _clock_offset(self) -> float:
        return self._context.now().timestamp() - loop_time()

    # Events of the NodePodProbe.

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        # The status of an object that existed before this daemon is read back.
        self._apply(obj, first=is_initial)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        self._apply(new, edited=old.spec != new.spec)

    def on_delete(self, last_known: NodePodProbe) -> None:
        self._apply(None)

    def _apply(
        self, newest: NodePodProbe | None, *, first: bool = False, edited: bool = True
    ) -> None:
        """Add, edit and remove workers to match `newest`; None (deleted) removes all and keeps their results.

        `first`: the object existed when this daemon started. Its containers may have been probed before.
        """
        if edited:
            before = self._desired
            self._desired = desired_probes(newest.spec if newest else None)
            self._update_known(newest, first=first)
            for key in before.keys() - self._desired.keys():
                if worker := self._workers.pop(key, None):
                    worker.halt()
                self._reporter.remove(key)
            for key, desired in self._desired.items():
                if before.get(key) != desired:
                    self._set_up(desired, first=first)
        self._reporter.observe(newest, self._desired)
        self._heartbeat.observe(newest)

    def _update_known(self, newest: NodePodProbe | None, *, first: bool) -> None:
        now = loop_time()
        if newest is None:
            self._known = {}
            for key, result in self._reporter.results.items():
                self._known[key.pod_uid, result.name] = result
            self._known_until = now + REPAIR_SECONDS
        elif first:
            self._known = recorded_in(newest.status)
            self._watched_until = self._end_of_watch()
        elif now > self._known_until:
            self._known = {}

    def _end_of_watch(self) -> float:
        """Loop time until which the previous daemon may have probed, by its last sign of life; infinite if there is none."""
        results = self._known.values()
        signs = [parse_time(result.last_probe_time) for result in results]
        signs.append(self._last_renewal)
        times = [sign.timestamp() for sign in signs if sign is not None]
        if not times:
            return math.inf
        last = max(times) - self._clock_offset()
        return last + SILENCE_SLACK_SECONDS

    def _set_up(self, desired: DesiredProbe, *, first: bool) -> None:
        """Add or edit a worker. One bad probe never stops another, so every exception is logged."""
        try:
            if worker := self._workers.get(desired.key):
                worker.edit(desired)
                return
            handover = Handover(
                result=self._known.pop((desired.key.pod_uid, desired.entry.name), None),
                from_start=first,
                watched_until=self._watched_until if first else math.inf,
            )
            worker = Worker(
                desired,
                self._context,
                self._reporter,
                daemon_start=self._started_at,
                spawn=self._spawn,
                handover=handover,
            )
            self._workers[desired.key] = worker
            worker.start()
        except Exception:  # noqa: BLE001 - one bad probe never stops another
            metrics.WORKER_ERRORS.inc()
            _log.exception(
                "probe could not be set up",
                pod=str(desired.pod),
                container=desired.key.container,
                probe=str(desired.key.probe),
            )
