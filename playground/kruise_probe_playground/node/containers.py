"""Sandboxes and containers of the embedded runtime, and their errors.

Source: containerd pkg/cri/store (container and sandbox stores).
Differs: no images, no snapshots; a container's file system is a folder.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from kruise_probe_playground.node.container_log import ContainerLog
from kruise_probe_playground.node.processes import LocalProcess


class NoSuchContainer(Exception):
    """No container or sandbox has this id."""


class NotRunning(Exception):
    """The container exists, but does not run; the text is the runtime's message."""


class CannotStart(Exception):
    """The command cannot be executed; the text is the runtime's message."""


class ExecTimedOut(Exception):
    """The command was killed at its deadline."""


class ContainerConfig(msgspec.Struct, frozen=True):
    """What to run. The runtime adds its own variables to `environment`."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    attempt: int = 0


class Sandbox(msgspec.Struct, frozen=True, eq=False):
    """The place of one pod."""

    id: str
    namespace: str
    name: str
    uid: str
    ip: str
    labels: Mapping[str, str]
    folder: Path
    created_at: datetime


class LocalContainer(msgspec.Struct, eq=False):
    """One attempt of a container. Only the runtime changes it.

    `message` is the reason if it could not be started. `on_end` is called when it has ended.
    """

    id: str
    sandbox: Sandbox
    config: ContainerConfig
    folder: Path
    environment: Mapping[str, str]
    created_at: datetime
    log: ContainerLog
    ended: asyncio.Event
    on_end: "Callable[[LocalContainer], None]"
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    process: LocalProcess | None = None

    @property
    def running(self) -> bool:
        return not self.ended.is_set()


class ExecOutput(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


def cannot_start(
    command: Sequence[str],
    error: OSError | ValueError,
    folder: Path,
) -> str:
    """The message of runc if it cannot execute `command` in `folder`."""
    if not command:
        return "unable to start container process: no command specified"
    program = command[0]
    if isinstance(error, PermissionError):
        why = "permission denied"
    elif isinstance(error, FileNotFoundError):
        if "/" in program and (folder / program).exists():  # its interpreter does not exist
            return f"unable to start container process: exec {program}: no such file or directory"
        missing = f"stat {program}: no such file or directory"
        why = missing if "/" in program else "executable file not found in $PATH"
    else:
        why = ((isinstance(error, OSError) and error.strerror) or str(error)).lower()
    return f'unable to start container process: exec: "{program}": {why}'
