"""Follows a running playground and shows it: live on a terminal, as lines elsewhere, or as the result of `--check`."""

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from shlex import quote

from rich.console import Console
from rich.live import Live

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.times import loop_time, utc_now
from kruise_probe.cli.reading import Reader
from kruise_probe.cli.screen import Scroll, keys
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe_playground.check import Progress
from kruise_probe_playground.node.pods import NODE_PODS
from kruise_probe_playground.rows import PodRow, ProblemSummary, pod_rows, summaries
from kruise_probe_playground.session import Playground
from kruise_probe_playground.ticker import POD_EVENTS, Line, PodEvent, changes, event_line
from kruise_probe_playground.view import FOLDED_HINT, HINTS_SECONDS, LiveView, plain_line

SETTLE_SECONDS = 0.2
"""A result reaches the pod in a second write. After this delay both are one change."""

REMEMBERED_LINES = 500
SAMPLE_POD = "game-0"
DRAWS_PER_SECOND = 4


def hints(playground: Playground) -> list[str]:
    """Commands for a second terminal, one a line, short enough to be copied from 60 columns.

    A label follows `;`, because a zsh without INTERACTIVE_COMMENTS passes the words of a comment to the command.
    """
    lines = [f"export KUBECONFIG={quote(str(playground.kubeconfig))}"]
    if shutil.which("kruise-probe") is None:
        lines.append(f"export PATH=$PATH:{quote(str(playground.folder))}")
    lines.append("kubectl get pods --show-labels -w; # watch")
    sandboxes = [sandbox for node in playground.nodes for sandbox in node.runtime.sandboxes]
    if sandboxes:
        pod = min(sandboxes, key=lambda each: each.name)
        where = "" if pod.namespace == "default" else f" -n {pod.namespace}"
        lines.append(f"kruise-probe explain {pod.name}{where}; # why")
        if pod.name == SAMPLE_POD:
            lines.append(f"kubectl exec {pod.name} -- touch hold; # hold its state")
            lines.append(f"kubectl exec {pod.name} -- sh -c 'echo 5 > players'; # change it")
        else:
            lines.append(f"kubectl exec -it {pod.name}{where} -- sh; # change it")
    return lines


class Board:
    """The current objects while `run` runs.

    Args:
        on_line: called with a line for each change.

    Attributes:
        changed: set after every change.
        snapshot: None before the first.
        rows: by namespace and name.
        problems: those that need action.
    """

    snapshot: Snapshot | None = None
    rows: Sequence[PodRow] = ()
    problems: Sequence[ProblemSummary] = ()

    def __init__(
        self, client: RestClient, on_line: Callable[[Line], None] = lambda _: None
    ) -> None:
        self.changed = asyncio.Event()
        self._client = client
        self._on_line = on_line
        self._stale = asyncio.Event()
        self._pods = SharedInformer(ResourceListerWatcher(client, NODE_PODS), name="pods")
        self._events = SharedInformer(ResourceListerWatcher(client, POD_EVENTS), name="events")
        self._pods.add_event_handler(self)
        self._events.add_event_handler(self)

    async def run(self) -> None:
        """Run until cancelled."""
        reader = Reader(self._client, namespace="", system_namespace=SYSTEM_NAMESPACE)
        first = await reader.read()
        async with reader.follow(first) as following, asyncio.TaskGroup() as group:
            self._stale = following.changed
            for informer in (self._pods, self._events):
                group.create_task(
                    informer.run(),
                    name=f"board {informer.name}",
                )
            while True:
                following.changed.clear()
                self._refresh(following.snapshot())
                await following.changed.wait()
                await asyncio.sleep(SETTLE_SECONDS)

    @property
    def events(self) -> list[PodEvent]:
        return list(self._events.lister.list())

    def on_add(self, obj: object, is_initial: bool) -> None:
        if isinstance(obj, PodEvent) and _has_own_line(obj):
            self._on_line(event_line(obj))
        self._stale.set()

    def on_update(self, old: object, new: object) -> None:
        self.on_add(new, False)

    def on_delete(self, last_known: object) -> None:
        self._stale.set()

    def _refresh(self, snapshot: Snapshot) -> None:
        view = status_view(snapshot, snapshot.markers, ())
        before = {row.title: row for row in self.rows}
        self.rows = pod_rows(
            self._pods.lister.list(),
            view,
            snapshot.pods_by_key,
        )
        after = {row.title: row for row in self.rows}
        for title in sorted(before.keys() | after.keys()):
            for line in changes(before.get(title), after.get(title)):
                self._on_line(line)
        self.problems = summaries(view)
        self.snapshot = snapshot
        self.changed.set()


def _has_own_line(event: PodEvent) -> bool:
    """Events of kruise-probe repeat a new state, which has a line already."""
    return event.involved_object.kind == "Pod" and not event.reason.startswith("KruiseProbe")


class ChangeLog:
    """The newest lines with their times, bounded."""

    def __init__(self) -> None:
        self.lines: deque[tuple[datetime, Line]] = deque(maxlen=REMEMBERED_LINES)
        self.count = 0

    def add(self, line: Line) -> None:
        self.lines.append((utc_now(), line))
        self.count += 1


async def show_live(playground: Playground, changes: ChangeLog, console: Console) -> None:
    """Draw until the key q, or until cancelled."""
    board = Board(playground.client, changes.add)
    scroll = Scroll()
    pressed: asyncio.Queue[str] = asyncio.Queue()
    fold_at = loop_time() + HINTS_SECONDS

    def view() -> LiveView:
        shown = [FOLDED_HINT]
        if loop_time() < fold_at:
            shown = [*hints(playground), "# here: arrows scroll, c folds this, q stops"]
        return LiveView(board.rows, list(changes.lines), shown, utc_now(), board.problems, scroll)

    async with asyncio.TaskGroup() as group:
        following = group.create_task(board.run(), name="board")
        with (
            keys(pressed.put_nowait),
            Live(
                view(),
                console=console,
                screen=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            ) as live,
        ):
            key = ""
            while key != "quit":
                key = ""
                with suppress(TimeoutError):
                    key = await asyncio.wait_for(pressed.get(), 1 / DRAWS_PER_SECOND)
                scroll.press(key)
                if key == "commands":
                    folded = loop_time() >= fold_at
                    fold_at = loop_time() + (HINTS_SECONDS if folded else 0)
                live.update(view(), refresh=True)
        following.cancel()


async def show_lines(
    playground: Playground, changes: ChangeLog, write: Callable[[str], None]
) -> None:
    """Write a line for every change until cancelled, and the hints as soon as they are known."""
    written: set[str] = set()

    def write_line(line: Line | None) -> None:
        for hint in (*hints(playground), "# Ctrl-C here: stop"):
            if hint not in written:
                written.add(hint)
                write(hint)
        if line:
            changes.add(line)
            write(plain_line(changes.lines[-1]))

    write_line(None)
    await Board(playground.client, write_line).run()


async def check(
    playground: Playground, *, wanted: int, deadline: float
) -> tuple[Progress, Sequence[ProblemSummary]]:
    """Observe until each probe has had `wanted` states, or until loop time `deadline`. The problems are the last ones."""
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
    return progress, board.problems
