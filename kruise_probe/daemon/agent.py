"""The whole daemon: watches the node's NodePodProbe, runs probes, reports results and renews the Lease.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (Run).
Differs: watches a single object, and never reads or writes a Pod.
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog

from kruise_probe.api.names import EVENT_FAILED, EVENT_SUCCEEDED, EVENT_UNKNOWN, SYSTEM_NAMESPACE
from kruise_probe.api.v1alpha1 import ContainerProbeState, NodePodProbe, ProbeState
from kruise_probe.client.recorder import EventRecorder, ObjectReference
from kruise_probe.daemon.diff import DesiredProbe
from kruise_probe.daemon.heartbeat import Heartbeat, LeaseClient
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


async def run_agent(
    *,
    node_name: str,
    informer: Informer,
    client: AgentClient,
    context: WorkerContext,
    recorder: EventRecorder,
    options: AgentOptions,
) -> None:
    """Run the arguments and the probes until cancelled.

    Then stop probes, write the last results, and send the last events. This takes three seconds at most. The Lease is
    not released; it expires.
    """
    reporter = Reporter(
        client=client,
        node_name=node_name,
        message_sync_seconds=options.message_sync_seconds,
        refresh_seconds=options.refresh_seconds,
        on_transition=partial(_record_transition, recorder),
    )
    heartbeat = Heartbeat(
        client=client,
        node_name=node_name,
        system_namespace=options.system_namespace,
        now=context.now,
    )
    async with asyncio.TaskGroup() as events:
        recording = events.create_task(recorder.run(), name="event recorder")
        try:
            async with asyncio.TaskGroup() as group:
                supervisor = Supervisor(context, reporter, heartbeat, spawn=group.create_task)
                group.create_task(heartbeat.run(), name="heartbeat")
                group.create_task(supervisor.run(), name="supervisor")
                group.create_task(context.containers.run(), name="containers")
                group.create_task(reporter.run(), name="reporter")
                # Last: its events start workers, and they need the tasks above.
                informer.add_event_handler(supervisor)
                group.create_task(informer.run(), name="informer")
        finally:
            await _flush(recorder)
            recording.cancel()


async def _flush(recorder: EventRecorder) -> None:
    try:
        # In a cancelled task, `asyncio.timeout` of Python 3.11.2 raises no TimeoutError.
        await asyncio.wait_for(recorder.flush(), LAST_EVENTS_SECONDS)
    except TimeoutError:
        structlog.get_logger().warning(
            "the last events were not sent in time and are dropped", seconds=LAST_EVENTS_SECONDS
        )


def _record_transition(
    recorder: EventRecorder, desired: DesiredProbe, result: ContainerProbeState
) -> None:
    type, reason = _EVENTS[ProbeState(result.state)]
    probe = str(desired.key.probe)
    recorder.event(
        ObjectReference(desired.pod.namespace, desired.pod.name, desired.key.pod_uid),
        type,
        reason,
        f"{probe}: {result.message}" if result.message else probe,
        container=desired.key.container,
        probe=probe,
    )
