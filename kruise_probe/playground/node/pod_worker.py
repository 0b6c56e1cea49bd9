"""Makes one pod of the node happen: its sandbox, its containers, their restarts, its status, its end.

Source: kubelet pkg/kubelet/pod_workers.go, kuberuntime_manager.go (SyncPod), status_manager.go.
Differs: one loop per pod that compares and acts, woken by every change; nothing survives a restart of the node.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import structlog

from kruise_probe.api.core import Probe
from kruise_probe.api.errors import Conflict, Invalid, KubeError, NotFound
from kruise_probe.playground.node.addresses import AddressBlock, NoAddress
from kruise_probe.playground.node.containers import (
    Change,
    Container,
    ContainerConfig,
    Sandbox,
    SandboxConfig,
)
from kruise_probe.playground.node.environment import (
    Unsupported,
    command_line,
    container_environment,
)
from kruise_probe.playground.node.lifecycle import Plan, plan
from kruise_probe.playground.node.node_api import NodeApi
from kruise_probe.playground.node.pods import NodePod
from kruise_probe.playground.node.records import ContainerRecord
from kruise_probe.playground.node.runtime import LocalRuntime
from kruise_probe.playground.node.startup import wait_started
from kruise_probe.playground.node.status import Place, pod_status

FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0

log = structlog.get_logger(__name__)


class Surroundings(NamedTuple):
    """What all workers of a node share."""

    node: str
    runtime: LocalRuntime
    api: NodeApi
    addresses: AddressBlock
    now: Callable[[], datetime]


class PodWorker:
    """Owns one pod from its arrival to its end; `run` returns when nothing of it is left.

    Cancelling `run` leaves the processes to the runtime, which kills them when it ends.
    """

    def __init__(self, pod: NodePod, around: Surroundings) -> None:
        self._pod = pod
        self._around = around
        self._sandbox: Sandbox | None = None
        self._records = {each.name: ContainerRecord(each) for each in pod.spec.all_containers()}
        self._written: dict[str, Any] = {}
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._failures = 0
        self._stopping: set[str] = set()
        self._helpers: set[asyncio.Task[None]] = set()

    def update(self, pod: NodePod) -> None:
        """Takes a newer version of the same pod."""
        self._pod = pod
        self._changed.set()

    def gone(self) -> None:
        """The object is no more: end without grace and without a word to the API server."""
        self._gone.set()
        self._changed.set()

    def container_changed(self, change: Change, container: Container) -> None:
        """Takes what the runtime says of any container; those of other pods are none of ours."""
        record = self._records.get(container.config.name)
        if record is None or record.current is not container:
            return
        if change is Change.STOPPED:
            record.note_end(loop_time=asyncio.get_running_loop().time())
        self._changed.set()

    async def run(self) -> None:
        """Works until the pod is gone."""
        async with asyncio.TaskGroup() as group:
            while not (self._gone.is_set() or self._pod.deleting):
                self._changed.clear()
                deadline = await self._sync(group)
                await _wait(self._changed, deadline)
            for helper in self._helpers:
                helper.cancel()
        await self._end()

    def _help(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        helper = group.create_task(work)
        self._helpers.add(helper)
        helper.add_done_callback(self._helpers.discard)

    async def _sync(self, group: asyncio.TaskGroup) -> float | None:
        """Compares and acts once; returns the loop time at which to look again, if any."""
        loop_time = asyncio.get_running_loop().time()
        try:
            todo = self._act(group, loop_time)
            await self._write_status()
        except (KubeError, OSError, NoAddress) as error:
            self._failures += 1
            seconds = min(FIRST_RETRY_SECONDS * 2.0**self._failures, LONGEST_RETRY_SECONDS)
            log.warning("pod is behind", pod=str(self._pod.key), error=str(error))
            return loop_time + seconds
        self._failures = 0
        return todo.wake_deadline

    def _act(self, group: asyncio.TaskGroup, loop_time: float) -> Plan:
        sandbox = self._sandbox = self._sandbox or self._make_sandbox()
        todo = plan(self._pod.spec, self._records, loop_time=loop_time)
        for name in todo.start:
            self._start(self._records[name], sandbox, group)
        for name in todo.stop:
            container = self._records[name].current
            if container and container.id not in self._stopping:
                self._stopping.add(container.id)
                grace_seconds = self._pod.grace_seconds
                self._help(group, self._around.runtime.stop_container(container, grace_seconds))
        return todo

    def _make_sandbox(self) -> Sandbox:
        meta = self._pod.metadata
        namespace = meta.namespace or ""
        return self._around.runtime.create_sandbox(
            SandboxConfig(
                namespace,
                meta.name,
                meta.uid,
                self._around.addresses.take(),
                labels={
                    **(meta.labels or {}),
                    "io.kubernetes.pod.name": meta.name,
                    "io.kubernetes.pod.namespace": namespace,
                    "io.kubernetes.pod.uid": meta.uid,
                },
            )
        )

    def _start(self, record: ContainerRecord, sandbox: Sandbox, group: asyncio.TaskGroup) -> None:
        runtime = self._around.runtime
        try:
            config = self._config(record, sandbox)
        except Unsupported as error:
            record.problem = str(error)
            return
        if record.current:
            if record.previous:
                runtime.remove_container(record.previous)
            record.previous = record.current
            record.restarts += 1
        record.current = runtime.create_container(sandbox, config)
        record.began = asyncio.get_running_loop().time()
        runtime.start_container(record.current)
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
            ip=sandbox.config.ip,
            node=self._around.node,
            node_ip=self._around.addresses.node_ip,
        )
        return ContainerConfig(
            name=record.spec.name,
            image=record.spec.image or "",
            command=command_line(record.spec, environment),
            environment=environment,
            attempt=record.restarts + 1 if record.current else 0,
        )

    async def _await_started(
        self, record: ContainerRecord, container: Container, probe: Probe
    ) -> None:
        runtime = self._around.runtime
        if await wait_started(runtime, container, probe):
            record.started = record.current is container
            self._changed.set()
        else:
            await runtime.stop_container(container, self._pod.grace_seconds)

    async def _write_status(self) -> None:
        """Writes it if it differs from what was written last.

        Raises:
            KubeError: it could not be written; a pod that is gone, or is another one now, is no error.
        """
        ip = self._sandbox.config.ip if self._sandbox else ""
        status = pod_status(
            self._pod,
            self._records,
            Place(ip, self._around.addresses.node_ip),
            before=self._written,
            now=self._around.now(),
        )
        if status == self._written:
            return
        with suppress(NotFound, Invalid):  # the watch is about to say so
            await self._around.api.write_pod_status(self._pod.key, self._pod.uid, status)
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
            self._around.runtime.remove_sandbox(self._sandbox)
            self._around.addresses.give_back(self._sandbox.config.ip)

    async def _stop_containers(self, grace_seconds: float) -> None:
        """The containers first, then the sidecars, which were there for them."""
        sidecars = {each.name for each in self._pod.spec.init_containers or () if each.sidecar}
        for last in (False, True):
            async with asyncio.TaskGroup() as group:
                for name, record in self._records.items():
                    if record.running and record.current and (name in sidecars) is last:
                        group.create_task(
                            self._around.runtime.stop_container(record.current, grace_seconds)
                        )

    async def _delete(self) -> None:
        """The last status, then the end of the object; tried until it is gone."""
        failures = 0
        while not self._gone.is_set():
            try:
                await self._write_status()
                await self._around.api.delete_pod(self._pod.key, self._pod.uid)
            except (NotFound, Conflict):
                return
            except KubeError as error:
                failures += 1
                seconds = min(FIRST_RETRY_SECONDS * 2.0**failures, LONGEST_RETRY_SECONDS)
                log.warning("pod is not deleted yet", pod=str(self._pod.key), error=str(error))
                await _wait(self._gone, asyncio.get_running_loop().time() + seconds)
            else:
                return


async def _wait(event: asyncio.Event, deadline: float | None) -> None:
    """Returns when the event is set, or at loop time `deadline`."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            await event.wait()
