"""The screen of `status --watch`: a header, then problems and pods, which scroll. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kruise_probe.cli.paragraphs import note_lines, plural
from kruise_probe.cli.screen import Scroll
from kruise_probe.cli.tables import (
    counts_text,
    pod_table,
    problem_lines,
    problems_and_hints,
    status_lines,
    time_of,
    title_lines,
)
from kruise_probe.cli.terminal import Cell, Terminal, head
from kruise_probe.inspection.views import MarkerView, StatusView

LEAST_POD_LINES: Final = 6
"""The title of a marker in two lines, the heading of its table, and three rows."""


def screen_text(
    view: StatusView,
    terminal: Terminal,
    scroll: Scroll,
    *,
    wide: bool,
) -> str:
    """What `--watch` draws: a header, and markers with problems first, broken ones before waiting ones.

    Without room for all of it, problems come before pods, and both scroll.
    """
    ordered = sorted(view.markers, key=_urgency)
    shown = msgspec.structs.replace(view, markers=ordered, notes=[])
    lines = list(_screen_head(view, terminal))
    room = terminal.height - len(lines)
    whole = list(status_lines(shown, terminal, wide=wide))
    if len(whole) <= room:
        return "\n".join([*lines, *whole])
    problems = list(_problems_of_all(ordered, terminal))
    pods = list(_pods_of_all(shown, terminal, wide=wide))
    first, second = scroll.windows(
        problems,
        pods,
        room - 2,
        least=LEAST_POD_LINES,
    )
    if first:
        lines += [*first, ""]
    lines += second
    while len(lines) < terminal.height - 1:
        lines.append("")
    keys = "Arrows and PgUp, PgDn scroll, q ends"
    if scroll.below:
        keys = f"… {plural(scroll.below, 'more line')}. {keys}"
    lines.append(head(keys, terminal.width))
    return "\n".join(lines)


def _problems_of_all(markers: Sequence[MarkerView], terminal: Terminal) -> Iterator[str]:
    for marker in markers:
        found = problems_and_hints(marker)
        if len(markers) > 1 and found:
            yield terminal.paint(f"{marker.namespace}/{marker.name}", "strong")
        yield from problem_lines(found, terminal)


def _pods_of_all(
    view: StatusView,
    terminal: Terminal,
    *,
    wide: bool,
) -> Iterator[str]:
    """All markers with their pods, without their problems."""
    now = time_of(view)
    for marker in view.markers:
        yield from title_lines(marker, terminal, wide=wide)
        yield from pod_table(
            marker,
            terminal,
            now,
            wide=wide,
        )


def _urgency(marker: MarkerView) -> str:
    """Sort key: broken, waiting, no problem."""
    return min(
        (problem.severity for problem in marker.problems),
        default="~",
    )


def _screen_head(view: StatusView, terminal: Terminal) -> Iterator[str]:
    markers = plural(len(view.markers), "marker")
    counts = counts_text(view.counts)
    header = f"{view.time}  {markers}, {counts}"
    yield from terminal.paragraph(Cell(""), header)
    yield from note_lines(view.notes, terminal)
    yield ""
