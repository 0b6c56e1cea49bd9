"""The text output of `status`, `explain` and `try`, fitted to the terminal. Pure.

If the output is not a terminal, nothing is truncated or coloured.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kruise_probe.api.times import parse_time
from kruise_probe.inspection.attempts import AttemptsView, AttemptView
from kruise_probe.inspection.explanation import ExplanationView, TraceView
from kruise_probe.inspection.link import Link, LinkState
from kruise_probe.inspection.views import MarkerView, PodView, Problem, ResultView, StatusView

WIDE_COLUMNS: Final = 110
"""Minimum terminal width, in columns, to show nodes and marks."""
UNLIMITED: Final = 100_000
MAX_PROBLEMS: Final = 8
MAX_NAMES: Final = 3
MIN_CELL: Final = 8
NARROW_CELL: Final = 4
GAP: Final = "  "
INDENT: Final = "  "
LAST_RESULT: Final = "last result"
"""Instead of the name of a link; it has no state of its own."""

_STYLES: Final = {
    "Succeeded": "green", "Failed": "red", "Unknown": "yellow", "Pending": "dim",
    "ok": "green", "broken": "bold red", "waiting": "yellow",
}  # fmt: skip


def age(stamp: str, now: datetime) -> str:
    """An age such as `7s`, `3m`, `2h`, `4d`; empty without a valid stamp."""
    at = parse_time(stamp)
    if at is None:
        return ""
    seconds = max(int((now - at).total_seconds()), 0)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


def printable(text: str) -> str:
    """The text without control characters. Messages and annotations may come from untrusted pods."""
    return _CONTROLS.sub(" ", text)


_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def status_text(view: StatusView, *, wide: bool, width: int, color: bool) -> str:
    """The tables of all markers; `width` is 0 if the output is not a terminal."""
    console = _console(width, color)
    now = parse_time(view.time)
    assert now is not None, "our own stamp"
    with console.capture() as capture:
        for note in view.notes:
            console.print(Text(f"note: {note}", style="yellow"))
        for index, marker in enumerate(view.markers):
            if index:
                console.print()
            _print_marker(
                console, marker, now, wide=wide, roomy=wide or not 0 < width < WIDE_COLUMNS
            )
    return _trimmed(capture.get())


def _console(width: int, color: bool) -> Console:
    """A console for `capture`; everything written to its file is discarded."""
    return Console(
        file=io.StringIO(),
        width=width or UNLIMITED,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )


def _trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _print_marker(
    console: Console, marker: MarkerView, now: datetime, *, wide: bool, roomy: bool
) -> None:
    counts = marker.counts
    summary = f"{counts.succeeded} succeeded, {counts.failed} failed, {counts.unknown} unknown"
    pods = plural(counts.pods, "pod")
    if len(marker.pods) > counts.pods:
        pods = f"{counts.pods} of {plural(len(marker.pods), 'pod')} can be probed"
    console.print(
        Text.assemble(
            (f"{marker.namespace}/{marker.name}", "bold"),
            f"  {marker.selector}  {pods}",
            f": {summary}" if counts.pods else "",
        ),
        soft_wrap=console.width == UNLIMITED,
    )
    width = console.width - len(INDENT)
    if wide:
        _print_lines(console, (*_probe_table(marker, width), Text()))
    for line in _problem_lines(marker.problems):
        console.print(Padding(line, (0, 0, 0, 2), expand=False))
    if marker.pods:
        _print_lines(console, _pod_table(marker, now, width, roomy=roomy))


def _print_lines(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(Text(INDENT) + line, no_wrap=True, overflow="ignore", crop=False)


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int
) -> Iterator[Text]:
    """Lines of at most `width`. MARKS and the last column shrink first, then the widest columns."""
    cells = [[Text(name, style="bold dim") for name in columns]]
    cells += [[each if isinstance(each, Text) else Text(each) for each in row] for row in rows]
    widths = [max(row[index].cell_len for row in cells) for index in range(len(columns))]
    excess = sum(widths) + len(GAP) * (len(columns) - 1) - width
    marks = [index for index, name in enumerate(columns) if name == "MARKS"]
    widest = sorted(range(len(columns)), key=lambda index: -widths[index])
    order = [(index, MIN_CELL) for index in (*marks, len(columns) - 1, *widest)]
    for index, least in (*order, *((index, NARROW_CELL) for index in widest)):
        cut = max(min(excess, widths[index] - least), 0)
        widths[index] -= cut
        excess -= cut
    for row in cells:
        for index, cell in enumerate(row):
            cell.truncate(widths[index], overflow="ellipsis", pad=index < len(row) - 1)
        yield Text(GAP).join(row)


def _probe_table(marker: MarkerView, width: int) -> Iterator[Text]:
    columns = (
        "PROBE", "CONTAINER", "DELAY", "PERIOD", "TIMEOUT", "SUCCESS", "FAILURE", "CONDITION", "CHECK",
    )  # fmt: skip
    rows = [
        (
            each.name,
            each.container_name,
            f"{each.initial_delay_seconds}s",
            f"{each.period_seconds}s",
            f"{each.timeout_seconds}s",
            str(each.success_threshold),
            str(each.failure_threshold),
            each.pod_condition_type,
            printable(each.check),
        )
        for each in marker.probes
    ]
    return _table(columns, rows, width)


def _pod_table(marker: MarkerView, now: datetime, width: int, *, roomy: bool) -> Iterator[Text]:
    extra = ("NODE", "MARKS") if roomy else ()
    rows: list[tuple[str | Text, ...]] = []
    for pod in _problems_first(marker):
        for index, result in enumerate(pod.results):
            beside = (pod.node if index == 0 else "", _marks(result))
            rows.append(
                (
                    pod.name if index == 0 else "",
                    result.probe,
                    Text(result.state, style=_STYLES.get(result.state, "")),
                    age(result.since, now),
                    age(result.last_probe_time, now),
                    *(beside if roomy else ()),
                    _message(pod, result),
                )
            )
    return _table(("POD", "PROBE", "STATE", "SINCE", "LAST", *extra, "MESSAGE"), rows, width)


def _problems_first(marker: MarkerView) -> list[PodView]:
    """The pods in their order, but pods with broken links first, then pods with waiting ones."""
    order = {"broken": 0, "waiting": 1}
    ranks: dict[str, int] = {}
    for each in marker.problems:
        ranks[each.pod] = min(ranks.get(each.pod, 2), order.get(each.severity, 2))
    return sorted(marker.pods, key=lambda pod: ranks.get(pod.name, 2))


def _message(pod: PodView, result: ResultView) -> str:
    text = printable(result.message) or ("" if pod.phase == "Running" else pod.phase)
    return f"(before the last edit) {text}".rstrip() if result.outdated else text


def _marks(result: ResultView) -> str:
    pairs = (*result.labels.items(), *result.annotations.items())
    return printable(",".join(f"{key.rpartition('/')[2]}={value}" for key, value in pairs))


def _problem_lines(problems: Sequence[Problem]) -> Iterator[Text]:
    """One paragraph for each group of pods with the same problem. A problem of a pod concerns all of its probes."""
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for each in problems:
        probe = "" if each.link == "pod" else each.probe
        groups.setdefault((probe, each.reason, _SECONDS.sub("", each.message)), []).append(each)
    for (probe, _, _), group in list(groups.items())[:MAX_PROBLEMS]:
        one = group[0]
        who = ", ".join(filter(None, (_names(dict.fromkeys(each.pod for each in group)), probe)))
        yield Text.assemble(
            (f"{one.severity}: ", _STYLES[one.severity]),
            f"{who}: " if who else "",
            _problem_text(one),
            (f" -> {one.remedy}" if one.remedy else "", "cyan"),
        )
    if len(groups) > MAX_PROBLEMS:
        yield Text(f"and {len(groups) - MAX_PROBLEMS} more: -o json shows all of them")


def _problem_text(problem: Problem) -> str:
    """The text of a problem. The message of a result is in the table already, so only its reason is returned."""
    return (
        problem.reason
        if problem.link == "result" and problem.severity == "broken"
        else (f"{printable(problem.message)} ({problem.reason})")
    )


_SECONDS: Final = re.compile(r"\b\d+ ?s\b")
"""Durations, which differ between pods with the same problem."""


def _names(names: Iterable[str]) -> str:
    found = [each for each in names if each]
    more = f" and {len(found) - MAX_NAMES} more pods" if len(found) > MAX_NAMES else ""
    return ", ".join(found[:MAX_NAMES]) + more


def attempts_text(view: AttemptsView, *, width: int, color: bool) -> str:
    """The results of `try`. `width` is 0 if the output is not a terminal."""
    console = _console(width, color)
    attempts = view.attempts
    succeeded = sum(each.state == "Succeeded" for each in attempts)
    summary = f"{succeeded} of {plural(len(attempts), 'probe')} succeeded"
    place = f" on {view.node}" if view.node else ""
    several = len({each.marker for each in attempts}) > 1
    rows: list[tuple[str | Text, ...]] = [
        (
            *((each.marker,) if several else ()),
            each.probe,
            Text(each.state, style=_STYLES.get(each.state, "")),
            "" if each.duration_seconds is None else f"{each.duration_seconds:.2f}s",
            _attempt_marks(each),
            printable(each.message),
        )
        for each in attempts
    ]
    columns = (*(("MARKER",) if several else ()), "PROBE", "STATE", "TIME", "MARKS", "MESSAGE")
    with console.capture() as capture:
        console.print(
            Text.assemble((f"{view.namespace}/{view.pod}", "bold"), f"{place}: {summary}")
        )
        for note in view.notes:
            console.print(Text(f"note: {printable(note)}", style="yellow"))
        _print_lines(console, _table(columns, rows, console.width - len(INDENT)))
    return _trimmed(capture.get())


def _attempt_marks(attempt: AttemptView) -> str:
    """The marks as `kubectl label` writes them: `key=value`, and `key-` for a removed one."""
    marks = {**attempt.labels, **attempt.annotations}
    condition = (
        [f"{attempt.pod_condition_type.rpartition('/')[2]}={attempt.condition_status}"]
        if attempt.pod_condition_type
        else []
    )
    pairs = (
        f"{key.rpartition('/')[2]}-" if value is None else f"{key.rpartition('/')[2]}={value}"
        for key, value in marks.items()
    )
    return printable(",".join((*condition, *pairs)))


def explanation_text(view: ExplanationView, *, wide: bool, width: int, color: bool) -> str:
    """The explanation of one pod; `wide` shows every link. `width` is 0 if the output is not a terminal."""
    console = _console(width, color)
    with console.capture() as capture:
        console.print(Text.assemble((f"{view.namespace}/{view.pod}", "bold"), f": {view.summary}"))
        for note in view.notes:
            console.print(Text(f"note: {note}", style="yellow"))
        place = f" on {view.node}" if view.node else ""
        console.print(f"  {view.phase}{place}")
        if view.readiness_gates:
            _print_links(console, view.readiness_gates, indent=2)
        for each in view.elsewhere:
            text = f"PodProbeMarker {each} has a selector for its labels, but a marker selects only pods of its own namespace"
            remedy = f"create it in namespace {view.namespace}"
            console.print(Text.assemble(f"  {text}", (f" -> {remedy}", "cyan")))
        for match in view.matching:
            console.print()
            console.print(Text.assemble((match.marker, "bold"), f" selects it: {match.selector}"))
            for trace in match.probes:
                _print_trace(console, trace, wide=wide)
        _print_not_matching(console, view)
    return _trimmed(capture.get())


def _print_trace(console: Console, trace: TraceView, *, wide: bool) -> None:
    console.print(
        Padding(
            Text.assemble((trace.probe, "bold"), f"  {printable(trace.check)}"),
            (0, 0, 0, 2),
            expand=False,
        )
    )
    links = [*(trace.links if wide else _folded(trace.links)), *_last_result(trace)]
    _print_links(console, links, indent=4)


def _last_result(trace: TraceView) -> Iterator[Link]:
    """What the pod still shows of a probe whose links end before the result, such as a paused one."""
    if not trace.first_broken or any(each.name == "result" for each in trace.links):
        return
    result, marks = trace.result, _marks(trace.result)
    known = result.state in ("Succeeded", "Failed")
    state = f"{result.state}: {result.message}".rstrip(": ") if known else ""
    if text := "; ".join(filter(None, (state, marks))):
        yield Link(LAST_RESULT, LinkState.OK, text)


def _folded(links: Sequence[Link]) -> list[Link]:
    """The links that are OK as one line: with their results if all are OK, otherwise only their names."""
    working = [each for each in links if each.state == "ok"]
    if not working:
        return list(links)
    if len(working) == len(links):
        text = "; ".join(
            each.text for each in links if each.name in ("provider", "result", "condition", "marks")
        )
    else:
        text = ", ".join(each.name for each in working)
    folded = msgspec.structs.replace(working[0], name=plural(len(working), "link"), text=text)
    return [folded, *(each for each in links if each.state != "ok")]


def _print_links(console: Console, links: Iterable[Link], *, indent: int) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for link in links:
        style = _STYLES.get(link.state, "")
        reason = f" ({link.reason})" if link.reason else ""
        state = "" if link.name == LAST_RESULT else link.state
        table.add_row(Text(state, style=style), link.name, printable(f"{link.text}{reason}"))
        if link.remedy:
            table.add_row("", "", Text(f"-> {link.remedy}", style="cyan"))
    console.print(Padding(table, (0, 0, 0, indent), expand=False))


def _print_not_matching(console: Console, view: ExplanationView) -> None:
    if not view.not_matching:
        return
    console.print("\nOther PodProbeMarkers of the namespace do not select it:")
    for each in view.not_matching:
        console.print(
            Padding(
                Text.assemble((each.marker, "bold"), f": {each.why}"), (0, 0, 0, 2), expand=False
            )
        )
    if view.more_not_matching:
        console.print(f"  and {view.more_not_matching} more")
