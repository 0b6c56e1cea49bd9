"""Local processes: started in their own session, watched without threads, ended as a group.

Source: containerd runtime/v2/shim for the end of a main process.
Differs: no namespaces; a process that left the group is found by its mark (see `guardian`).
"""

import asyncio
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

READ_BYTES = 65_536


class Output(ABC):
    """Reads the output of a process; `take` keeps what it needs of it.

    `finished` is set when all writing ends are closed, or `close` was called.
    """

    def __init__(self) -> None:
        self._reading: int | None = None
        self.finished = asyncio.Event()

    @abstractmethod
    def take(self, chunk: bytes) -> None:
        """Keep the next bytes of the output, or some of them."""

    def open(self) -> int:
        """Start reading; return the writing end, which the caller closes after it started the process."""
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        asyncio.get_running_loop().add_reader(self._reading, self._read)
        return writing

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            asyncio.get_running_loop().remove_reader(self._reading)
            os.close(self._reading)
            self._reading = None
        self.finished.set()

    def _read(self) -> None:
        if self._reading is None:
            return
        try:
            chunk = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self.take(chunk)
        else:
            self.close()


class FirstBytes(Output):
    """The first `limit_bytes` of the output, in `kept`. The rest is read and dropped."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self.kept = bytearray()

    def take(self, chunk: bytes) -> None:
        self.kept += chunk[: self._limit_bytes - len(self.kept)]


class LocalProcess:
    """A process that leads its own session and group; made by `spawn`."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self.pid = popen.pid
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)
        self._exited = asyncio.Event()
        self._exit_code = 0

    @property
    def running(self) -> bool:
        return not self._exited.is_set()

    async def wait(self) -> int:
        """Wait for its end; return the exit code, or 128 + the number of the signal, as for containers."""
        await self._exited.wait()
        return self._exit_code

    def kill_group(self) -> None:
        """Kill its process group; do nothing if the leader has ended."""
        if self.running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def end(self, grace_seconds: float) -> int:
        """Send SIGTERM, and SIGKILL to the group if it still runs after `grace_seconds`, or on cancellation."""
        if grace_seconds > 0 and self.running:  # not reaped, so the pid is not reused
            os.kill(self.pid, signal.SIGTERM)
            try:
                # In a cancelled task, `asyncio.timeout` of Python 3.11.2 raises no TimeoutError.
                return await asyncio.wait_for(self.wait(), grace_seconds)
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                self.kill_group()
                raise
        self.kill_group()
        return await self.wait()

    def watch(self, *, kill_group_at_end: bool) -> None:
        """Watch for its end; with `kill_group_at_end`, kill the rest of its group then."""

        def on_exit() -> None:
            loop.remove_reader(self._pidfd)
            if kill_group_at_end:
                self.kill_group()  # before it is reaped below, so the pid is not reused
            code = self._popen.wait()
            os.close(self._pidfd)
            self._exit_code = code if code >= 0 else 128 - code
            self._exited.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, on_exit)


def spawn(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    stdout: Output | int,
    stderr: Output | int = subprocess.STDOUT,
    stdin: int = subprocess.DEVNULL,
    kill_group_at_end: bool = True,
) -> LocalProcess:
    """Start a process. This blocks the loop for one or two milliseconds.

    Raises:
        OSError: no such file or folder, or not executable.
    """
    with ExitStack() as opened:

        def writing_end(output: Output | int) -> int:
            descriptor = output if isinstance(output, int) else output.open()
            if not isinstance(output, int):
                opened.callback(os.close, descriptor)
            return descriptor

        popen = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=writing_end(stdout),
            stderr=writing_end(stderr),
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    process = LocalProcess(popen)
    process.watch(kill_group_at_end=kill_group_at_end)
    return process
