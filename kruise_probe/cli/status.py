"""`kruise-probe status`: shows probes, results and problems."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

import click
import msgspec

from kruise_probe.api.errors import FatalError
from kruise_probe.cli.flag_types import flag_command, switch
from kruise_probe.cli.query import (
    SelectingFlags,
    marker_argument,
    not_found,
    output_flag,
    print_view,
)
from kruise_probe.cli.reading import Reader
from kruise_probe.cli.screen import Scroll, keys
from kruise_probe.cli.tables import status_lines
from kruise_probe.cli.terminal import Terminal
from kruise_probe.cli.watch_text import screen_text
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe.inspection.views import StatusView
from kruise_probe.runtime.process import HANGUP, Signalled, until_signal

MIN_REDRAW_SECONDS: Final = 0.5
"""Minimum interval between two updates of --watch."""
MAX_REDRAW_SECONDS: Final = 1.0
"""Maximum interval between two updates: ages change, and results become stale, without any event."""


@dataclass(frozen=True, kw_only=True)
class StatusFlags(SelectingFlags):
    """The command line."""

    markers: tuple[str, ...] = marker_argument(
        "[MARKER]...", "status takes markers; for a pod run: kruise-probe explain POD", nargs=-1
    )
    output: str = output_flag(
        "table",
        "wide",
        "json",
        "yaml",
    )
    all_namespaces: bool = switch("Read all namespaces.", names=("-A", "--all-namespaces"))
    watch: bool = switch("Continue and show every change.", names=("-w", "--watch"))

    def view(self, snapshot: Snapshot, notes: Sequence[str]) -> StatusView:
        """The view of the chosen markers."""
        chosen = list(snapshot.markers)
        if self.markers:
            chosen = [marker for marker in chosen if marker.key.name in self.markers]
        if self.selector:
            matches = self.selector.matches
            chosen = [marker for marker in chosen if matches(marker.metadata.labels)]
        return status_view(snapshot, chosen, notes)

    def print(self, view: StatusView) -> None:
        """Print the view in the form of --output."""
        print_view(
            view,
            self.output,
            partial(status_lines, view, wide=self.output == "wide"),
        )


GetView = Callable[[], StatusView]


@flag_command(StatusFlags)
def status(flags: StatusFlags) -> int:
    """Shows PodProbeMarkers with their pods, probes, newest results and problems.

    \b
    kruise-probe status                 the markers of the namespace
    kruise-probe status -A --watch      all namespaces, with changes
    kruise-probe status -l app=game     markers with this label
    kruise-probe status game lobby      two markers
    kruise-probe status game -o wide    with the effective numbers of each probe
    kruise-probe status game -o json    for programs; a documented, stable format

    \b
    STATE    Succeeded, Failed or Unknown; Pending before the first result
    SINCE    age of this state
    MARKS    labels and annotations that the probe wrote to the pod
    LAST     age of the last published attempt; an unchanged result is
             published every 10 minutes
    NODE     node of the pod; narrow terminals show neither LAST nor NODE
    MESSAGE  output of the probe, or why it failed

    On a terminal, --watch scrolls with the arrows, PgUp and PgDn, and ends with q.

    Reads only. The exit code is 0 even if a marker has problems; -o json lists them. All reasons:

    \b
    https://github.com/kruise-probe/kruise-probe/blob/main/docs/reasons.md
    """
    if flags.all_namespaces and (flags.namespace or flags.markers):
        raise click.UsageError("-A excludes -n and names of markers")
    return flags.run(
        partial(_status, flags),
        namespace="" if flags.all_namespaces else None,
    )


async def _status(flags: StatusFlags, reader: Reader) -> int:
    first = await reader.read()
    existing = [marker.key.name for marker in first.markers]
    for name in sorted(set(flags.markers).difference(existing)):
        raise FatalError(not_found("PodProbeMarker", reader.namespace, name, existing))
    if flags.watch:
        return await _watch(flags, reader, first)
    view = flags.view(first, reader.notes)
    flags.print(view)
    if not view.markers:
        where = "any namespace"
        if reader.namespace:
            where = f"namespace {reader.namespace}; -A reads all namespaces"
        labels = " with these labels" if flags.selector else ""
        click.echo(
            f"No PodProbeMarkers{labels} in {where}.",
            err=True,
        )
    return 0


async def _watch(flags: StatusFlags, reader: Reader, first: Snapshot) -> int:
    """Run until a signal. In screen mode, restore the terminal and return 128 + the signal's number."""
    async with reader.follow(first) as following:

        def current() -> StatusView:
            return flags.view(
                following.snapshot(),
                [
                    *reader.notes,
                    *following.notes(),
                ],
            )

        if not Terminal.of_stdout().height or flags.output not in ("table", "wide"):
            await _print_changes(current, following.changed, flags)
        try:
            await until_signal(_show_screen(current, following.changed, flags))
        except Signalled as signalled:
            return 128 + signalled.number
    return 0


async def _show_screen(
    current: GetView,
    changed: asyncio.Event,
    flags: StatusFlags,
) -> None:
    """Draw until the key q, or until cancelled.

    Raises:
        Signalled: the terminal is closed; its SIGHUP may arrive later or never.
    """
    wide = flags.output == "wide"
    scroll = Scroll()
    pressed = asyncio.Event()
    ended = False

    def press(key: str) -> None:
        nonlocal ended
        ended = ended or key == "quit"
        scroll.press(key)
        pressed.set()
        changed.set()

    try:
        try:
            _draw(_ENTER_SCREEN)
            with keys(press):
                while not ended:
                    changed.clear()
                    pressed.clear()
                    text = screen_text(
                        current(),
                        Terminal.of_stdout(),
                        scroll,
                        wide=wide,
                    )
                    _draw("\x1b[H" + text.replace("\n", "\x1b[K\r\n") + "\x1b[K\x1b[J")
                    await _wait_for_update(changed, pressed)
        finally:
            _draw(_LEAVE_SCREEN)
    except OSError as error:
        raise Signalled(HANGUP) from error


_ENTER_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
"""The alternate screen of the terminal, without a cursor."""
_LEAVE_SCREEN: Final = "\x1b[?25h\x1b[?1049l"


def _draw(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _print_changes(
    current: GetView,
    changed: asyncio.Event,
    flags: StatusFlags,
) -> NoReturn:
    """Print every change until cancelled; a new time alone is no change. JSON is one line per change."""
    shown: StatusView | None = None
    while True:
        changed.clear()
        view = current()
        if shown is None or (view.markers, view.notes) != (shown.markers, shown.notes):
            if flags.output == "json":
                click.echo(msgspec.json.encode(view))
            else:
                if shown is not None:
                    click.echo("---" if flags.output == "yaml" else "")
                flags.print(view)
            shown = view
        await _wait_for_update(changed, asyncio.Event())


async def _wait_for_update(changed: asyncio.Event, pressed: asyncio.Event) -> None:
    """Return after a key at once, after a change when the last update is old enough, and in any case after a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(MIN_REDRAW_SECONDS):
            await pressed.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(MAX_REDRAW_SECONDS - MIN_REDRAW_SECONDS):
            await changed.wait()
