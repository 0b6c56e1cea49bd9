"""The container runtime at a CRI socket. No other module of the daemon uses gRPC's library.

Source: k8s.io/cri-client pkg/remote_runtime.go; CRI-O internal/oci/runtime_oci.go (ExecSyncContainer) and conmon
runner/config/config.go (TimedOutMessage) for how CRI-O reports a timeout of a command.
Differs: an exec is cancelled 0.5 s after its timeout, where kubelet waits two minutes more; errors have types.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Final, Self, TypeVar

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import Message

from kruise_probe.daemon.cri._pb import cri_pb2 as pb
from kruise_probe.daemon.cri.runtime import (
    ALIVE_SECONDS,
    EXEC_GRACE_SECONDS,
    MAX_EXEC_RESPONSE_BYTES,
    ContainerNotFound,
    ContainerNotRunning,
    ContainerState,
    ContainerStatus,
    ExecImpossible,
    ExecOutputTooLarge,
    ExecResult,
    ExecTimeout,
    PodSandboxStatus,
    RuntimeContainer,
    RuntimeFailure,
    RuntimeUnavailable,
)

CALL_TIMEOUT_SECONDS: Final = 5.0
"""Deadline of every call but ExecSync. A busy containerd needs up to 0.5 s."""

_MAX_LIST_BYTES: Final = 16 << 20
"""Limit of a list, as in kubelet."""
_MAX_STATUS_BYTES: Final = 2 << 20
"""Limit of the status of one container or sandbox, with all labels and annotations that a pod can have."""
_SERVICE: Final = "runtime.v1.RuntimeService"


def _limit(max_bytes: int, **method: str) -> dict[str, Any]:
    return {"name": [{"service": _SERVICE, **method}], "maxResponseMessageBytes": max_bytes}


_LIMITS: Final = {
    "methodConfig": [
        _limit(_MAX_LIST_BYTES, method="ListContainers"),
        _limit(MAX_EXEC_RESPONSE_BYTES, method="ExecSync"),
        _limit(_MAX_STATUS_BYTES),
    ]
}
"""gRPC reads the length of a response first, and rejects a longer one before it is in memory."""

_CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", _MAX_LIST_BYTES),
    # Otherwise the window grows up to many MiB for each call, and data of a rejected response is buffered up to it.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.service_config", msgspec.json.encode(_LIMITS).decode()),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Go servers close connections that send keepalives more often than every five minutes.
    ("grpc.keepalive_time_ms", 360_000),
    ("grpc.use_local_subchannel_pool", 1),
)

_STATES: Final = {
    pb.CONTAINER_CREATED: ContainerState.CREATED,
    pb.CONTAINER_RUNNING: ContainerState.RUNNING,
    pb.CONTAINER_EXITED: ContainerState.EXITED,
}

_UNAVAILABLE: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
_NOT_READY_TEXT = re.compile(r"server is not initialized yet|connection error|transport is closing")
_NOT_RUNNING_TEXT = re.compile(
    r"container is in CONTAINER_\w+ state|not created or running|is not running|not running"
    r"|stopped container|no running task|task \S+ not found|process does not exist"
)
_TOO_LARGE_TEXT = re.compile(r"message larger than max")
"""The error of our limit, and of a runtime with a smaller limit."""
_CRIO_TIMED_OUT: Final = (-1, b"command timed out")
"""Exit code and stderr of CRI-O's response for a timeout. The exit code of a command that ended is never negative."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

M = TypeVar("M", bound=Message)


class GrpcRuntime:
    """The runtime at a unix socket: `unix:///run/containerd/containerd.sock`, or the path alone.

    Every call has its own deadline and raises `RuntimeFailure`.

    Use it as an asynchronous context manager. It connects by itself, and reconnects after a restart of the runtime.
    Leaving the context ends calls in flight: they raise RuntimeUnavailable.
    """

    def __init__(self, endpoint: str = "") -> None:
        self.endpoint = endpoint
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        self.connect(self.endpoint)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def connect(self, endpoint: str) -> None:
        """Connect to this endpoint; an earlier connection must be closed."""
        self.endpoint = endpoint
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket_path(endpoint)}", options=_CHANNEL_OPTIONS
        )

    async def close(self) -> None:
        """Close the connection. Calls in flight raise RuntimeUnavailable."""
        self.endpoint = ""
        channel = self._channel
        self._channel = None
        if channel is not None:
            await channel.close(None)

    async def version(self) -> str:
        """Name and version of the runtime, such as `containerd 1.6.20`."""
        request = pb.VersionRequest(version="v1")
        response = await self._call("Version", request, pb.VersionResponse)
        return f"{response.runtime_name} {response.runtime_version}"

    async def list_containers(self) -> Sequence[RuntimeContainer]:
        """All containers of pods, in every state, without sandboxes."""
        request = pb.ListContainersRequest()
        response = await self._call("ListContainers", request, pb.ListContainersResponse)
        return [_container(container) for container in response.containers]

    async def container_status(self, container_id: str) -> ContainerStatus:
        request = pb.ContainerStatusRequest(container_id=container_id)
        response = await self._call("ContainerStatus", request, pb.ContainerStatusResponse)
        return _status(response)

    async def sandbox_status(self, sandbox_id: str) -> PodSandboxStatus:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        response = await self._call("PodSandboxStatus", request, pb.PodSandboxStatusResponse)
        network = response.status.network
        ips = [network.ip]
        ips += [additional.ip for additional in network.additional_ips]
        known_ips = tuple(filter(None, ips))
        namespaces = response.status.linux.namespaces
        mode = namespaces.options.network
        return PodSandboxStatus(known_ips, host_network=mode == pb.NODE)

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        """Run `command` in the container and wait until it ends.

        Raises:
            ExecTimeout: at most 1 s after `timeout_seconds`; the runtime responds, so it is the command that hangs.
            ExecOutputTooLarge: the command printed too much.
            ExecImpossible: the command could not be started.
            ContainerNotFound, ContainerNotRunning, RuntimeUnavailable: see these classes.
        """
        request = pb.ExecSyncRequest(
            container_id=container_id, cmd=command, timeout=ceil(timeout_seconds)
        )
        deadline_seconds = timeout_seconds + EXEC_GRACE_SECONDS
        try:
            response = await self._send("ExecSync", request, pb.ExecSyncResponse, deadline_seconds)
        except grpc.aio.AioRpcError as error:
            failure = self._exec_failure(error, timeout_seconds)
            if isinstance(failure, ExecTimeout):
                await self._check_alive()
            raise failure from error
        if (response.exit_code, response.stderr) == _CRIO_TIMED_OUT:
            raise ExecTimeout(timeout_seconds)
        return ExecResult(response.exit_code, response.stdout, response.stderr)

    async def _check_alive(self) -> None:
        """Check that the runtime responds; an error is a response too. Raises: RuntimeUnavailable."""
        try:
            async with asyncio.timeout(ALIVE_SECONDS):
                _ = await self.version()
        except TimeoutError:
            raise RuntimeUnavailable(
                "the container runtime does not respond; check its service on the node"
            ) from None
        except RuntimeFailure as failure:
            if isinstance(failure, RuntimeUnavailable):
                raise

    async def _call(self, method: str, request: Message, response: type[M]) -> M:
        try:
            return await self._send(method, request, response, CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from error

    async def _send(
        self, method: str, request: Message, response: type[M], timeout_seconds: float
    ) -> M:
        """Raises: AioRpcError, RuntimeUnavailable."""
        if self._channel is None:
            raise RuntimeUnavailable("no container runtime has been found yet; see --cri-endpoint")
        send: Callable[..., Awaitable[M]] = self._channel.unary_unary(
            f"/{_SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            return await send(request, timeout=timeout_seconds)
        except asyncio.CancelledError as error:
            # Closing the channel cancels its calls, not the tasks that wait for them. A task group would drop such a task.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeUnavailable(
                "the connection to the container runtime was closed"
            ) from error

    def _failure(self, error: grpc.aio.AioRpcError) -> RuntimeFailure:
        code = error.code()
        details = _details(error)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return RuntimeUnavailable(
                f"the container runtime at {self.endpoint} did not respond "
                f"within {CALL_TIMEOUT_SECONDS:g} s; check its service on the node"
            )
        if code is grpc.StatusCode.NOT_FOUND:
            return ContainerNotFound(details)
        if code in _UNAVAILABLE or _NOT_READY_TEXT.search(details):
            return RuntimeUnavailable(
                f"the container runtime at {self.endpoint} is unavailable: {details}; check its service on the node"
            )
        return RuntimeFailure(
            f"the container runtime at {self.endpoint} returned an error: {details}"
        )

    def _exec_failure(self, error: grpc.aio.AioRpcError, timeout_seconds: float) -> RuntimeFailure:
        details = _details(error)
        failure = self._failure(error)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return ExecTimeout(timeout_seconds)
        if _TOO_LARGE_TEXT.search(details):
            return ExecOutputTooLarge()
        if isinstance(failure, RuntimeUnavailable):
            return failure
        if _NOT_RUNNING_TEXT.search(details):
            return ContainerNotRunning(details)
        if isinstance(failure, ContainerNotFound):
            return failure
        return ExecImpossible(details)


def _details(error: grpc.aio.AioRpcError) -> str:
    return error.details() or "no details"


def socket_path(endpoint: str) -> str:
    """`/run/x.sock` of `unix:///run/x.sock`, `unix:/run/x.sock` or the path itself.

    Raises:
        ValueError: the endpoint is not a unix socket.
    """
    scheme, separator, path = endpoint.partition(":")
    path = path.removeprefix("//") if separator else endpoint
    has_other_scheme = separator and scheme != "unix"
    if has_other_scheme or not path.startswith("/"):
        raise ValueError(f"{endpoint!r} is not the path of a unix socket (unix:///path or /path)")
    return path


def _container(container: pb.Container) -> RuntimeContainer:
    labels: Any = container.labels
    return RuntimeContainer(
        id=container.id,
        name=labels.get("io.kubernetes.container.name") or container.metadata.name,
        pod_uid=labels.get("io.kubernetes.pod.uid", ""),
        sandbox_id=container.pod_sandbox_id,
        state=_STATES.get(container.state, ContainerState.UNKNOWN),
        created_at_ns=container.created_at,
        attempt=container.metadata.attempt,
    )


def _status(response: pb.ContainerStatusResponse) -> ContainerStatus:
    started_at = None
    nanoseconds = response.status.started_at
    if nanoseconds > 0:
        # A timedelta keeps the microseconds; a float of seconds would lose them.
        since_epoch = timedelta(microseconds=nanoseconds // 1000)
        started_at = _EPOCH + since_epoch
    return ContainerStatus(started_at, response.status.exit_code)
