"""The manager and the daemons as child processes, started with their own command lines and restarted when they end.

Each takes a free port when it starts, and logs it: a port chosen here could be taken by then.

Source: what a Deployment and a DaemonSet do in a cluster.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from kruise_probe.api.times import loop_time
from kruise_probe_playground.guardian import MARK_VARIABLE
from kruise_probe_playground.node.embedded_node import EmbeddedNode
from kruise_probe_playground.node.processes import LocalProcess, spawn
from kruise_probe_playground.workspace import Workspace

SETTLED_SECONDS = 5.0
FAILED_STARTS = 3
"""Consecutive ends within `SETTLED_SECONDS` of a start after which the playground fails."""

RESTART_SECONDS = 0.5
GRACE_SECONDS = 5.0
USAGE_EXIT_CODE = 2

_log = structlog.get_logger(__name__)


class ChildFailed(Exception):
    """A program ends repeatedly; the text contains the last line of its log."""


class Child:
    """Keeps one program running while `run` runs.

    Args:
        log: the file for its output.
        on_end: called with the name and the exit code when the program ends by itself.
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
        self._process: LocalProcess | None = None

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return self._process.pid if self._process and self._process.running else None

    async def run(self) -> None:
        """Run until cancelled; then send SIGTERM, and SIGKILL after a grace period.

        Raises:
            ChildFailed: it ended repeatedly, or rejected its command line.
            OSError: it cannot be started.
        """
        failed_starts = 0
        while True:
            began = loop_time()
            code = await self._run_once()
            self._on_end(self.name, code)
            failed_starts = 1 if loop_time() - began > SETTLED_SECONDS else failed_starts + 1
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
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await process.end(GRACE_SECONDS)
            raise

    def last_line(self) -> str:
        """The last line of its output."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it logged nothing"


OnEnd = Callable[[str, int], None]

_OWN_SETTINGS: Final = ("KRUISE_PROBE_", "KUBECONFIG", "NODE_NAME", "POD_NAMESPACE")
"""Variables that configure the programs; the playground sets them itself."""


def manager(kubeconfig: Path, place: Workspace, *, on_end: OnEnd) -> Child:
    """The manager. It is the only one, so leader election is off."""
    flags = (
        "--metrics-addr=127.0.0.1:0",
        "--health-probe-addr=127.0.0.1:0",
        "--enable-leader-election=false",
    )
    return _child("manager", "manager", flags, kubeconfig, place, on_end)


def daemon(
    kubeconfig: Path,
    place: Workspace,
    node: EmbeddedNode,
    *,
    on_end: OnEnd,
) -> Child:
    """The daemon of one node, connected to the node's socket."""
    flags = (
        "--addr=127.0.0.1:0",
        f"--node-name={node.name}",
        f"--cri-endpoint={node.cri_endpoint}",
    )
    return _child(
        f"daemon of {node.name}",
        "daemon",
        flags,
        kubeconfig,
        place,
        on_end,
    )


def _child(
    name: str, mode: str, flags: tuple[str, ...], kubeconfig: Path, place: Workspace, on_end: OnEnd
) -> Child:
    file_name = name.replace(" of ", "-")
    others = {key: value for key, value in os.environ.items() if not key.startswith(_OWN_SETTINGS)}
    return Child(
        name,
        (sys.executable, "-m", "kruise_probe", mode, f"--kubeconfig={kubeconfig}", *flags),
        environment={
            **others,
            MARK_VARIABLE: f"{place.mark}/{file_name}",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(place.folder),  # the kubernetes package copies the certificate there
        },
        log=place.folder / f"{file_name}.log",
        on_end=on_end,
    )
