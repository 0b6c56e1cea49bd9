"""Shows a running playground: live on a terminal, as lines elsewhere, or as the result of `--check`."""

import asyncio
import shutil
import sys
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.live import Live

from kruise_probe.api.times import utc_now
from kruise_probe.inspection.status import status_view
from kruise_probe_playground.board import Board, reader_of
from kruise_probe_playground.check import Progress
from kruise_probe_playground.problems import ProblemSummary, summaries
from kruise_probe_playground.session import Playground
from kruise_probe_playground.ticker import Line
from kruise_probe_playground.view import LiveView, Shown, plain_line

REMEMBERED_LINES = 500
SAMPLE_POD = "game-0"
DRAWS_PER_SECOND = 4


def hints(playground: Playground) -> list[str]:
    """Commands for a second terminal, one a line, short enough to be copied from 80 columns."""
    lines = [f"export KUBECONFIG={quote(str(playground.kubeconfig))}  # Ctrl-C here: stop"]
    if shutil.which("kruise-probe") is None:
        lines.append(f"export PATH={quote(str(Path(sys.executable).parent))}:$PATH")
    lines.append("kubectl get pods --show-labels -w  # watch")
    sandboxes = [each.config for node in playground.nodes for each in node.runtime.sandboxes]
    if sandboxes:
        pod = min(sandboxes, key=lambda each: each.name)
        where = "" if pod.namespace == "default" else f" -n {pod.namespace}"
        lines.append(f"kruise-probe explain {pod.name}{where}  # why")
        if pod.name == SAMPLE_POD:
            lines.append(f"kubectl exec {pod.name} -- touch hold  # change it")
            lines.append(f"kubectl exec {pod.name} -- sh -c 'echo 5 > players'")
        else:
            lines.append(f"kubectl exec -it {pod.name}{where} -- sh  # change it")
    return lines


class ChangeLog:
    """The newest lines with their times, bounded."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self.lines: deque[tuple[datetime, Line]] = deque(maxlen=REMEMBERED_LINES)
        self.count = 0

    def add(self, line: Line) -> None:
        self.lines.append((self._now(), line))
        self.count += 1


async def problems_of(playground: Playground) -> list[ProblemSummary]:
    """The problems that need action now."""
    snapshot = await reader_of(playground.client).read()
    return list(summaries(status_view(snapshot, snapshot.markers, ())))


async def show_live(playground: Playground, changes: ChangeLog, console: Console) -> None:
    """Draw until cancelled."""
    board = Board(playground.client, changes.add)

    def view() -> LiveView:
        lines = list(changes.lines)
        return LiveView(Shown(board.rows, lines, hints(playground), utc_now(), board.problems))

    async with asyncio.TaskGroup() as group:
        group.create_task(board.run(), name="board")
        with Live(
            view(),
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            while True:
                await asyncio.sleep(1 / DRAWS_PER_SECOND)
                live.update(view(), refresh=True)


async def show_lines(playground: Playground, write: Callable[[str], None]) -> None:
    """Write a line for every change until cancelled, and the hints as soon as they are known."""
    written: set[str] = set()

    def write_line(line: Line | None) -> None:
        for hint in hints(playground):
            if hint not in written:
                written.add(hint)
                write(hint)
        if line:
            write(plain_line((utc_now(), line)))

    write_line(None)
    await Board(playground.client, write_line).run()


async def check(playground: Playground, *, wanted: int, deadline: float) -> Progress:
    """Observe until each probe has had `wanted` states, or until loop time `deadline`."""
    board = Board(playground.client)
    progress = Progress(wanted=wanted)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(board.run(), name="board")
        try:
            async with asyncio.timeout_at(deadline):
                while not progress.complete:
                    await board.changed.wait()
                    board.changed.clear()
                    if board.snapshot:
                        progress.observe(board.snapshot, board.events)
        except TimeoutError:
            pass
        running.cancel()
    return progress
