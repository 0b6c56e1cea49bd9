"""The live view: pods with their probes and marks, problems, changes and commands to try. Pure.

Each pod and each probe has one line, so that the view fits 80 columns.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kruise_probe.api.times import age
from kruise_probe.cli.screen import Scroll
from kruise_probe_playground.rows import Mark, PodRow, ProbeRow, ProblemSummary
from kruise_probe_playground.ticker import Line

CHECK_FROM_COLUMNS = 120
"""Minimum width for the column that describes each probe."""

CHECK_COLUMNS = 40

MIN_POD_LINES = 5

MIN_TICKER_LINES = 3

ALL_HINTS_FROM_LINES = 20
"""Lower terminals show the first hint only."""

HINTS_SECONDS = 60
"""Then the hints fold to one line."""

FOLDED_HINT = "c: commands to try   arrows, PgUp, PgDn: scroll   q: stop"

_STYLES = {"Succeeded": "green", "Failed": "red", "Unknown": "yellow"}
_TONES = {
    "good": "green",
    "bad": "red",
    "neutral": "",
    "event": "cyan",
}

Stamped = tuple[datetime, Line]


Lines = Sequence[Sequence[Segment]]


class LiveView(NamedTuple):
    """A renderable that fills the terminal. Problems and pods scroll; what else there is keeps its place."""

    rows: Sequence[PodRow]
    lines: Sequence[Stamped]
    hints: Sequence[str]
    now: datetime
    problems: Sequence[ProblemSummary]
    scroll: Scroll

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height

        def drawn(part: RenderableType) -> Lines:
            return console.render_lines(part, options.update(height=None))

        hints = drawn(Group(*self._hint_lines(height)))
        pods = list(self._pod_cells())
        problems = drawn(Group(*_problem_lines(self.problems)))
        room = height - 3 - len(hints)
        of_ticker = max(min(MIN_TICKER_LINES, room - MIN_POD_LINES), 1)
        first, second = self.scroll.windows(problems, pods, room - of_ticker, least=MIN_POD_LINES)
        of_ticker = room - len(first) - len(second)
        ticker = [ticker_line(line) for line in self.lines[-of_ticker:]]
        ticker += [Text()] * (of_ticker - len(ticker))
        more = Text(f"… {self.scroll.below} more lines" if self.scroll.below else "", style="dim")
        table = drawn(_pod_table(second, checks=options.max_width >= CHECK_FROM_COLUMNS))
        shown = (*first, *table, *drawn(Group(more, *ticker, "")), *hints)
        for line in shown:
            yield from line
            yield Segment.line()

    def _pod_cells(self) -> Iterator[tuple[Text, ...]]:
        for row in self.rows:
            yield from pod_cells(row, now=self.now)
        if not self.rows:
            yield (Text("no pods yet", style="dim"), *[Text()] * 4)

    def _hint_lines(self, height: int) -> Iterator[Text]:
        shown = self.hints if height >= ALL_HINTS_FROM_LINES else self.hints[:1]
        for hint in shown:
            yield Text(hint, style="dim", overflow="fold")


def _pod_table(rows: Sequence[Sequence[Text]], *, checks: bool) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold dim")
    table.add_column("POD, PROBE", no_wrap=True)
    if checks:
        table.add_column("EVERY, CHECK", no_wrap=True, overflow="ellipsis", max_width=CHECK_COLUMNS)
    table.add_column("STATE", no_wrap=True)
    table.add_column("SINCE", no_wrap=True, justify="right")
    table.add_column("MARKS, MESSAGE", no_wrap=True, overflow="ellipsis", ratio=1)
    for name, check, *cells in rows:
        table.add_row(name, *([check] if checks else []), *cells)
    return table


def _problem_lines(problems: Sequence[ProblemSummary]) -> Iterator[RenderableType]:
    for problem in problems:
        yield Text.assemble(("! ", "bold red"), (problem.text, "red"), overflow="fold")
        if problem.remedy:
            remedy = Text(f"-> {problem.remedy}", style="cyan", overflow="fold")
            yield Padding(remedy, (0, 0, 0, 2))


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
