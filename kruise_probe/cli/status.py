"""`kruise-probe status`: shows probes, results and problems."""

import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import click
import msgspec

from kruise_probe.api.errors import FatalError
from kruise_probe.cli.completion import complete_markers
from kruise_probe.cli.flag_types import GO_BOOL, FlagCommand, flag
from kruise_probe.cli.query_client import client_of, run_query
from kruise_probe.cli.query_options import (
    MARKER_KINDS,
    SelectingFlags,
    document_text,
    name_of,
    not_found,
    query_flags,
    show,
)
from kruise_probe.cli.tables import screen_text, status_text
from kruise_probe.cli.terminal import Terminal
from kruise_probe.client.config import ClusterConfig
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import status_view
from kruise_probe.inspection.views import StatusView
from kruise_probe.serving.signals import Signalled, until_signal

MIN_REDRAW_SECONDS: Final = 0.5
"""Minimum interval between two updates of --watch."""
MAX_REDRAW_SECONDS: Final = 1.0
"""Maximum interval between two updates: ages change, and results become stale, without any event."""

_HELP = """Shows PodProbeMarkers with their pods, probes, newest results and problems.

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

Reads only. The exit code is 0 even if a marker has problems; -o json lists them.
"""


@dataclass(frozen=True, kw_only=True)
class StatusFlags(SelectingFlags):
    """The command line."""

    all_namespaces: bool = flag(
        "Read all namespaces.",
        GO_BOOL,
        False,
        names=("-A", "--all-namespaces"),
        env=False,
    )
    watch: bool = flag(
        "Continue and show every change.",
        GO_BOOL,
        False,
        names=("-w", "--watch"),
        env=False,
    )


GetView = Callable[[], StatusView]


class StatusQuery(NamedTuple):
    """The arguments of the command; an empty `namespace` means all, no `names` means all markers."""

    namespace: str
    names: frozenset[str]
    flags: StatusFlags


@click.command(cls=FlagCommand, help=_HELP)
@click.argument("markers", metavar="[MARKER]...", nargs=-1, shell_complete=complete_markers)
@query_flags(StatusFlags, "table", "wide", "json", "yaml")
def status(markers: tuple[str, ...], **options: Any) -> int:
    flags = StatusFlags(**options)
    if flags.all_namespaces and (flags.namespace or markers):
        raise click.UsageError("-A excludes -n and names of markers")
    hint = "status takes markers; for a pod run: kruise-probe explain POD"
    names = frozenset(name_of(each, MARKER_KINDS, hint) for each in markers)
    config = flags.load_config()
    where = "" if flags.all_namespaces else flags.namespace or config.namespace
    query = StatusQuery(where, names, flags)
    return run_query(_watch(config, query) if flags.watch else _once(config, query), config)


async def _once(config: ClusterConfig, query: StatusQuery) -> int:
    async with client_of(config) as client:
        reader = query.flags.reader(client, query.namespace)
        snapshot = await reader.read()
    _check_names(snapshot, query)
    view = _view(snapshot, query, reader.notes)
    show(_text(view, query))
    if not view.markers:
        where = f"namespace {query.namespace}" if query.namespace else "any namespace"
        elsewhere = "; -A reads all namespaces" if query.namespace else ""
        labels = " with these labels" if query.flags.selector else ""
        click.echo(f"No PodProbeMarkers{labels} in {where}{elsewhere}.", err=True)
    return 0


async def _watch(config: ClusterConfig, query: StatusQuery) -> int:
    """Run until a signal. In screen mode, restore the terminal and return 128 + the signal's number."""
    async with client_of(config) as client:
        reader = query.flags.reader(client, query.namespace)
        first = await reader.read()
        _check_names(first, query)
        async with reader.follow(first) as following:

            def current() -> StatusView:
                return _view(following.snapshot(), query, [*reader.notes, *following.notes()])

            terminal = Terminal.of_stdout()
            if not terminal.height or query.flags.output not in ("table", "wide"):
                await _print_changes(current, following.changed, query)
            else:
                try:
                    await until_signal(_show_screen(current, following.changed, query))
                except Signalled as signalled:
                    return 128 + signalled.number
    return 0


async def _show_screen(current: GetView, changed: asyncio.Event, query: StatusQuery) -> None:
    """Draw until cancelled.

    Raises:
        Signalled: the terminal is closed; its SIGHUP may arrive later or never.
    """
    wide = query.flags.output == "wide"
    try:
        try:
            _draw(_ENTER_SCREEN)
            while True:
                changed.clear()
                text = screen_text(current(), Terminal.of_stdout(), wide=wide)
                _draw("\x1b[H" + text.replace("\n", "\x1b[K\r\n") + "\x1b[J")
                await _wait_for_update(changed)
        finally:
            _draw(_LEAVE_SCREEN)
    except OSError as error:
        raise Signalled(signal.SIGHUP) from error


_ENTER_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
"""The alternate screen of the terminal, without a cursor."""
_LEAVE_SCREEN: Final = "\x1b[?25h\x1b[?1049l"


def _draw(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def _print_changes(current: GetView, changed: asyncio.Event, query: StatusQuery) -> None:
    """Print every change until cancelled; a new time alone is no change. JSON is one line per change."""
    shown: StatusView | None = None
    while True:
        changed.clear()
        view = current()
        if shown is None or (view.markers, view.notes) != (shown.markers, shown.notes):
            if query.flags.output == "json":
                click.echo(msgspec.json.encode(view))
            else:
                if shown is not None:
                    click.echo("---" if query.flags.output == "yaml" else "")
                show(_text(view, query))
            shown = view
        await _wait_for_update(changed)


async def _wait_for_update(changed: asyncio.Event) -> None:
    await asyncio.sleep(MIN_REDRAW_SECONDS)
    try:
        async with asyncio.timeout(MAX_REDRAW_SECONDS - MIN_REDRAW_SECONDS):
            await changed.wait()
    except TimeoutError:
        pass


def _check_names(snapshot: Snapshot, query: StatusQuery) -> None:
    """Raise FatalError if a marker that the user names does not exist."""
    existing = [each.key.name for each in snapshot.markers]
    for name in sorted(query.names.difference(existing)):
        raise FatalError(not_found("PodProbeMarker", query.namespace, name, existing))


def _view(snapshot: Snapshot, query: StatusQuery, notes: list[str]) -> StatusView:
    selector = query.flags.selector
    markers = [
        each
        for each in snapshot.markers
        if (not query.names or each.key.name in query.names)
        and (selector is None or selector.matches(each.metadata.labels or {}))
    ]
    return status_view(snapshot, markers, notes)


def _text(view: StatusView, query: StatusQuery) -> str:
    if query.flags.output in ("json", "yaml"):
        return document_text(view, query.flags.output)
    terminal = Terminal.of_stdout()._replace(height=0)
    return status_text(view, terminal, wide=query.flags.output == "wide")
