"""`kruise-probe status`: shows probes, results and problems."""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from kruise_probe.api.errors import FatalError
from kruise_probe.api.names import GROUP
from kruise_probe.cli.looking import (
    document_text,
    not_found,
    output_option,
    terminal_width,
    where_flags,
)
from kruise_probe.cli.naming import complete_markers
from kruise_probe.cli.reading import Reader, client_of, run
from kruise_probe.cli.tables import status_text
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.status import StatusView, status_view
from kruise_probe.serving.signals import Signalled, until_signal

PACE_SECONDS: Final = 0.5
"""Minimum interval between two updates of --watch."""
REDRAW_SECONDS: Final = 1.0
"""Maximum interval between two updates: ages change, and results become stale, without any event."""

_HELP = """Shows PodProbeMarkers with their pods, probes, newest results and problems.

\b
kruise-probe status                      the markers of the namespace
kruise-probe status -A --watch           all namespaces, with changes
kruise-probe status game -o wide         with the effective numbers of each probe
kruise-probe status game -o json         for programs; a documented and stable format

Reads only. The exit code is 0 even if a marker has problems; -o json lists them.
"""


Look = Callable[[], Snapshot]
Notes = Callable[[], list[str]]


class Question(NamedTuple):
    """The arguments of the command; an empty `namespace` means all."""

    namespace: str
    marker: str
    form: str
    system_namespace: str
    allowed_labels: frozenset[str]


@click.command(help=_HELP, short_help="Show probes, results and problems.")
@click.argument("marker", required=False, default="", shell_complete=complete_markers)
@where_flags
@click.option("-A", "--all-namespaces", is_flag=True, help="Read all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Continue and show every change.")
@output_option("table", "wide", "json", "yaml", "name")
def status(
    marker: str,
    namespace: str | None,
    kubeconfig: str | None,
    system_namespace: str,
    allowed_label_keys: frozenset[str],
    all_namespaces: bool,
    watch: bool,
    output: str,
) -> int:
    if all_namespaces and (namespace or marker):
        raise click.UsageError("-A goes with neither -n nor the name of a marker")
    config = load_config(kubeconfig)
    where = "" if all_namespaces else namespace or config.namespace
    name = marker.rpartition("/")[2]
    question = Question(where, name, output, system_namespace, allowed_label_keys)
    return run(_watch(config, question) if watch else _once(config, question), config)


async def _once(config: ClusterConfig, question: Question) -> int:
    async with client_of(config) as client:
        reader = _reader(client, question)
        view = _view(await reader.read(), question, reader.notes)
    click.echo(_text(view, question), nl=False)
    if not view.markers:
        where = f"namespace {question.namespace}" if question.namespace else "any namespace"
        elsewhere = "; -A looks at all namespaces" if question.namespace else ""
        click.echo(f"There are no PodProbeMarkers in {where}{elsewhere}.", err=True)
    return 0


async def _watch(config: ClusterConfig, question: Question) -> int:
    """Run until a signal. In screen mode, restore the terminal and return 128 + the signal's number."""
    async with client_of(config) as client:
        reader = _reader(client, question)
        first = await reader.read()
        _view(first, question, reader.notes)
        async with reader.follow(first) as following:
            arguments = (
                following.snapshot,
                following.changed,
                question,
                lambda: [*reader.notes, *following.notes()],
            )
            console = Console()
            if not _on_screen(console, question):
                await _print_changes(*arguments)
            else:
                try:
                    await until_signal(_show_screen(console, *arguments))
                except Signalled as signalled:
                    return 128 + signalled.number
    return 0


def _reader(client: RestClient, question: Question) -> Reader:
    return Reader(
        client,
        namespace=question.namespace,
        system_namespace=question.system_namespace,
        allowed_labels=question.allowed_labels,
    )


def _on_screen(console: Console, question: Question) -> bool:
    """Whether to draw in place; a dumb terminal has no alternate screen."""
    capable = sys.stdout.isatty() and not console.is_dumb_terminal
    return capable and question.form in ("table", "wide")


async def _show_screen(
    console: Console, snapshot: Look, changed: asyncio.Event, question: Question, notes: Notes
) -> None:
    """Draw until cancelled; lines below the bottom of the screen are cut.

    Raises:
        Signalled: the terminal is closed; its SIGHUP may arrive later or never.
    """
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                changed.clear()
                view = _view(snapshot(), question, notes(), missing_is_fatal=False)
                lines = Text.from_ansi(_text(view, question), no_wrap=True, overflow="crop")
                live.update(lines, refresh=True)
                await _wait_for_update(changed)
    except OSError as error:
        raise Signalled(signal.SIGHUP) from error


async def _print_changes(
    snapshot: Look, changed: asyncio.Event, question: Question, notes: Notes
) -> None:
    """Print every change until cancelled; a new time alone is no change. JSON is one line per change."""
    shown: StatusView | None = None
    while True:
        changed.clear()
        view = _view(snapshot(), question, notes(), missing_is_fatal=False)
        if shown is None or (view.markers, view.notes) != (shown.markers, shown.notes):
            if question.form == "json":
                click.echo(msgspec.json.encode(view))
            else:
                if shown is not None:
                    click.echo("---" if question.form == "yaml" else "")
                click.echo(_text(view, question), nl=False)
            shown = view
        await _wait_for_update(changed)


async def _wait_for_update(changed: asyncio.Event) -> None:
    await asyncio.sleep(PACE_SECONDS)
    try:
        async with asyncio.timeout(REDRAW_SECONDS - PACE_SECONDS):
            await changed.wait()
    except TimeoutError:
        pass


def _view(
    snapshot: Snapshot, question: Question, notes: list[str], *, missing_is_fatal: bool = True
) -> StatusView:
    markers = [each for each in snapshot.markers if question.marker in ("", each.key.name)]
    if question.marker and not markers and missing_is_fatal:
        names = [each.key.name for each in snapshot.markers]
        raise FatalError(not_found("PodProbeMarker", question.namespace, question.marker, names))
    return status_view(snapshot, markers, notes)


def _text(view: StatusView, question: Question) -> str:
    if question.form == "name":
        return "".join(f"podprobemarker.{GROUP}/{each.name}\n" for each in view.markers)
    if question.form in ("json", "yaml"):
        return document_text(view, question.form)
    return status_text(
        view, wide=question.form == "wide", width=terminal_width(), color=sys.stdout.isatty()
    )
