"""The embedded container runtime: sandboxes, containers and commands, all as local processes.

`cri_service` serves it over gRPC; the pod workers create and stop its containers.

Source: containerd pkg/cri (container and sandbox stores, exec_sync).
Differs: no images, no namespaces; a container's file system is a folder.
"""

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from kruise_probe.api.times import utc_now
from kruise_probe_playground.guardian import MARK_VARIABLE, kill_survivors
from kruise_probe_playground.node.container_log import ContainerLog
from kruise_probe_playground.node.containers import (
    CannotStart,
    ContainerConfig,
    ExecOutput,
    ExecTimedOut,
    LocalContainer,
    NoSuchContainer,
    NotRunning,
    Sandbox,
    cannot_start,
)
from kruise_probe_playground.node.processes import FirstBytes, LocalProcess, spawn

EXEC_OUTPUT_BYTES = 16 * 1024 * 1024
"""Maximum of each stream of an exec; containerd drops the rest."""

LAST_OUTPUT_SECONDS = 1.0
"""How long the end of a container waits for the end of its output: a process that left it may keep it open."""

START_FAILED_EXIT_CODE = 128
"""Exit code of a container whose command cannot be started, as in containerd."""


@asynccontextmanager
async def _killing(process: LocalProcess, mark: str) -> AsyncIterator[None]:
    """Kill a command and its child processes if the block is left by a deadline or a cancellation."""
    try:
        yield
    except BaseException:
        kill_survivors(mark)
        process.kill_group()
        await process.wait()
        raise


class LocalRuntime:
    """Owns the processes of its containers, and their folders below `folder`.

    `run` watches for the ends of containers. When it is cancelled, it kills all processes.
    """

    def __init__(
        self,
        *,
        folder: Path,
        mark: str,
        base_environment: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._mark = mark
        self._base_environment = base_environment
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, LocalContainer] = {}
        self._watching: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._watching = group
                await asyncio.Event().wait()
        finally:
            self._watching = None
            processes = [
                container.process for container in self._containers.values() if container.process
            ]
            for process in processes:
                process.kill_group()
            kill_survivors(self._mark)
            for process in processes:
                await process.wait()

    @property
    def sandboxes(self) -> Collection[Sandbox]:
        return self._sandboxes.values()

    @property
    def containers(self) -> Collection[LocalContainer]:
        return self._containers.values()

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """The sandbox with this id.

        Raises:
            NoSuchContainer: it does not exist.
        """
        if sandbox_id not in self._sandboxes:
            raise NoSuchContainer(sandbox_id)
        return self._sandboxes[sandbox_id]

    def container(self, container_id: str) -> LocalContainer:
        """The container with this id.

        Raises:
            NoSuchContainer: it does not exist.
        """
        if container_id not in self._containers:
            raise NoSuchContainer(container_id)
        return self._containers[container_id]

    def create_sandbox(
        self, *, namespace: str, name: str, uid: str, ip: str, labels: Mapping[str, str]
    ) -> Sandbox:
        """Create the sandbox and its folder.

        Raises:
            OSError: the folder cannot be made.
        """
        folder = self._folder / (name if namespace == "default" else f"{namespace}_{name}")
        if folder.exists():  # the previous pod of this name is still terminating
            folder = folder.with_name(f"{folder.name}_{uid}")
        folder.mkdir(parents=True)
        sandbox_id = secrets.token_hex(32)
        sandbox = Sandbox(
            sandbox_id,
            namespace,
            name,
            uid,
            ip,
            labels,
            folder,
            utc_now(),
        )
        self._sandboxes[sandbox_id] = sandbox
        return sandbox

    def start_container(
        self,
        sandbox: Sandbox,
        config: ContainerConfig,
        on_end: Callable[[LocalContainer], None],
    ) -> LocalContainer:
        """Start the process of a new container with an empty folder; earlier attempts must have ended.

        If the command cannot be started, the container has exited with the reason.

        Raises:
            OSError: the folder cannot be made.
        """
        assert self._watching, "start_container needs a running runtime"
        container_id = secrets.token_hex(32)
        folder = sandbox.folder / config.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        container = LocalContainer(
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
            created_at=utc_now(),
            log=ContainerLog(),
            ended=asyncio.Event(),
            on_end=on_end,
        )
        self._containers[container_id] = container
        try:
            container.process = spawn(
                container.config.command,
                environment=container.environment,
                folder=container.folder,
                stdout=container.log,
            )
        except (OSError, ValueError) as error:
            container.log.close()
            why = cannot_start(container.config.command, error, container.folder)
            self._finish(container, START_FAILED_EXIT_CODE, "StartError", why)
            return container
        container.started_at = utc_now()
        self._watching.create_task(
            self._watch(container, container.process), name=f"container {container.id[:8]}"
        )
        return container

    async def stop_container(self, container: LocalContainer, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period; return when the container has exited."""
        if container.process:
            await container.process.end(grace_seconds)
            await container.ended.wait()

    def remove_container(self, container: LocalContainer) -> None:
        """Remove an exited container. Its folder stays until the next attempt, or with the sandbox."""
        if self._containers.pop(container.id, None):
            container.log.close()

    def remove_sandbox(self, sandbox: Sandbox) -> None:
        """Remove the sandbox, its exited containers and its folder."""
        for container in [
            container for container in self._containers.values() if container.sandbox is sandbox
        ]:
            self.remove_container(container)
        self._sandboxes.pop(sandbox.id, None)
        shutil.rmtree(sandbox.folder, ignore_errors=True)

    async def exec_sync(
        self, container: LocalContainer, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecOutput:
        """Run a command in the container's folder and environment.

        Returns when the command has ended and its output is closed. `timeout_seconds` 0 is no deadline. Cancelling
        kills the command and its child processes.

        Raises:
            NotRunning: the container does not run.
            CannotStart: the command cannot be started.
            ExecTimedOut: the deadline passed; the command and its child processes were killed.
        """
        stdout = FirstBytes(EXEC_OUTPUT_BYTES)
        stderr = FirstBytes(EXEC_OUTPUT_BYTES)
        process, mark = self._start(
            container,
            command,
            stdout=stdout,
            stderr=stderr,
        )
        try:
            async with _killing(process, mark), asyncio.timeout(timeout_seconds or None):
                exit_code = await process.wait()
                await stdout.finished.wait()
                await stderr.finished.wait()
        except TimeoutError:
            raise ExecTimedOut from None
        finally:
            stdout.close()
            stderr.close()
        return ExecOutput(
            exit_code,
            bytes(stdout.kept),
            bytes(stderr.kept),
        )

    def exec(
        self, container: LocalContainer, command: Sequence[str], files: Sequence[int]
    ) -> Coroutine[Any, Any, int]:
        """Start a command with these files as stdin, stdout and stderr; what is returned waits for its exit code.

        Cancelling kills the command and its child processes.

        Raises:
            NotRunning, CannotStart: as `exec_sync`.
        """
        stdin, stdout, stderr = files
        process, mark = self._start(
            container,
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )

        async def wait() -> int:
            async with _killing(process, mark):
                return await process.wait()

        return wait()

    def _start(
        self, container: LocalContainer, command: Sequence[str], **streams: Any
    ) -> tuple[LocalProcess, str]:
        """Start a command of an exec; return its process and its mark."""
        if not container.running:
            raise NotRunning("container is in CONTAINER_EXITED state")
        mark = f"{self._mark}/{container.id}/{secrets.token_hex(8)}"
        environment = {**container.environment, MARK_VARIABLE: mark}
        try:
            if not command:
                raise ValueError
            process = spawn(
                command,
                environment=environment,
                folder=container.folder,
                kill_group_at_end=False,
                **streams,
            )
        except (OSError, ValueError) as error:
            raise CannotStart(cannot_start(command, error, container.folder)) from error
        return process, mark

    async def _watch(self, container: LocalContainer, process: LocalProcess) -> None:
        exit_code = await process.wait()
        kill_survivors(f"{self._mark}/{container.id}")
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_OUTPUT_SECONDS):
                await container.log.finished.wait()
        container.log.close()
        self._finish(
            container,
            exit_code,
            "Completed" if exit_code == 0 else "Error",
            "",
        )

    def _finish(
        self,
        container: LocalContainer,
        exit_code: int,
        reason: str,
        message: str,
    ) -> None:
        container.finished_at = utc_now()
        container.exit_code = exit_code
        container.reason = reason
        container.message = message
        container.ended.set()
        container.on_end(container)
