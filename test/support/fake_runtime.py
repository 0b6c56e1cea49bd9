"""A container runtime with scripted commands, in this process or behind a CRI socket.

test/contract/cri compares it with a real runtime.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kruise_probe.daemon.cri._pb import cri_pb2 as pb
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerNotRunning,
    ContainerState,
    ContainerStatus,
    ExecResult,
    ExecTimeout,
    PodSandboxStatus,
    RuntimeContainer,
    RuntimeFailure,
    RuntimeUnavailable,
)
from kruise_probe_playground.node.cri_service import handler_of

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Script = Callable[["ExecCall"], Awaitable[ExecResult]]


@dataclass(frozen=True)
class ExecCall:
    """The argument of a script."""

    container_id: str
    command: tuple[str, ...]
    timeout_seconds: float


@dataclass
class FakeContainer:
    id: str
    name: str
    pod_uid: str
    attempt: int
    state: ContainerState
    created_at: datetime
    started_at: datetime | None
    sandbox_id: str
    exit_code: int = 0


@dataclass
class ScriptedRuntime:
    """Containers, and scripts for the commands in them.

    Attributes:
        calls: number of calls, by their names in Go (`ListContainers`).
        execs: every command that was started, in order.
        in_flight, most_in_flight: commands that run, now and at most.
        failures: by a call's name, the failure that it raises until the test removes it.
        default_script: for commands without a script; it prints nothing and succeeds.
    """

    calls: Counter[str] = field(default_factory=Counter)
    execs: list[ExecCall] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    failures: dict[str, RuntimeFailure] = field(default_factory=dict)
    containers: dict[str, FakeContainer] = field(default_factory=dict)
    sandboxes: dict[str, PodSandboxStatus] = field(default_factory=dict)
    default_script: Script = field(default_factory=lambda: succeed())
    _scripts: dict[tuple[str, ...], Script] = field(default_factory=dict)
    _started: int = 0

    def start(
        self,
        pod_uid: str = "uid-1",
        name: str = "main",
        *,
        attempt: int = 0,
        ip: str = "10.0.0.1",
        host_network: bool = False,
        sandbox_id: str = "",
        state: ContainerState = ContainerState.RUNNING,
    ) -> FakeContainer:
        number = self._started
        self._started += 1
        sandbox_id = sandbox_id or f"sandbox-{pod_uid}"
        ips = () if host_network or not ip else (ip,)
        self.sandboxes.setdefault(sandbox_id, PodSandboxStatus(ips, host_network))
        created_at = EPOCH + timedelta(seconds=number)
        container = FakeContainer(
            f"container-{number}",
            name,
            pod_uid,
            attempt,
            state,
            created_at,
            None,
            sandbox_id,
        )
        if state is ContainerState.RUNNING:
            container.started_at = created_at + timedelta(milliseconds=1)
        self.containers[container.id] = container
        return container

    def stop(self, container: FakeContainer, *, exit_code: int = 137) -> None:
        container.state = ContainerState.EXITED
        container.exit_code = exit_code

    def remove(self, container: FakeContainer) -> None:
        del self.containers[container.id]

    def on_exec(self, *command: str, script: Script) -> None:
        """Sets the script of `command`."""
        self._scripts[command] = script

    async def version(self) -> str:
        self._called("Version")
        return "scripted 1.0"

    async def list_containers(self) -> Sequence[RuntimeContainer]:
        self._called("ListContainers")
        return [
            RuntimeContainer(
                id=it.id,
                name=it.name,
                pod_uid=it.pod_uid,
                sandbox_id=it.sandbox_id,
                state=it.state,
                created_at_ns=int(it.created_at.timestamp()) * 10**9,
                attempt=it.attempt,
            )
            for it in self.containers.values()
        ]

    async def container_status(self, container_id: str) -> ContainerStatus:
        self._called("ContainerStatus")
        container = self._container(container_id)
        return ContainerStatus(container.started_at, container.exit_code)

    async def sandbox_status(self, sandbox_id: str) -> PodSandboxStatus:
        self._called("PodSandboxStatus")
        if sandbox_id not in self.sandboxes:
            raise ContainerNotFound(f"sandbox {sandbox_id} not found")
        return self.sandboxes[sandbox_id]

    async def exec_sync(
        self,
        container_id: str,
        command: Sequence[str],
        *,
        timeout_seconds: float,
    ) -> ExecResult:
        self._called("ExecSync")
        container = self._container(container_id)
        if container.state is not ContainerState.RUNNING:
            raise ContainerNotRunning("container is in CONTAINER_EXITED state")
        call = ExecCall(container_id, tuple(command), timeout_seconds)
        self.execs.append(call)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        script = self._scripts.get(call.command, self.default_script)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await script(call)
        except TimeoutError:
            raise ExecTimeout(timeout_seconds) from None
        finally:
            self.in_flight -= 1

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        if failure := self.failures.get(name):
            raise failure

    def _container(self, container_id: str) -> FakeContainer:
        if container_id not in self.containers:
            raise ContainerNotFound(f"container {container_id} not found")
        return self.containers[container_id]


def succeed(stdout: bytes = b"", stderr: bytes = b"") -> Script:
    return exit_with(0, stdout, stderr)


def exit_with(
    code: int,
    stdout: bytes = b"",
    stderr: bytes = b"",
    *,
    after_seconds: float = 0.0,
) -> Script:
    async def script(_: ExecCall) -> ExecResult:
        await asyncio.sleep(after_seconds)
        return ExecResult(code, stdout, stderr)

    return script


def hang() -> Script:
    """Runs until the runtime ends it."""

    async def script(_: ExecCall) -> ExecResult:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    return script


def refuse(failure: RuntimeFailure) -> Script:
    async def script(_: ExecCall) -> ExecResult:
        raise failure

    return script


_CODES: dict[type[RuntimeFailure], grpc.StatusCode] = {
    RuntimeUnavailable: grpc.StatusCode.UNAVAILABLE,
    ContainerNotFound: grpc.StatusCode.NOT_FOUND,
    ExecTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""The others are UNKNOWN."""


class _Servicer:
    """The CRI of a scripted runtime; codes and texts as containerd's."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        self._runtime = runtime

    async def Version(self, request: pb.VersionRequest, context: Any) -> pb.VersionResponse:
        name, version = (await self._or_abort(self._runtime.version(), context)).split()
        return pb.VersionResponse(
            runtime_name=name,
            runtime_version=version,
        )

    async def ListContainers(
        self,
        request: pb.ListContainersRequest,
        context: Any,
    ) -> pb.ListContainersResponse:
        containers = await self._or_abort(self._runtime.list_containers(), context)
        return pb.ListContainersResponse(containers=map(_container_message, containers))

    async def ContainerStatus(
        self,
        request: pb.ContainerStatusRequest,
        context: Any,
    ) -> pb.ContainerStatusResponse:
        call = self._runtime.container_status(request.container_id)
        found = await self._or_abort(call, context)
        status = pb.ContainerStatus(
            started_at=_nanoseconds(found.started_at),
            exit_code=found.exit_code,
        )
        return pb.ContainerStatusResponse(status=status)

    async def PodSandboxStatus(
        self,
        request: pb.PodSandboxStatusRequest,
        context: Any,
    ) -> pb.PodSandboxStatusResponse:
        call = self._runtime.sandbox_status(request.pod_sandbox_id)
        found = await self._or_abort(call, context)
        first, *others = found.ips or ("",)
        network = pb.PodSandboxNetworkStatus(
            ip=first,
            additional_ips=[pb.PodIP(ip=ip) for ip in others],
        )
        options = pb.NamespaceOption(network=pb.NODE if found.host_network else pb.POD)
        linux = pb.LinuxPodSandboxStatus(namespaces=pb.Namespace(options=options))
        status = pb.PodSandboxStatus(network=network, linux=linux)
        return pb.PodSandboxStatusResponse(status=status)

    async def ExecSync(self, request: pb.ExecSyncRequest, context: Any) -> pb.ExecSyncResponse:
        call = self._runtime.exec_sync(
            request.container_id,
            tuple(request.cmd),
            timeout_seconds=request.timeout,
        )
        result = await self._or_abort(call, context)
        return pb.ExecSyncResponse(
            stdout=result.stdout,
            stderr=result.stderr,
            exit_code=result.exit_code,
        )

    async def _or_abort(self, call: Awaitable[Any], context: Any) -> Any:
        try:
            return await call
        except RuntimeFailure as failure:
            code = _CODES.get(type(failure), grpc.StatusCode.UNKNOWN)
            await context.abort(code, str(failure))


def _container_message(container: RuntimeContainer) -> pb.Container:
    return pb.Container(
        id=container.id,
        pod_sandbox_id=container.sandbox_id,
        metadata=pb.ContainerMetadata(name=container.name, attempt=container.attempt),
        state=f"CONTAINER_{container.state.name}",
        created_at=container.created_at_ns,
        labels={
            "io.kubernetes.container.name": container.name,
            "io.kubernetes.pod.uid": container.pod_uid,
        },
    )


def _nanoseconds(at: datetime | None) -> int:
    if at is None:
        return 0
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1000


@asynccontextmanager
async def served(runtime: ScriptedRuntime, socket: Path | None = None) -> AsyncIterator[str]:
    """Serves the CRI of `runtime` at `socket`, or in a temporary folder; the value is its endpoint."""
    if socket is None:
        # The path of a socket has at most 107 bytes: a test's own folder may be too deep.
        with tempfile.TemporaryDirectory(prefix="cri-") as folder:
            async with served(runtime, Path(folder) / "cri.sock") as endpoint:
                yield endpoint
        return
    server = grpc.aio.server(options=[("grpc.max_send_message_length", 64 << 20)])
    server.add_generic_rpc_handlers([handler_of(_Servicer(runtime))])
    _ = server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield f"unix://{socket}"
    finally:
        await server.stop(grace=None)
