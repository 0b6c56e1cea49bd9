"""What a container runtime returns, and its errors.

    RuntimeFailure                 the call failed
    ├── RuntimeUnavailable         no response, or not in time
    ├── ContainerNotFound          the container or sandbox does not exist
    ├── ContainerNotRunning        the container exists, but does not run
    ├── ExecTimeout                the command did not end within its deadline
    ├── ExecOutputTooLarge         the command ended, but its exit code was lost with the output
    └── ExecImpossible             the command cannot be started: no such file, not executable, ...

Source: k8s.io/cri-api pkg/apis/services.go.
Differs: only the calls that the daemon needs; errors have types, where Go's have texts.
"""

import enum
import re
from datetime import datetime
from typing import Final

import msgspec

EXEC_GRACE_SECONDS: Final = 0.5
"""How long the runtime may take to kill a command after its timeout and to respond. It would take much longer if a
child process keeps the command's output open."""

ALIVE_SECONDS: Final = 0.4
"""Deadline of the version request after a timeout. With the grace of an exec, the result comes at most 1 s after the
timeout."""

MAX_EXEC_RESPONSE_BYTES: Final = 1 << 20
"""Limit of stdout and stderr together. Runtimes send up to 16 MiB of each, and many commands may end at once."""

_EXEC_ID = re.compile(r'(?<=\bexec) "[0-9a-f]{64}"')
"""containerd's id of one run."""


class ContainerState(enum.Enum):
    """MISSING: the runtime has no such container."""

    CREATED = "Created"
    RUNNING = "Running"
    EXITED = "Exited"
    UNKNOWN = "Unknown"
    MISSING = "Missing"


class RuntimeContainer(msgspec.Struct, frozen=True):
    """A container as ListContainers returns it. Its name and the pod's uid come from kubelet's labels."""

    id: str
    name: str
    pod_uid: str
    sandbox_id: str
    state: ContainerState
    created_at_ns: int
    attempt: int


class ContainerStatus(msgspec.Struct, frozen=True):
    """`started_at` is None if it has not started; `exit_code` counts once it has exited."""

    started_at: datetime | None = None
    exit_code: int = 0


class PodSandboxStatus(msgspec.Struct, frozen=True):
    """`ips` is empty for a pod in the host's network (`host_network`); the primary address comes first."""

    ips: tuple[str, ...]
    host_network: bool


class ExecResult(msgspec.Struct, frozen=True):
    exit_code: int
    stdout: bytes
    stderr: bytes


class RuntimeFailure(Exception):
    """A call to the container runtime failed; the text is shown to users."""


class RuntimeUnavailable(RuntimeFailure):
    """The socket gives no response, or not in time."""


class ContainerNotFound(RuntimeFailure):
    """No container or sandbox has this id."""


class ContainerNotRunning(RuntimeFailure):
    """The container exists, but does not run."""


class ExecTimeout(RuntimeFailure):
    """The command was still running at its timeout; the call was cancelled."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"command timed out after {timeout_seconds:g}s")


class ExecOutputTooLarge(RuntimeFailure):
    """The command printed too much. The response was not read, so its exit code is unknown."""

    def __init__(self) -> None:
        super().__init__(
            f"the command printed more than {MAX_EXEC_RESPONSE_BYTES} bytes; print less"
        )


class ExecImpossible(RuntimeFailure):
    """The command could not be started in this container. The text has no id of a run, so it is the same each time."""

    def __init__(self, text: str) -> None:
        super().__init__(_EXEC_ID.sub("", text))
