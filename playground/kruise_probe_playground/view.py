"""The live view: pods with their probes and marks, problems, changes and commands to try. Pure.

Each pod and each probe has one line, so that the view fits 80 columns.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from kruise_probe.api.times import age
from kruise_probe_playground.rows import Mark, PodRow, ProbeRow, ProblemSummary
from kruise_probe_playground.ticker import Line

CHECK_FROM_COLUMNS = 120
"""Minimum width for the column that describes each probe."""

CHECK_COLUMNS = 40

MAX_PROBLEMS = 3

MIN_TICKER_LINES = 3

ALL_HINTS_FROM_LINES = 20
"""Lower terminals show the first hint only."""

_STYLES = {"Succeeded": "green", "Failed": "red", "Unknown": "yellow"}
_TONES = {
    "good": "green",
    "bad": "red",
    "neutral": "",
    "event": "cyan",
}

Stamped = tuple[datetime, Line]


class LiveView(NamedTuple):
    """A renderable that fills the terminal."""

    rows: Sequence[PodRow]
    lines: Sequence[Stamped]
    hints: Sequence[str]
    now: datetime
    problems: Sequence[ProblemSummary] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        shown = self.hints if height >= ALL_HINTS_FROM_LINES else self.hints[:1]
        hints = Group(*(Text(hint, style="dim", overflow="fold") for hint in shown))
        problems = Group(*_problem_lines(self.problems))
        fixed = _height(console, options, hints) + _height(console, options, problems) + 2
        pods = self._pods(
            height - fixed - MIN_TICKER_LINES,
            width=options.max_width,
        )
        room = max(height - fixed - _height(console, options, pods), 0)
        lines = [ticker_line(line) for line in self.lines[-room:]] if room else []
        lines += [Text()] * (room - len(lines))
        yield Group(
            pods,
            problems,
            Text(),
            *lines,
            Text(),
            hints,
        )

    def _pods(self, height: int, *, width: int) -> RenderableType:
        checks = width >= CHECK_FROM_COLUMNS
        table = Table(
            box=None,
            expand=True,
            pad_edge=False,
            header_style="bold dim",
        )
        table.add_column("POD, PROBE", no_wrap=True)
        if checks:
            table.add_column(
                "EVERY, CHECK", no_wrap=True, overflow="ellipsis", max_width=CHECK_COLUMNS
            )
        table.add_column("STATE", no_wrap=True)
        table.add_column("SINCE", no_wrap=True, justify="right")
        table.add_column(
            "MARKS, MESSAGE",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1,
        )
        left = height - 1
        rows = list(self.rows)
        while rows and 1 + len(rows[0].probes) <= left:
            row = rows.pop(0)
            left -= 1 + len(row.probes)
            for name, check, *cells in pod_cells(row, now=self.now):
                table.add_row(
                    name,
                    *([check] if checks else []),
                    *cells,
                )
        if rows:
            table.add_row(
                Text(
                    f"… {len(rows)} more",
                    style="dim",
                )
            )
        if not self.rows:
            table.add_row(Text("no pods yet", style="dim"))
        return table


def _height(console: Console, options: ConsoleOptions, part: RenderableType) -> int:
    return len(console.render_lines(part, options.update(height=None)))


def _problem_lines(problems: Sequence[ProblemSummary]) -> Iterator[Text]:
    for problem in problems[:MAX_PROBLEMS]:
        yield _cropped(Text.assemble(("! ", "bold red"), (problem.text, "red")))
        if problem.remedy:
            yield _cropped(Text(f"  -> {problem.remedy}", style="cyan"))
    if len(problems) > MAX_PROBLEMS:
        yield Text(
            f"! {len(problems) - MAX_PROBLEMS} more: kruise-probe status",
            style="bold red",
        )


def _cropped(line: Text) -> Text:
    line.no_wrap = True
    line.overflow = "ellipsis"
    return line


def pod_cells(row: PodRow, *, now: datetime) -> Iterator[tuple[Text, ...]]:
    """The line of the pod, then one line for each of its probes."""
    restarts = f" (restarted {row.restarts}x)" if row.restarts else ""
    yield (
        Text(f"{row.title}{restarts}", style="bold"),
        Text(),
        _pod_state(row),
        Text(),
        Text(row.ip, style="dim"),
    )
    names = Counter(probe.probe.probe for probe in row.probes)
    for probe in row.probes:
        unique = names[probe.probe.probe] == 1
        yield _probe_cells(
            probe,
            probe.probe.probe if unique else str(probe.probe),
            now=now,
        )


def _pod_state(row: PodRow) -> Text:
    if row.status != "Running":
        return Text(row.status, style="yellow")
    return (
        Text("Ready", style="green") if row.ready == "True" else Text("not ready", style="yellow")
    )


def _mark(mark: Mark) -> Text:
    return Text(
        mark.short,
        style="cyan" if mark.kind == "label" else "bright_blue",
    )


def _probe_cells(row: ProbeRow, name: str, *, now: datetime) -> tuple[Text, ...]:
    gate = " (gate)" if row.gate else ""
    texts = [
        *map(_mark, reversed(row.marks)),
        *([Text(row.message)] if row.message else []),
    ]
    return (
        Text(f"  {name}{gate}"),
        Text(row.check, style="dim"),
        Text(
            row.state or "…",
            style=_STYLES.get(row.state, "dim"),
        ),
        Text(age(row.since, now)),
        Text("  ").join(texts),
    )


def ticker_line(stamped: Stamped) -> Text:
    """One change, for a terminal."""
    at, line = stamped
    return Text.assemble(
        (f"{at.astimezone():%H:%M:%S} ", "dim"),
        (f"{line.about} " if line.about else "", "bold"),
        (line.text, _TONES[line.tone]),
        no_wrap=True,
        overflow="ellipsis",
    )


def plain_line(stamped: Stamped) -> str:
    """One change, as plain text."""
    at, line = stamped
    return " ".join(filter(None, (f"{at.astimezone():%H:%M:%S}", line.about, line.text)))
