"""The process that is measured: started from a command line, waited for, and ended by its own pid."""

import asyncio
import os
import shlex
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks import procfs

READY_SECONDS = 120.0
END_SECONDS = 30.0


class NotReady(Exception):
    """The command ended, or said for too long that it is not ready."""


class Measured:
    """A running process, with what it used since the last `lap`; at first, since its start."""

    def __init__(self, pid: int, ready_seconds: float) -> None:
        self.pid = pid
        self.ready_seconds = ready_seconds
        self._cpu = self._system = 0.0

    def lap(self) -> None:
        self._cpu = procfs.cpu_seconds(self.pid)
        self._system = procfs.system_seconds(self.pid)
        procfs.reset_peak(self.pid)

    @property
    def cpu_seconds(self) -> float:
        return procfs.cpu_seconds(self.pid) - self._cpu

    @property
    def system_seconds(self) -> float:
        return procfs.system_seconds(self.pid) - self._system

    @property
    def peak_mb(self) -> float:
        return procfs.peak_resident_mb(self.pid)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running(
    command: str, *, ready_url: str, log: Path, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Measured]:
    """Runs `command` (no shell) until the block ends, and enters it when `ready_url` answers 200.

    Raises:
        NotReady: with the end of its output.
    """
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment | dict(environ or {}),
        )
    try:
        while not await asyncio.to_thread(_answers, ready_url):
            if process.returncode is not None or loop.time() > started_at + READY_SECONDS:
                raise NotReady(
                    f"{command}: not ready, exit code {process.returncode}\n{_tail(log)}"
                )
            await asyncio.sleep(0.02)
        yield Measured(process.pid, loop.time() - started_at)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # of a command that the caller gave
            status: int = answer.status
            return status == 200
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
