"""`kruise-probe lint`: checks files without a cluster."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import click

from kruise_probe.cli.flag_types import (
    argument,
    file_flag,
    flag,
    flag_command,
    same_label_keys_flag,
)
from kruise_probe.cli.terminal import Cell, Terminal, cells, head, printable, show
from kruise_probe.lint.findings import (
    MAX_TEXT,
    Finding,
    Position,
    as_json,
    as_sarif,
    as_text,
    escaped,
    summary,
)
from kruise_probe.lint.linter import lint as lint_sources
from kruise_probe.lint.linter import read_sources

EXIT_FINDINGS: Final = 1


def frame(finding: Finding, text: Sequence[str], terminal: Terminal) -> str:
    """The finding in the lines of its file, as compilers draw it: rule and problem, place, the line with carets, and what to do."""
    line, column = finding.position
    problem, help = _parted(finding.message)
    margin = " " * len(str(line))
    arrow = terminal.paint(f"{margin}-->", "frame")
    lines = [
        *terminal.paragraph(Cell(f"{finding.rule}: ", "broken"), problem),
        f"{arrow} {escaped(finding.file)}:{line}:{column}",
    ]
    source = "".join(text[line - 1 : line])
    if source.strip():
        lines += _source_lines(source, finding.position, terminal)
    for title, part in (("field", finding.path), ("help", help)):
        if part:
            lines += terminal.paragraph(
                Cell(f"= {title}: ", "strong"),
                part,
                f"{margin} ",
            )
    return "\n".join([*lines, "", ""])


def _source_lines(
    source: str,
    position: Position,
    terminal: Terminal,
) -> list[str]:
    """The line of the file, with carets below the word at the position."""
    number = str(position.line)
    start = position.column - 1
    bar = terminal.paint(f"{' ' * len(number)} |", "frame")
    numbered = terminal.paint(f"{number} |", "frame")
    room = terminal.width - len(number) - 3
    before = printable(source[max(start - MAX_TEXT, 0) : start])
    after = printable(source[start : start + MAX_TEXT])
    room_before = max(room // 2, room - cells(after))
    # Backwards, so that its beginning is cut.
    before = head(before[::-1], room_before)[::-1]
    word, *_ = _TOKEN.findall(after)
    carets = "^" * max(cells(word), 1)
    marked = " " * cells(before) + carets
    return [
        bar,
        f"{numbered} {head(before + after, room)}".rstrip(),
        f"{bar} {terminal.paint(marked[:room], 'broken')}",
    ]


def _parted(message: str) -> tuple[str, str]:
    """What is wrong, and what to do."""
    problem, mark, hint = message.partition(" Did you mean ")
    if mark:
        return problem.removesuffix("."), f"did you mean {hint}"
    problem, mark, script = message.partition("; write ")  # a script may have more of them
    if mark:
        return problem, f"write {script}"
    problem, _, remedy = message.rpartition("; ")
    if not problem:
        return message, ""
    return problem, remedy


_TOKEN: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s:,\[\]{}]*")


_FORMATS: Final = {
    "text": as_text,
    "json": as_json,
    "sarif": as_sarif,
}


@dataclass(frozen=True, kw_only=True)
class LintFlags:
    """The command line."""

    files: tuple[str, ...] = argument(
        "[FILE]...",
        nargs=-1,
        type=click.Path(),
    )
    filenames: tuple[str, ...] = file_flag(
        "File, folder (its hidden folders are skipped), or - for standard input; repeatable.",
        multiple=True,
    )
    allowed_label_keys: frozenset[str] = same_label_keys_flag()
    output: str = flag(
        "Output format; sarif is for code scanning.",
        click.Choice(list(_FORMATS)),
        "text",
        names=("-o", "--output"),
    )


@flag_command(LintFlags)
def lint(flags: LintFlags) -> int:
    """Checks files of PodProbeMarkers without a cluster: YAML, fields and rules, and across all files containers, ports,
    readiness gates, selectors without pods, and names that two probes write.

    \b
    kruise-probe lint -f marker.yaml
    kruise-probe lint -f config/ -o sarif          all files of a folder
    helm template CHART | kruise-probe lint -f -   standard input
    kruise-probe lint config/*.yaml                -f is optional

    Each finding has file, line, column, field, what is wrong and what to do. The exit code is 0 without findings, 1 with findings
    and 2 for a wrong command line. A file that cannot be read is a finding.
    """
    paths = (*flags.filenames, *flags.files)
    if not paths:
        raise click.UsageError("name files with -f; - is standard input")
    sources = list(read_sources(paths))
    report = lint_sources(sources, allowed_labels=flags.allowed_label_keys)
    terminal = Terminal.of_stdout()
    if flags.output != "text":
        click.echo(
            _FORMATS[flags.output](report),
            nl=False,
        )
    elif terminal.width:
        texts = {source.name: source.text.split("\n") for source in sources}
        for finding in report.findings:
            show(
                frame(
                    finding,
                    texts.get(finding.file, ()),
                    terminal,
                )
            )
    else:
        show(as_text(report, partial(terminal.paint, style="broken")))
    if flags.output == "text":
        click.echo(summary(report), err=True)
    return EXIT_FINDINGS if report.findings else 0
