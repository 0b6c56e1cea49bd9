"""One of the product's own programs, run as a process of its own and started again when it ends.

Source: what a Deployment and a DaemonSet do for it in a cluster.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from kruise_probe.playground.node.processes import LocalProcess, spawn

SETTLED_SECONDS = 5.0
FAILED_STARTS = 3
"""A program that ends so often before it has settled does not work here: the playground gives up."""

RESTART_SECONDS = 0.5
GRACE_SECONDS = 5.0
USAGE_EXIT_CODE = 2
LOG_TAIL_BYTES = 4_096

log = structlog.get_logger(__name__)


class ChildFailed(Exception):
    """A program that does not stay alive; the text is its last word."""


class Child:
    """Keeps one program running while `run` runs, unless it was told to stay away.

    Args:
        log: file that its output is appended to.
        on_end: told the exit code when it has ended by itself.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        on_end: Callable[[str, int], None],
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._environment = environment
        self._on_end = on_end
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._process: LocalProcess | None = None
        self._started = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process and self._process.running else None

    async def run(self) -> None:
        """Runs until cancelled; then it is asked to end, and killed when it does not.

        Raises:
            ChildFailed: it ended again and again, or at once for wrong usage.
            OSError: it cannot be started at all.
        """
        loop = asyncio.get_running_loop()
        failed_starts = 0
        while True:
            await self._wanted.wait()
            began = loop.time()
            code = await self._run_once()
            if not self._wanted.is_set():
                failed_starts = 0
                continue
            self._on_end(self.name, code)
            failed_starts = 1 if loop.time() - began > SETTLED_SECONDS else failed_starts + 1
            if code == USAGE_EXIT_CODE or failed_starts == FAILED_STARTS:
                raise ChildFailed(
                    f"the {self.name} ended with exit code {code}: {self.last_line()}"
                )
            await asyncio.sleep(RESTART_SECONDS)

    async def _run_once(self) -> int:
        with self.log.open("ab") as output:
            process = self._process = spawn(
                self._command,
                environment=self._environment,
                folder=self.log.parent,
                stdout=output.fileno(),
            )
        self._started.set()
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await process.end(GRACE_SECONDS)
            raise
        finally:
            self._started.clear()

    async def until_running(self) -> None:
        """Returns once its process is there; whether it works is another question."""
        await self._started.wait()

    def start(self) -> None:
        """Lets it run again."""
        self._wanted.set()

    async def stop(self) -> None:
        """Asks it to end, and keeps it away until `start`."""
        await self._end(GRACE_SECONDS)

    async def kill(self) -> None:
        """Kills it as `kill -9` does, and keeps it away until `start`."""
        await self._end(0)

    async def _end(self, grace_seconds: float) -> None:
        self._wanted.clear()
        if self._process:
            await self._process.end(grace_seconds)

    def tail(self) -> str:
        """The end of its output."""
        try:
            with self.log.open("rb") as output:
                output.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
                return output.read().decode(errors="replace")
        except OSError:
            return ""

    def last_line(self) -> str:
        """The last thing that it said, for a message of one line."""
        lines = self.tail().strip().splitlines()
        return lines[-1] if lines else "it said nothing"
