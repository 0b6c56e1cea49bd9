"""What the daemon asks of a container runtime, and what can go wrong when it asks.

    RuntimeFailure                 the call gave no answer that is worth anything
    ├── RuntimeUnavailable         nobody answers, or not in time: the runtime is away, if it does not list either
    ├── NotSupported               this runtime has no such call (events, before containerd 1.7)
    ├── ContainerNotFound          the runtime knows no such container or sandbox
    ├── ContainerNotRunning        it knows it, but it does not run
    ├── ExecTimeout                the command did not end within its deadline
    ├── ExecOutputTooLarge         the command ended, and its exit code was lost with the output
    └── ExecImpossible             the command cannot be started: no such file, not executable, ...

Source: k8s.io/cri-api pkg/apis/services.go.
Differs: a handful of its calls; errors have types, where Go's have texts.
"""

import enum
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

import msgspec


class ContainerState(enum.Enum):
    CREATED = "Created"
    RUNNING = "Running"
    EXITED = "Exited"
    UNKNOWN = "Unknown"


class ContainerEventType(enum.Enum):
    CREATED = "Created"
    STARTED = "Started"
    STOPPED = "Stopped"
    DELETED = "Deleted"


class RuntimeVersion(msgspec.Struct, frozen=True):
    """`name` and `version` of the program, e.g. `containerd` and `1.6.20`; `api_version` is `v1`."""

    name: str
    version: str
    api_version: str


class ContainerInfo(msgspec.Struct, frozen=True):
    """One container as a list shows it; names and uid come from kubelet's labels."""

    id: str
    name: str
    pod_uid: str
    pod_namespace: str
    pod_name: str
    sandbox_id: str
    state: ContainerState
    created_at_ns: int
    attempt: int


class ContainerDetail(msgspec.Struct, frozen=True):
    """What a list does not show. `started_at` is None while the container has not started."""

    id: str
    state: ContainerState
    started_at: datetime | None
    finished_at: datetime | None = None
    exit_code: int = 0
    reason: str = ""


class SandboxDetail(msgspec.Struct, frozen=True):
    """`ips` is empty for a pod in the host's network (`host_network`); the primary address comes first."""

    ips: tuple[str, ...]
    host_network: bool = False


class ExecResult(msgspec.Struct, frozen=True):
    exit_code: int
    stdout: bytes
    stderr: bytes


class ContainerEvent(msgspec.Struct, frozen=True):
    container_id: str
    type: ContainerEventType


class RuntimeFailure(Exception):
    """A call to the container runtime that gave no usable answer; the text is for people."""


class RuntimeUnavailable(RuntimeFailure):
    """Nobody answers at the socket, or not in time."""


class NotSupported(RuntimeFailure):
    """The runtime does not have this call."""


class ContainerNotFound(RuntimeFailure):
    """The runtime knows no container, or no sandbox, of this id."""


class ContainerNotRunning(RuntimeFailure):
    """The container exists and does not run."""


class ExecTimeout(RuntimeFailure):
    """The command was still running when its time was over; the call was given up."""


class ExecOutputTooLarge(RuntimeFailure):
    """The command printed more than is read of an answer; its exit code is in that answer too."""


class ExecImpossible(RuntimeFailure):
    """The command could not be started in this container."""


class Runtime(Protocol):
    """A container runtime. Every call has a deadline of its own and raises `RuntimeFailure`."""

    async def version(self) -> RuntimeVersion: ...

    async def list_containers(self) -> Sequence[ContainerInfo]:
        """All containers of pods, in every state; sandboxes are not among them."""
        ...

    async def container_status(self, container_id: str) -> ContainerDetail: ...

    async def sandbox_status(self, sandbox_id: str) -> SandboxDetail: ...

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        """Runs `command` in the container and waits for its end.

        Raises:
            ExecTimeout: at the latest one second after `timeout_seconds`.
            ExecOutputTooLarge: the command printed more than is read.
            ExecImpossible: the command could not be started.
            ContainerNotFound, ContainerNotRunning, RuntimeUnavailable: see there.
        """
        ...

    def events(self) -> AsyncIterator[ContainerEvent]:
        """What happens to containers from now on, until the stream breaks.

        Raises:
            NotSupported: this runtime has no event stream.
        """
        ...
