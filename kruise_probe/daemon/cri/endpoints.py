"""Finds the socket of the runtime that runs this node's pods, and stays with it.

Source: Kruise pkg/daemon/criruntime/factory_unix.go for the mount point; cri-tools for the default paths.
Differs: a runtime that is not there yet is waited for; of several that answer, the one with pods is taken.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import structlog

from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime, socket_path
from kruise_probe.daemon.cri.runtime import (
    ContainerDetail,
    ContainerEvent,
    ContainerInfo,
    ExecResult,
    Runtime,
    RuntimeFailure,
    RuntimeUnavailable,
    RuntimeVersion,
    SandboxDetail,
)

log = structlog.get_logger(__name__)

_BELOW_RUN: Final = (
    "k3s/containerd/containerd.sock",  # k3s and RKE2
    "k0s/containerd.sock",
    "cri-dockerd.sock",
    "cri-dockerd/cri-dockerd.sock",
    "crio/crio.sock",
    "crio.sock",
    "dockershim.sock",  # Bottlerocket's name for containerd
    "containerd/containerd.sock",
    "containerd.sock",
)
"""The most particular first: Docker, for one, brings a containerd that runs no pods."""

_RUN_FOLDERS: Final = (
    "/run",
    "/var/run",
    "/host/run",
    "/host/var/run",
    "/hostvarrun",  # where Kruise's daemon mounts it
)
_ELSEWHERE: Final = ("/var/snap/microk8s/common/run/containerd.sock",)

KNOWN_ENDPOINTS: Final = tuple(
    f"unix://{path}"
    for path in (
        *(f"{folder}/{socket}" for folder in _RUN_FOLDERS for socket in _BELOW_RUN),
        *_ELSEWHERE,
        *(f"/host{path}" for path in _ELSEWHERE),
    )
)


class NodeRuntime:
    """The `Runtime` of this node, wherever it is: searches at a list while it has none, and again when
    its socket is gone.

    Only `list_containers` searches; until then the other calls say that the runtime is away. So there
    is one search at a time, at the pace of whoever lists.
    """

    def __init__(
        self,
        endpoints: Sequence[str] = (),
        *,
        connect: Callable[[str], GrpcRuntime] = GrpcRuntime,
    ) -> None:
        """`endpoints` are tried in this order, instead of the known ones.

        Raises:
            ValueError: one of them is no unix socket.
        """
        self._candidates = [*dict.fromkeys(endpoints or KNOWN_ENDPOINTS)]
        self._connect = connect
        self._current: GrpcRuntime | None = None
        self._open = AsyncExitStack()
        for endpoint in self._candidates:
            socket_path(endpoint)

    @property
    def endpoint(self) -> str:
        """Where the runtime was found; empty until then."""
        return self._current.endpoint if self._current else ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._current = None
        await self._open.aclose()

    async def version(self) -> RuntimeVersion:
        return await self._runtime.version()

    async def list_containers(self) -> Sequence[ContainerInfo]:
        if self._current is None or not _exists(self._current.endpoint):
            await self._search()
        return await self._runtime.list_containers()

    async def container_status(self, container_id: str) -> ContainerDetail:
        return await self._runtime.container_status(container_id)

    async def sandbox_status(self, sandbox_id: str) -> SandboxDetail:
        return await self._runtime.sandbox_status(sandbox_id)

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        return await self._runtime.exec_sync(container_id, command, timeout_seconds=timeout_seconds)

    async def events(self) -> AsyncIterator[ContainerEvent]:
        async for event in self._runtime.events():
            yield event

    @property
    def _runtime(self) -> Runtime:
        if self._current is None:
            raise RuntimeUnavailable("no container runtime was found yet")
        return self._current

    async def _search(self) -> None:
        """Takes the first that answers and has pods, else the first that answers.

        Raises:
            RuntimeUnavailable: none answers.
        """
        problems: list[str] = []
        idle: str | None = None
        for endpoint in self._candidates:
            hidden = _why_hidden(endpoint)
            if hidden:
                problems.append(_told(endpoint, hidden))
                continue
            if not _exists(endpoint):
                continue
            try:
                has_pods = await self._has_pods(endpoint)
            except RuntimeFailure as failure:
                problems.append(_told(endpoint, str(failure)))
                continue
            if has_pods:
                await self._take(endpoint)
                return
            idle = idle or endpoint
        if idle:
            await self._take(idle)
            return
        raise RuntimeUnavailable(self._nowhere(problems))

    async def _has_pods(self, endpoint: str) -> bool:
        async with self._connect(endpoint) as runtime:
            await runtime.version()
            return any(container.pod_uid for container in await runtime.list_containers())

    async def _take(self, endpoint: str) -> None:
        if endpoint == self.endpoint:
            return
        await self._open.aclose()
        self._current = await self._open.enter_async_context(self._connect(endpoint))
        version = await self._current.version()
        log.info(
            "found the container runtime",
            endpoint=endpoint,
            runtime=version.name,
            version=version.version,
        )

    def _nowhere(self, problems: Sequence[str]) -> str:
        if problems:
            return f"no container runtime answers: {'; '.join(problems)}"
        if len(self._candidates) > 3:
            where = f"at any of {len(self._candidates)} known paths such as {self._candidates[-3]}"
        else:
            where = f"at {' or '.join(self._candidates)}"
        return (
            f"there is no socket {where}; name the right one with --cri-endpoint, "
            "and mount its folder if the daemon runs in a pod"
        )


def _exists(endpoint: str) -> bool:
    try:
        return Path(socket_path(endpoint)).is_socket()
    except OSError:
        return False


def _told(endpoint: str, failure: str) -> str:
    text = failure if endpoint in failure else f"{endpoint}: {failure}"
    if "Permission denied" in failure:
        return f"{text}; run the daemon as a user that may open the socket, most often root"
    return text


def _why_hidden(endpoint: str) -> str:
    """Why it cannot even be told whether there is a socket; empty when it can."""
    try:
        Path(socket_path(endpoint)).stat()
    except PermissionError:
        return "Permission denied"
    except OSError:
        return ""
    return ""
