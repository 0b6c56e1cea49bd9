"""The whole daemon: watches the node's NodePodProbe, runs probes, reports results and renews the Lease.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (Run).
Differs: watches a single object, and never reads or writes a Pod.
"""

import asyncio
from typing import Final, NamedTuple, Protocol

import structlog
from prometheus_client import REGISTRY

from kruise_probe.api.names import EVENT_FAILED, EVENT_SUCCEEDED, EVENT_UNKNOWN, SYSTEM_NAMESPACE
from kruise_probe.api.v1alpha1 import ContainerProbeState, NodePodProbe, ProbeState
from kruise_probe.client.recorder import EventRecorder, ObjectReference
from kruise_probe.daemon.diff import DesiredProbe
from kruise_probe.daemon.heartbeat import Heartbeat, LeaseClient
from kruise_probe.daemon.metrics import ProbeCollector
from kruise_probe.daemon.reporter import Reporter, StatusClient
from kruise_probe.daemon.supervisor import Supervisor
from kruise_probe.daemon.worker import WorkerContext
from kruise_probe.informers.replica import EventHandler

LAST_EVENTS_SECONDS: Final = 1.0
"""Time to send the last events at shutdown, after the last status write."""


_EVENTS: Final = {
    ProbeState.SUCCEEDED: ("Normal", EVENT_SUCCEEDED),
    ProbeState.FAILED: ("Normal", EVENT_FAILED),
    ProbeState.UNKNOWN: ("Warning", EVENT_UNKNOWN),
}
"""Type and reason of the event of a new state."""


class AgentOptions(NamedTuple):
    """Settings from flags; durations in seconds."""

    message_sync_seconds: float = 2.0
    refresh_seconds: float = 600.0
    system_namespace: str = SYSTEM_NAMESPACE


class Informer(Protocol):
    """Watches the NodePodProbe of this node, and no other object."""

    def add_event_handler(self, handler: EventHandler[NodePodProbe]) -> None: ...
    async def run(self) -> None: ...


class AgentClient(StatusClient, LeaseClient, Protocol):
    """All requests of the daemon to the API server, except events."""


class Agent:
    """Owns its arguments: `run` runs all of them, and stops them in order.

    When cancelled, it stops probes, writes the last results and then sends the last events. This takes three seconds
    at most. The Lease is not released; it expires.
    """

    def __init__(
        self,
        *,
        node_name: str,
        informer: Informer,
        client: AgentClient,
        context: WorkerContext,
        recorder: EventRecorder,
        options: AgentOptions,
    ) -> None:
        self._node_name = node_name
        self._informer = informer
        self._containers = context.containers
        self._recorder = recorder
        self._log = structlog.get_logger().bind(node=node_name)
        self._reporter = Reporter(
            client=client,
            node_name=node_name,
            message_sync_seconds=options.message_sync_seconds,
            refresh_seconds=options.refresh_seconds,
            on_transition=self._record_transition,
        )
        self._supervisor = Supervisor(context, self._reporter)
        self._heartbeat = Heartbeat(
            client=client,
            node_name=node_name,
            system_namespace=options.system_namespace,
            now=context.now,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        collector = ProbeCollector(lambda: self._supervisor.series)
        REGISTRY.register(collector)
        try:
            async with asyncio.TaskGroup() as group:
                recording = group.create_task(self._recorder.run(), name="event recorder")
                try:
                    await self._run_probes()
                finally:
                    await self._flush_events()
                    recording.cancel()
        finally:
            REGISTRY.unregister(collector)

    async def _run_probes(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeat.run(), name="heartbeat")
            group.create_task(self._supervisor.run(), name="supervisor")
            await self._supervisor.wait_until_running()
            group.create_task(self._containers.run(), name="containers")
            group.create_task(self._reporter.run(), name="reporter")
            # Last: its events start workers, and they need the tasks above.
            self._informer.add_event_handler(self)
            group.create_task(self._informer.run(), name="informer")

    async def _flush_events(self) -> None:
        try:
            # In a cancelled task, `asyncio.timeout` of Python 3.11.2 raises no TimeoutError.
            await asyncio.wait_for(self._recorder.flush(), LAST_EVENTS_SECONDS)
        except TimeoutError:
            self._log.warning(
                "the last events were not sent in time and are dropped", seconds=LAST_EVENTS_SECONDS
            )

    # Events of the NodePodProbe.

    def on_add(self, obj: NodePodProbe, is_initial: bool) -> None:
        self._supervisor.apply(obj, first=is_initial)
        self._observe(obj)

    def on_update(self, old: NodePodProbe, new: NodePodProbe) -> None:
        if old.spec != new.spec:
            self._supervisor.apply(new)
        self._observe(new)

    def on_delete(self, last_known: NodePodProbe) -> None:
        self._supervisor.apply(None)
        self._reporter.observe(None, {})

    def _observe(self, node_pod_probe: NodePodProbe) -> None:
        self._reporter.observe(node_pod_probe, self._supervisor.desired)
        for each in node_pod_probe.metadata.owner_references or ():
            if each.is_node and each.name == self._node_name:
                self._heartbeat.set_owner(each)

    def _record_transition(self, desired: DesiredProbe, result: ContainerProbeState) -> None:
        type, reason = _EVENTS[ProbeState(result.state)]
        probe = str(desired.key.probe)
        self._recorder.event(
            ObjectReference(desired.pod.namespace, desired.pod.name, desired.key.pod_uid),
            type,
            reason,
            f"{probe}: {result.message}" if result.message else probe,
            container=desired.key.container,
            probe=probe,
        )
