"""The calls of the Container Runtime Interface, served by the embedded runtime.

Source: containerd 1.6 pkg/cri/server (container_list, container_status, container_execsync, sandbox_status).
Differs: only the calls that the daemon makes, without filters.
"""

from datetime import datetime
from importlib.metadata import version
from typing import Any, NoReturn

import grpc

from kruise_probe.daemon.cri._pb import cri_pb2 as pb
from kruise_probe_playground.node.containers import (
    CannotStart,
    ExecTimedOut,
    LocalContainer,
    NoSuchContainer,
    NotRunning,
)
from kruise_probe_playground.node.runtime import LocalRuntime

Context = grpc.aio.ServicerContext[Any, Any]

RUNTIME_NAME = "kruise-probe-playground"


def handler_of(service: object) -> "grpc.GenericRpcHandler[Any, Any]":
    """The handler of a server for a service with a method for each call."""
    described = pb.DESCRIPTOR.services_by_name["RuntimeService"]
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in described.methods:
        methods[method.name] = grpc.unary_unary_rpc_method_handler(
            getattr(service, method.name),
            request_deserializer=getattr(pb, method.input_type.name).FromString,
            response_serializer=getattr(pb, method.output_type.name).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(described.full_name, methods)


class CriService:
    """Has no state."""

    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime

    async def Version(self, request: pb.VersionRequest, context: Context) -> pb.VersionResponse:
        return pb.VersionResponse(
            runtime_name=RUNTIME_NAME,
            runtime_version=version("kruise-probe"),
        )

    async def PodSandboxStatus(
        self, request: pb.PodSandboxStatusRequest, context: Context
    ) -> pb.PodSandboxStatusResponse:
        try:
            sandbox = self._runtime.sandbox(request.pod_sandbox_id)
        except NoSuchContainer:
            await _abort_not_found(context, "sandbox", request.pod_sandbox_id)
        network = pb.PodSandboxNetworkStatus(ip=sandbox.ip)
        return pb.PodSandboxStatusResponse(status=pb.PodSandboxStatus(network=network))

    async def ListContainers(
        self, request: pb.ListContainersRequest, context: Context
    ) -> pb.ListContainersResponse:
        containers = map(_message_of, self._runtime.containers)
        return pb.ListContainersResponse(containers=containers)

    async def ContainerStatus(
        self, request: pb.ContainerStatusRequest, context: Context
    ) -> pb.ContainerStatusResponse:
        try:
            container = self._runtime.container(request.container_id)
        except NoSuchContainer:
            await _abort_not_found(context, "container", request.container_id)
        status = pb.ContainerStatus(
            started_at=_nanoseconds(container.started_at),
            exit_code=container.exit_code,
        )
        return pb.ContainerStatusResponse(status=status)

    async def ExecSync(self, request: pb.ExecSyncRequest, context: Context) -> pb.ExecSyncResponse:
        code = grpc.StatusCode.UNKNOWN
        details = ""
        try:
            result = await self._runtime.exec_sync(
                self._runtime.container(request.container_id),
                list(request.cmd),
                timeout_seconds=float(request.timeout),
            )
            return pb.ExecSyncResponse(
                stdout=result.stdout, stderr=result.stderr, exit_code=result.exit_code
            )
        except NoSuchContainer:
            code = grpc.StatusCode.NOT_FOUND
            details = f'failed to find container "{request.container_id}" in store: not found'
        except NotRunning as error:
            details = str(error)
        except ExecTimedOut:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            details = f"timeout {request.timeout}s exceeded: context deadline exceeded"
        except CannotStart as error:
            details = (
                f'failed to start exec "{request.container_id}": OCI runtime exec failed: '
                f"exec failed: {error}: unknown"
            )
        await context.abort(code, f"failed to exec in container: {details}")


async def _abort_not_found(context: Context, what: str, wanted: str) -> NoReturn:
    details = f'an error occurred when try to find {what} "{wanted}": not found'
    await context.abort(grpc.StatusCode.NOT_FOUND, details)


def _nanoseconds(at: datetime | None) -> int:
    if at is None:
        return 0
    return int(at.timestamp()) * 1_000_000_000 + at.microsecond * 1_000


def _message_of(container: LocalContainer) -> pb.Container:
    config = container.config
    return pb.Container(
        id=container.id,
        pod_sandbox_id=container.sandbox.id,
        metadata=pb.ContainerMetadata(name=config.name, attempt=config.attempt),
        state=pb.CONTAINER_RUNNING if container.running else pb.CONTAINER_EXITED,
        created_at=_nanoseconds(container.created_at),
        labels={**container.sandbox.labels, "io.kubernetes.container.name": config.name},
    )
