"""The process that is measured: started from a command line, or in its place a peer."""

import asyncio
import os
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.control_plane import ControlPlane, in_pod
from support.programs import Program, fetch
from support.target import Target

from benchmarks import procfs

READY_SECONDS = 600.0

LOOK_SECONDS = 0.5
REST_SHARE = 0.03
"""A process that uses less of a processor is at rest."""


class Measured:
    """A running process, and what it has used since the last `lap`; at first, since its start."""

    def __init__(self, pid: int, ready_seconds: float, log: Path) -> None:
        self.pid = pid
        self.ready_seconds = ready_seconds
        self._log = log
        self._log_from = log.stat().st_size
        self._cpu = 0.0

    def lap(self) -> None:
        self._log_from = self._log.stat().st_size
        self._cpu = procfs.cpu_seconds(self.pid)
        procfs.reset_peak(self.pid)

    @property
    def cpu_seconds(self) -> float:
        return procfs.cpu_seconds(self.pid) - self._cpu

    @property
    def peak_mb(self) -> float:
        return procfs.peak_resident_mb(self.pid)

    @property
    def slow_steps(self) -> int:
        """Steps of over 50 ms of CPU, in which the process did nothing else; only kruise-probe logs them."""
        return self._log.read_bytes()[self._log_from :].count(b"slow step")


class Launcher:
    """Starts commands at one API server; with `as_pod` with a service account's files (root only)."""

    def __init__(
        self,
        plane: ControlPlane,
        api: Target,
        folder: Path,
        *,
        as_pod: bool,
    ) -> None:
        self._plane = plane
        self._api = api
        self._folder = folder
        self._as_pod = as_pod

    @asynccontextmanager
    async def running(
        self, name: str, command: str, ready: str, **placeholders: str
    ) -> AsyncIterator[Measured]:
        """Enters the block when the URL `ready` returns 200; both texts may have placeholders."""
        kubeconfig = str(self._plane.kubeconfig)
        ports = {
            "health": str(free_port()),
            "metrics": str(free_port()),
        }
        texts = {"kubeconfig": kubeconfig, **ports, **placeholders}
        words = shlex.split(command.format(**texts))
        environ = {
            "KUBECONFIG": kubeconfig,
            "NODE_NAME": placeholders.get("node", ""),
        }
        if self._as_pod:
            if "--kubeconfig" in words:  # without it, the program uses the service account
                at = words.index("--kubeconfig")
                del words[at : at + 2]
            account = await in_pod(
                self._plane,
                self._api,
                self._folder,
            )
            words = account.prepared(words)
            environ |= account.environ | {"KUBECONFIG": ""}
        started_at = asyncio.get_running_loop().time()
        log = self._folder / f"{name}.log"

        async def is_ready() -> bool:
            return (await fetch(ready.format(**texts)))[0] == 200

        async with running(
            name,
            words,
            log,
            environ,
        ) as program:
            await program.until("is ready", is_ready, seconds=READY_SECONDS)
            seconds = asyncio.get_running_loop().time() - started_at
            yield Measured(program.process.pid, seconds, log)


@asynccontextmanager
async def running(
    name: str, command: list[str], log: Path, environ: dict[str, str], *, cwd: Path | None = None
) -> AsyncIterator[Program]:
    """Runs a command with its output in `log`. `environ` is added to ours, which is passed on without PYTHONPATH."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=inherited | environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    program = Program(name, process, log, 0)
    try:
        yield program
    finally:
        await program.end()


async def until_at_rest(pid: int, *, seconds: float, give_up_seconds: float) -> float:
    """Waits until a process has used almost no CPU for `seconds`. Returns the loop time since when."""
    loop = asyncio.get_running_loop()
    now = busy_at = loop.time()
    give_up_at = now + give_up_seconds
    while now - busy_at < seconds and now < give_up_at:
        used = procfs.cpu_seconds(pid)
        await asyncio.sleep(LOOK_SECONDS)
        now = loop.time()
        if procfs.cpu_seconds(pid) - used > REST_SHARE * LOOK_SECONDS:
            busy_at = now
    return busy_at


def free_port() -> int:
    """Peers cannot report the port that they chose, so it is chosen here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
