"""The embedded container runtime: sandboxes, containers, and commands in them, all of local processes.

Knows what a runtime knows: not what a pod wants, but which containers there are and how they do.
`cri_server` shows it over gRPC, `kubelet` drives it.

Source: containerd pkg/cri (container and sandbox stores, exec_sync).
Differs: no images, no namespaces; a container's file system is one folder of its own.
"""

import asyncio
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from kruise_probe.playground.guardian import MARK_VARIABLE, kill_survivors
from kruise_probe.playground.node.containers import (
    CannotStart,
    Change,
    Container,
    ContainerConfig,
    ExecResult,
    ExecTimedOut,
    NoSuchContainer,
    NotRunning,
    Sandbox,
    SandboxConfig,
    State,
    cannot_start,
)
from kruise_probe.playground.node.processes import LocalProcess, Output, spawn

EXEC_OUTPUT_BYTES = 16 * 1024 * 1024
"""Of each stream of an exec; containerd drops what comes after."""

LOG_TAIL_BYTES = 64 * 1024
"""What is kept of a container's output."""

START_FAILED_EXIT_CODE = 128
"""Exit code of a container whose command could not be started, as containerd reports it."""


Listener = Callable[[Change, Container], None]


class LocalRuntime:
    """Owns every process of its containers, and their folders below `folder`.

    `run` watches over the containers' ends and, cancelled, kills all that is left.
    """

    def __init__(
        self,
        *,
        folder: Path,
        mark: str,
        base_environment: Mapping[str, str],
        now: Callable[[], datetime],
    ) -> None:
        self._folder = folder
        self._mark = mark
        self._base_environment = base_environment
        self._now = now
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}
        self._listeners: list[Listener] = []
        self._watching: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._watching = group
                await asyncio.Event().wait()
        finally:
            self._watching = None
            processes = [each.process for each in self._containers.values() if each.process]
            for process in processes:
                process.kill_group()
            kill_survivors(self._mark)
            for process in processes:
                await process.wait()

    @property
    def sandboxes(self) -> Collection[Sandbox]:
        return self._sandboxes.values()

    @property
    def containers(self) -> Collection[Container]:
        return self._containers.values()

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """The sandbox of this id.

        Raises:
            NoSuchContainer: there is none.
        """
        try:
            return self._sandboxes[sandbox_id]
        except KeyError:
            raise NoSuchContainer(sandbox_id) from None

    def container(self, container_id: str) -> Container:
        """The container of this id, or of the only one that begins so, as containerd takes it.

        Raises:
            NoSuchContainer: there is none, or several.
        """
        if found := self._containers.get(container_id):
            return found
        found_ids = [
            each for each in self._containers if container_id and each.startswith(container_id)
        ]
        if len(found_ids) != 1:
            raise NoSuchContainer(container_id)
        return self._containers[found_ids[0]]

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` on every change; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def create_sandbox(self, config: SandboxConfig) -> Sandbox:
        """Makes the sandbox and its folder.

        Raises:
            OSError: the folder cannot be made.
        """
        title = (
            config.name if config.namespace == "default" else f"{config.namespace}_{config.name}"
        )
        folder = self._folder / title
        if folder.exists():  # its predecessor is still ending
            folder = self._folder / f"{title}_{config.uid}"
        folder.mkdir(parents=True)
        sandbox = Sandbox(secrets.token_hex(32), config, folder, self._now())
        self._sandboxes[sandbox.id] = sandbox
        return sandbox

    def create_container(self, sandbox: Sandbox, config: ContainerConfig) -> Container:
        """Makes the container with an empty folder; earlier attempts of it must have ended.

        Raises:
            OSError: the folder cannot be made.
        """
        container_id = secrets.token_hex(32)
        folder = sandbox.folder / config.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        container = Container(
            id=container_id,
            sandbox=sandbox,
            config=config,
            folder=folder,
            environment={
                **self._base_environment,
                "HOME": str(folder),
                "TMPDIR": str(folder),
                **config.environment,
                MARK_VARIABLE: f"{self._mark}/{container_id}",
            },
            created_at=self._now(),
            output=Output(limit_bytes=LOG_TAIL_BYTES, keep_last=True),
            ended=asyncio.Event(),
        )
        self._containers[container_id] = container
        self._tell(Change.CREATED, container)
        return container

    def start_container(self, container: Container) -> None:
        """Starts its process. A command that cannot be started leaves the container exited, with the reason."""
        if self._watching is None:
            raise RuntimeError("the runtime does not run")
        try:
            container.process = spawn(
                container.config.command,
                environment=container.environment,
                folder=container.folder,
                stdout=container.output,
            )
        except (OSError, ValueError) as error:
            container.output.close()
            why = cannot_start(container.config.command, error)
            self._finish(container, START_FAILED_EXIT_CODE, "StartError", why)
            return
        container.started_at = self._now()
        container.state = State.RUNNING
        self._watching.create_task(
            self._watch(container, container.process), name=f"container {container.id[:8]}"
        )
        self._tell(Change.STARTED, container)

    async def stop_container(self, container: Container, grace_seconds: float) -> None:
        """SIGTERM, the grace, SIGKILL; returns when it has ended and its end is noted."""
        if container.process is None:
            if container.state is State.CREATED:
                self._finish(container, 137, "Error", "")
            return
        await container.process.end(grace_seconds)
        await container.ended.wait()

    def remove_container(self, container: Container) -> None:
        """Forgets an ended container; its folder goes with the next attempt or the sandbox."""
        if self._containers.pop(container.id, None):
            container.output.close()
            self._tell(Change.DELETED, container)

    def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Forgets the sandbox, its ended containers and its folder."""
        for container in [each for each in self._containers.values() if each.sandbox is sandbox]:
            self.remove_container(container)
        self._sandboxes.pop(sandbox.id, None)
        shutil.rmtree(sandbox.folder, ignore_errors=True)

    async def exec_sync(
        self, container: Container, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        """Runs a command in the container's folder and environment, in a group of its own.

        The result is there when the command has ended and nobody holds its output any more. With
        `timeout_seconds` 0 there is no deadline. Cancelled, it kills what it started.

        Raises:
            NotRunning: the container does not run.
            CannotStart: the command cannot be started.
            ExecTimedOut: the deadline passed; the command and what it started were killed.
        """
        if container.state is not State.RUNNING:
            raise NotRunning(container.state.value)
        if not command:
            raise CannotStart(cannot_start(command, ValueError()))
        mark = f"{self._mark}/{container.id}/{secrets.token_hex(8)}"
        stdout = Output(limit_bytes=EXEC_OUTPUT_BYTES, keep_last=False)
        stderr = Output(limit_bytes=EXEC_OUTPUT_BYTES, keep_last=False)
        try:
            process = spawn(
                command,
                environment={**container.environment, MARK_VARIABLE: mark},
                folder=container.folder,
                stdout=stdout,
                stderr=stderr,
                kill_group_at_end=False,
            )
        except (OSError, ValueError) as error:
            raise CannotStart(cannot_start(command, error)) from error
        finished = False
        try:
            async with asyncio.timeout(timeout_seconds or None):
                exit_code = await process.wait()
                await stdout.wait_finished()
                await stderr.wait_finished()
            finished = True
        except TimeoutError:
            raise ExecTimedOut from None
        finally:
            if not finished:
                kill_survivors(mark)
                process.kill_group()
                await process.wait()
            stdout.close()
            stderr.close()
        return ExecResult(exit_code, stdout.data, stderr.data)

    async def _watch(self, container: Container, process: LocalProcess) -> None:
        exit_code = await process.wait()
        kill_survivors(f"{self._mark}/{container.id}")
        self._finish(container, exit_code, "Completed" if exit_code == 0 else "Error", "")

    def _finish(self, container: Container, exit_code: int, reason: str, message: str) -> None:
        container.state = State.EXITED
        container.finished_at = self._now()
        container.exit_code = exit_code
        container.reason = reason
        container.message = message
        container.ended.set()
        self._tell(Change.STOPPED, container)

    def _tell(self, change: Change, container: Container) -> None:
        for listener in tuple(self._listeners):
            listener(change, container)
