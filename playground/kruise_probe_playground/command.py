"""`kruise-probe playground`: the command line around `session` and `showing`."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console

from kruise_probe.api.errors import FatalError, KubeError
from kruise_probe.cli.flag_types import GO_BOOL, Flag, FlagCommand, duration, number
from kruise_probe.serving.logs import configure_logs
from kruise_probe.serving.signals import Signalled, until_signal
from kruise_probe_playground.documents import SAMPLE, BadFile, LoadedObject, load
from kruise_probe_playground.node.addresses import NoAddress
from kruise_probe_playground.programs import ChildFailed
from kruise_probe_playground.session import Playground
from kruise_probe_playground.showing import ChangeLog, problems_of, show_lines, show_live
from kruise_probe_playground.showing import check as wait_for_states
from kruise_probe_playground.ticker import Line
from kruise_probe_playground.workspace import NoWorkspace

INTERRUPTED = 130

_KNOWN_ERRORS = (BadFile, ChildFailed, NoAddress, NoWorkspace, FatalError, KubeError, OSError)


class Settings(NamedTuple):
    documents: list[LoadedObject]
    nodes: int
    kubeconfig_out: Path | None
    wanted_states: int
    check_seconds: float | None


_HELP = """Runs an API server, nodes, the manager and the daemons on this machine, without root and without a cluster.

Applies sample game servers whose state changes every few seconds, and shows the results. When it ends, it deletes
all of its files.

\b
kruise-probe playground                  the sample
kruise-probe playground -f hello.yaml    pods and markers of your own
kruise-probe playground --check          for scripts: one line of JSON
"""


@click.command(
    cls=FlagCommand,
    help=_HELP,
)
@click.option(
    "-f",
    "--filename",
    "files",
    cls=Flag,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Pods and PodProbeMarkers to apply instead of the sample: a file, a folder with .yaml, .yml and .json files,"
    " or - for standard input; repeatable. A Deployment becomes its ReplicaSet, a StatefulSet single pods.",
)
@click.option("--no-sample", cls=Flag, type=GO_BOOL, default=False, help="Do not apply the sample.")
@click.option(
    "--check",
    cls=Flag,
    type=GO_BOOL,
    default=False,
    help="Show nothing. Wait until conditions, labels, annotations and events show every probe of the sample in both"
    " states (with -f: a result of every probe). Then print one line of JSON and exit.",
)
@click.option(
    "--check-timeout",
    cls=Flag,
    type=duration(at_least=1),
    default="60s",
    help="Timeout of --check.",
)
@click.option(
    "--kubeconfig-out",
    cls=Flag,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another file for the kubeconfig with the session's token, mode 0600. It must not exist, and is removed at the end.",
)
@click.option("--nodes", cls=Flag, type=number(1, 50), default=1, help="Number of nodes.")
def playground(
    files: tuple[Path, ...],
    no_sample: bool,
    check: bool,
    check_timeout: float,
    kubeconfig_out: Path | None,
    nodes: int,
) -> int:
    if not sys.platform.startswith("linux"):
        raise click.ClickException(
            "the playground needs Linux: it runs containers as processes with addresses of 127/8"
        )
    if check and no_sample and not files:
        raise click.UsageError("--check with --no-sample has nothing to check; add -f FILE")
    settings = Settings(
        documents=_documents(files, no_sample=no_sample),
        nodes=nodes,
        kubeconfig_out=kubeconfig_out and kubeconfig_out.absolute(),  # the guardian runs in /
        wanted_states=1 if files else 2,
        check_seconds=check_timeout if check else None,
    )
    if kubeconfig_out:
        _check_free(kubeconfig_out)
    configure_logs(format="text", level="error")
    try:
        return asyncio.run(until_signal(_run(settings)))
    except Signalled:
        return INTERRUPTED if check else 0
    except (*_KNOWN_ERRORS, BaseExceptionGroup) as error:
        known = [each for each in _leaves(error) if isinstance(each, _KNOWN_ERRORS)]
        if not known:
            raise
        raise click.ClickException(str(known[0]) or type(known[0]).__name__) from error


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


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


async def _run(settings: Settings) -> int:
    changes = ChangeLog()
    started_at = asyncio.get_running_loop().time()
    async with Playground(
        documents=settings.documents,
        nodes=settings.nodes,
        kubeconfig_out=settings.kubeconfig_out,
        on_note=lambda text: changes.add(Line("", text, "bad")),
    ) as running:
        if settings.check_seconds is not None:
            return await _check(
                running, settings, started_at=started_at, seconds=settings.check_seconds
            )
        console = Console()
        if console.is_terminal and not console.is_dumb_terminal:
            await running.alongside(show_live(running, changes, console))
        else:
            await running.alongside(show_lines(running, _print_line))
    return 0


async def _check(
    running: Playground, settings: Settings, *, started_at: float, seconds: float
) -> int:
    loop = asyncio.get_running_loop()
    progress = await running.alongside(
        wait_for_states(running, wanted=settings.wanted_states, deadline=started_at + seconds)
    )
    click.echo(json.dumps(progress.as_json(seconds=loop.time() - started_at)))
    if progress.complete:
        return 0
    click.echo(
        f"kruise-probe playground: incomplete after {seconds:g} s: {progress.missing()}", err=True
    )
    for each in await problems_of(running):
        click.echo(f"{each.text} -> {each.remedy}", err=True)
    for program in (running.manager, *running.daemons.values()):
        click.echo(f"last log line of the {program.name}: {program.last_line()}", err=True)
    return 1


def _print_line(text: str) -> None:
    """Print a line. If the reader has closed the pipe (`| head`), end as after Ctrl-C."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGINT)
