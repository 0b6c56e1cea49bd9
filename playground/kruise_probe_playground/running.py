"""Runs a playground for the command line: live, as lines, or as a check."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from kruise_probe.api.errors import FatalError, KubeError
from kruise_probe.api.times import loop_time
from kruise_probe.runtime.process import Signalled, configure_logs, until_signal
from kruise_probe_playground.documents import SAMPLE, BadFile, LoadedObject, load
from kruise_probe_playground.node.addresses import NoAddress
from kruise_probe_playground.programs import ChildFailed
from kruise_probe_playground.session import Playground
from kruise_probe_playground.showing import ChangeLog, show_lines, show_live
from kruise_probe_playground.showing import check as wait_for_states
from kruise_probe_playground.ticker import Line
from kruise_probe_playground.workspace import NoWorkspace

INTERRUPTED = 130

_KNOWN_ERRORS = (BadFile, ChildFailed, NoAddress, NoWorkspace, FatalError, KubeError, OSError)


def run(
    files: tuple[Path, ...],
    *,
    no_sample: bool,
    check_seconds: float | None,
    kubeconfig_out: Path | None,
    nodes: int,
) -> int:
    """Run until a signal or the end of the check; return the exit code."""
    documents = _documents(files, no_sample=no_sample)
    if kubeconfig_out:
        _check_free(kubeconfig_out)
        kubeconfig_out = kubeconfig_out.absolute()  # the guardian runs in /
    configure_logs(format="text", level="error")
    changes = ChangeLog()

    def note(text: str) -> None:
        changes.add(Line("", text, "bad"))
        if check_seconds is not None or not sys.stdout.isatty():
            click.echo(text, err=True)

    async def use() -> int:
        started_at = loop_time()
        async with Playground(
            documents=documents, nodes=nodes, kubeconfig_out=kubeconfig_out, on_note=note
        ) as running:
            if check_seconds is not None:
                wanted = 1 if files else 2
                return await _check(running, started_at, check_seconds, wanted_states=wanted)
            await _show(running, changes)
        return 0

    try:
        code = asyncio.run(until_signal(use()))
    except Signalled:
        code = 0 if check_seconds is None else INTERRUPTED
    except (*_KNOWN_ERRORS, BaseExceptionGroup) as error:
        known = _known_error(error)
        if known is None:
            raise
        raise click.ClickException(str(known) or type(known).__name__) from error
    if check_seconds is None:
        click.echo(f"stopped after {changes.count} changes; no process and no file is left")
    return code


def _documents(files: tuple[Path, ...], *, no_sample: bool) -> list[LoadedObject]:
    if not files and no_sample:
        return []
    try:
        return load(files or [SAMPLE])
    except BadFile as error:
        raise click.ClickException(str(error)) from error


def _check_free(kubeconfig_out: Path) -> None:
    if os.path.lexists(kubeconfig_out):
        raise click.ClickException(
            f"--kubeconfig-out {kubeconfig_out} exists; remove it, or name another file"
        )
    if not kubeconfig_out.parent.is_dir():
        raise click.ClickException(
            f"--kubeconfig-out {kubeconfig_out}: the folder {kubeconfig_out.parent} does not exist; create it"
        )


def _known_error(error: BaseException) -> BaseException | None:
    """The error, or the first of a group, that a person can understand."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_known_error, error.exceptions)), None)
    return error if isinstance(error, _KNOWN_ERRORS) else None


async def _show(running: Playground, changes: ChangeLog) -> None:
    console = Console()
    if sys.stdout.isatty() and not console.is_dumb_terminal:
        await show_live(running, changes, console)
    else:
        await show_lines(running, changes, _print_line)


async def _check(
    running: Playground, started_at: float, seconds: float, *, wanted_states: int
) -> int:
    progress, problems = await wait_for_states(
        running, wanted=wanted_states, deadline=started_at + seconds
    )
    click.echo(json.dumps(progress.as_json(seconds=loop_time() - started_at)))
    if progress.complete:
        return 0
    click.echo(
        f"kruise-probe playground: incomplete after {seconds:g} s: {progress.missing()}", err=True
    )
    for problem in problems:
        click.echo(
            f"{problem.text} -> {problem.remedy}",
            err=True,
        )
    for program in (running.manager, *running.daemons.values()):
        click.echo(
            f"last log line of the {program.name}: {program.last_line()}",
            err=True,
        )
    return 1


def _print_line(text: str) -> None:
    """Print a line. If the reader has closed the pipe (`| head`), end as after Ctrl-C."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGINT)
