"""Runs one pod of the node: its sandbox, its containers and their restarts, its status, its deletion.

Source: kubelet pkg/kubelet/pod_workers.go, kuberuntime_manager.go (SyncPod), status_manager.go, prober/worker.go.
Differs: one loop for each pod, woken by every change; containers do not survive a restart of the node; startup probes
are only exec: a container with another one counts as started at once.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import structlog

from kruise_probe.api.errors import Conflict, Invalid, KubeError, NotFound
from kruise_probe.api.probe import Probe
from kruise_probe.api.times import loop_time, utc_now
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.runtime.recorder import EventRecorder, ObjectReference
from kruise_probe_playground.node.addresses import AddressBlock, NoAddress
from kruise_probe_playground.node.containers import (
    CannotStart,
    ContainerConfig,
    ExecTimedOut,
    LocalContainer,
    NotRunning,
    Sandbox,
)
from kruise_probe_playground.node.environment import (
    Unsupported,
    command_line,
    container_environment,
)
from kruise_probe_playground.node.lifecycle import ContainerRecord, Plan, plan
from kruise_probe_playground.node.pods import NODE_PODS, NodePod
from kruise_probe_playground.node.runtime import LocalRuntime
from kruise_probe_playground.node.status import (
    backs_off,
    pod_full_name,
    pod_status,
)

FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
STARTUP_PERIOD_SECONDS = 10
STARTUP_TIMEOUT_SECONDS = 1
STARTUP_FAILURE_THRESHOLD = 3
"""The kubelet's defaults for startup probes."""

_log = structlog.get_logger(__name__)


class NodeContext(NamedTuple):
    """What the workers of a node share."""

    node: str
    runtime: LocalRuntime
    client: RestClient
    addresses: AddressBlock
    recorder: EventRecorder


class PodWorker:
    """Runs one pod until it is deleted.

    Cancelling `run` does not end the processes; the runtime kills them when it ends.
    """

    def __init__(self, pod: NodePod, context: NodeContext) -> None:
        self._pod = pod
        self._context = context
        self._sandbox: Sandbox | None = None
        self._records = {
            container.name: ContainerRecord(container) for container in pod.spec.all_containers()
        }
        self._written: dict[str, Any] = {}
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._failures = 0
        self._stopping: set[str] = set()
        self._helpers: set[asyncio.Task[None]] = set()

    def update(self, pod: NodePod) -> None:
        """Set a newer version of the pod."""
        self._pod = pod
        self._changed.set()

    def gone(self) -> None:
        """The object was deleted: end without a grace period, and without requests to the API server."""
        self._gone.set()
        self._changed.set()

    def _note_end(self, container: LocalContainer) -> None:
        """Handle the end of the newest attempt of a container."""
        record = self._records[container.config.name]
        record.current = container
        record.note_end(now=loop_time())
        if self._gone.is_set():
            return
        if container.started_at is None:
            self._warn(
                record,
                "Failed",
                f"Error: {container.message}",
            )
        if backs_off(self._pod, record, self._records):
            what = f"failed container {record.spec.name} in pod {pod_full_name(self._pod)}"
            self._warn(record, "BackOff", f"Back-off restarting {what}")
        self._changed.set()

    def _warn(self, record: ContainerRecord, reason: str, message: str) -> None:
        """Record an event of one container; `reason` and `message` are the kubelet's."""
        key = self._pod.key
        name = record.spec.name
        pod = ObjectReference(
            key.namespace,
            key.name,
            self._pod.uid,
        )
        self._context.recorder.event(
            pod,
            "Warning",
            reason,
            message,
            container=name,
            probe=name,
        )

    async def run(self) -> None:
        """Run until the pod is deleted."""
        async with asyncio.TaskGroup() as group:
            while not (self._gone.is_set() or self._pod.deleting):
                self._changed.clear()
                deadline = await self._sync(group)
                await _wait(self._changed, deadline)
            for helper in self._helpers:
                helper.cancel()
        await self._end()

    def _help(
        self,
        group: asyncio.TaskGroup,
        work: Coroutine[Any, Any, None],
    ) -> None:
        helper = group.create_task(work)
        self._helpers.add(helper)
        helper.add_done_callback(self._helpers.discard)

    async def _sync(self, group: asyncio.TaskGroup) -> float | None:
        """Start and stop containers once, and write the status; return the loop time of the next sync, if any."""
        now = loop_time()
        try:
            actions = self._act(group, now)
            await self._write_status()
        except (KubeError, OSError, NoAddress) as error:
            self._failures += 1
            _log.warning(
                "pod sync failed",
                pod=str(self._pod.key),
                error=str(error),
            )
            return now + _retry_seconds(self._failures)
        self._failures = 0
        return actions.wake_deadline

    def _act(self, group: asyncio.TaskGroup, now: float) -> Plan:
        sandbox = self._sandbox = self._sandbox or self._make_sandbox()
        actions = plan(
            self._pod.spec,
            self._records,
            now=now,
        )
        for name in actions.start:
            self._start(self._records[name], sandbox, group)
        for name in actions.stop:
            container = self._records[name].current
            if container and container.id not in self._stopping:
                self._stopping.add(container.id)
                grace_seconds = self._pod.grace_seconds
                self._help(group, self._context.runtime.stop_container(container, grace_seconds))
        return actions

    def _make_sandbox(self) -> Sandbox:
        meta = self._pod.metadata
        namespace = meta.namespace or ""
        return self._context.runtime.create_sandbox(
            namespace=namespace,
            name=meta.name,
            uid=meta.uid,
            ip=self._context.addresses.take(),
            labels={
                **(meta.labels or {}),
                "io.kubernetes.pod.name": meta.name,
                "io.kubernetes.pod.namespace": namespace,
                "io.kubernetes.pod.uid": meta.uid,
            },
        )

    def _start(
        self,
        record: ContainerRecord,
        sandbox: Sandbox,
        group: asyncio.TaskGroup,
    ) -> None:
        runtime = self._context.runtime
        try:
            config = self._config(record, sandbox)
        except Unsupported as error:
            if record.problem != str(error):
                self._warn(record, "Failed", f"Error: {error}")
            record.problem = str(error)
            return
        if record.current:
            if record.previous:
                runtime.remove_container(record.previous)
            record.previous = record.current
            record.restarts += 1
        record.began = loop_time()
        record.current = runtime.start_container(sandbox, config, self._note_end)
        if not record.running:
            return
        if record.spec.startup_probe is None:
            record.started = True
        else:
            probe = record.spec.startup_probe
            self._help(group, self._await_started(record, record.current, probe))

    def _config(self, record: ContainerRecord, sandbox: Sandbox) -> ContainerConfig:
        environment = container_environment(
            self._pod,
            record.spec,
            ip=sandbox.ip,
            node=self._context.node,
            node_ip=self._context.addresses.node_ip,
        )
        return ContainerConfig(
            name=record.spec.name,
            command=command_line(record.spec, environment),
            environment=environment,
            attempt=record.restarts + 1 if record.current else 0,
        )

    async def _await_started(
        self, record: ContainerRecord, container: LocalContainer, probe: Probe
    ) -> None:
        runtime = self._context.runtime
        if await _wait_started(runtime, container, probe):
            record.started = record.current is container
            self._changed.set()
        else:
            await runtime.stop_container(container, self._pod.grace_seconds)

    async def _write_status(self) -> None:
        """Write the status if it differs from the last one.

        Raises:
            KubeError: the status could not be written. A deleted or replaced pod is not an error.
        """
        ip = self._sandbox.ip if self._sandbox else ""
        status = pod_status(
            self._pod,
            self._records,
            ip,
            self._context.addresses.node_ip,
            before=self._written,
            now=utc_now(),
        )
        if status == self._written:
            return
        with suppress(NotFound, Invalid):  # the watch will report the deletion
            await self._context.client.patch(
                NODE_PODS,
                self._pod.key,
                msgspec.json.encode(
                    {
                        "metadata": {"uid": self._pod.uid},
                        "status": status,
                    }
                ),
                patch_type=PatchType.STRATEGIC_MERGE,
                subresource="status",
            )
        self._written = status

    async def _end(self) -> None:
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(self._stop_containers(self._pod.grace_seconds))
            gone = group.create_task(self._gone.wait())
            await asyncio.wait((stopping, gone), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            gone.cancel()
        await self._stop_containers(0)
        await self._delete()
        if self._sandbox:
            self._context.runtime.remove_sandbox(self._sandbox)
            self._context.addresses.give_back(self._sandbox.ip)

    async def _stop_containers(self, grace_seconds: float) -> None:
        """Stop the containers, then the sidecars."""
        sidecars = {
            container.name for container in self._pod.spec.init_containers if container.sidecar
        }
        for last in (False, True):
            async with asyncio.TaskGroup() as group:
                for name, record in self._records.items():
                    if record.running and record.current and (name in sidecars) is last:
                        group.create_task(
                            self._context.runtime.stop_container(record.current, grace_seconds)
                        )

    async def _delete(self) -> None:
        """Write the last status and delete the object; retry until it is deleted."""
        failures = 0
        path = NODE_PODS.path(*self._pod.key)
        preconditions = {"uid": self._pod.uid}
        options = msgspec.json.encode({"gracePeriodSeconds": 0, "preconditions": preconditions})
        while not self._gone.is_set():
            try:
                await self._write_status()
                await self._context.client.request_raw("DELETE", path, options)
            except (NotFound, Conflict):
                return
            except KubeError as error:
                failures += 1
                _log.warning(
                    "pod was not deleted",
                    pod=str(self._pod.key),
                    error=str(error),
                )
                deadline = loop_time() + _retry_seconds(failures)
                await _wait(self._gone, deadline)
            else:
                return


def _retry_seconds(failures: int) -> float:
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, 10), LONGEST_RETRY_SECONDS)


async def _wait(event: asyncio.Event, deadline: float | None) -> None:
    """Wait for the event, at most until loop time `deadline`."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            await event.wait()


async def _wait_started(runtime: LocalRuntime, container: LocalContainer, probe: Probe) -> bool:
    """Run an exec startup probe until success (True), or until the failure threshold (False)."""
    command = probe.exec and probe.exec.command
    if not command:
        return True
    await asyncio.sleep(probe.initial_delay_seconds or 0)
    failures = 0
    while failures < (probe.failure_threshold or STARTUP_FAILURE_THRESHOLD):
        try:
            result = await runtime.exec_sync(
                container, command, timeout_seconds=probe.timeout_seconds or STARTUP_TIMEOUT_SECONDS
            )
            if result.exit_code == 0:
                return True
        except NotRunning:
            return False
        except (CannotStart, ExecTimedOut):
            pass
        failures += 1
        await asyncio.sleep(probe.period_seconds or STARTUP_PERIOD_SECONDS)
    return False
