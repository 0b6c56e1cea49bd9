"""`kruise-probe lint`: checks files without a cluster."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from kruise_probe.api.errors import FatalError
from kruise_probe.cli.flag_types import LABEL_KEYS, flag
from kruise_probe.lint.formats import as_json, as_sarif, as_text, summary
from kruise_probe.lint.linter import lint as lint_sources
from kruise_probe.lint.sources import read_sources

EXIT_FINDINGS: Final = 1
MAX_SECONDS: Final = 120
"""Maximum duration, whatever the files contain."""

_HELP: Final = """Checks files of PodProbeMarkers without a cluster: YAML, fields and rules, and across all files containers, ports,
readiness gates, selectors without pods, and names that two probes write.

\b
kruise-probe lint -f marker.yaml
kruise-probe lint -f config/ -o sarif > lint.sarif         all YAML and JSON files of a folder
helm template CHART | kruise-probe lint -f -               standard input
kruise-probe lint config/*.yaml                            -f is optional

Each finding has file, line, column, field, what is wrong and what to do. The exit code is 0 without findings, 1 with findings
and 2 for a wrong command line. A file that cannot be read is a finding.
"""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise FatalError(f"lint takes more than {MAX_SECONDS} s; name fewer files at once")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_FORMATS: Final = {"text": as_text, "json": as_json, "sarif": as_sarif}


@click.command(help=_HELP, short_help="Check files of PodProbeMarkers without a cluster.")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path())
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="File, folder (its hidden folders are skipped), or - for standard input; repeatable.",
)
@flag(
    "--allowed-label-keys",
    type=LABEL_KEYS,
    default="",
    metavar="KEY,…",
    help="The same value as the manager's flag.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(list(_FORMATS)),
    default="text",
    show_default=True,
    help="Output format; sarif is for code scanning.",
)
def lint(
    *,
    files: tuple[str, ...],
    filenames: tuple[str, ...],
    allowed_label_keys: frozenset[str],
    output: str,
) -> int:
    paths = (*filenames, *files)
    if not paths:
        raise click.UsageError("name files with -f; - is standard input")
    with _time_limit():
        report = lint_sources(read_sources(paths), allowed_labels=allowed_label_keys)
    click.echo(_FORMATS[output](report), nl=False)
    if output == "text":
        click.echo(summary(report), err=True)
    return EXIT_FINDINGS if report.findings else 0
