"""The text output of `status`, `explain` and `try`. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Final

import msgspec

from kruise_probe.api.times import age, parse_time
from kruise_probe.cli.screen import Scroll
from kruise_probe.cli.terminal import Cell, Terminal, head
from kruise_probe.inspection.attempts import AttemptsView, AttemptView
from kruise_probe.inspection.explanation import ExplanationView, TraceView
from kruise_probe.inspection.link import Link, LinkState
from kruise_probe.inspection.views import (
    PENDING,
    CountsView,
    MarkerView,
    PodView,
    ProblemView,
    ResultView,
    StatusView,
)

MAX_PROBLEMS: Final = 8
MAX_NAMES: Final = 3
LEAST_POD_LINES: Final = 6
"""The title of a marker in two lines, the heading of its table, and three rows."""
LAST_RESULT: Final = "last result"
STILL_SET: Final = "still set"
NOT_A_RESULT: Final = "not a result"
"""Instead of the name of a link; it has no state of its own."""


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _notes(notes: Iterable[str], terminal: Terminal) -> Iterator[str]:
    for note in notes:
        yield from terminal.paragraph(Cell("note: ", "note"), note)


_ARROW: Final = Cell("-> ", "remedy")
_COMMAND: Final = re.compile("[:;] (?=kubectl |kruise-probe )")


def _remedy(text: str, terminal: Terminal, indent: str) -> Iterator[str]:
    """A remedy. Each command at its end is a line that can be copied; --watch wraps it, because its screen has a fixed width."""
    prose, *commands = _COMMAND.split(text)
    if prose:
        yield from terminal.paragraph(
            _ARROW,
            f"{prose}:" if commands else prose,
            indent,
        )
    copied = terminal if terminal.height else terminal._replace(width=0)
    for command in commands:
        yield from copied.paragraph(
            Cell(" " * len(_ARROW.text)),
            command,
            indent,
        )


def screen_text(view: StatusView, terminal: Terminal, scroll: Scroll, *, wide: bool) -> str:
    """What `--watch` draws: a header, and markers with problems first, broken ones before waiting ones.

    Without room for all of it, problems come before pods, and both scroll.
    """
    ordered = sorted(view.markers, key=_urgency)
    lines = list(_screen_head(view, ordered, terminal))
    room = terminal.height - len(lines)
    shown = msgspec.structs.replace(view, markers=ordered, notes=[])
    whole = list(status_lines(shown, terminal, wide=wide))
    if len(whole) <= room:
        return "\n".join(lines + whole)
    problems = list(_problems_of_all(ordered, terminal))
    pods = list(_pods_of_all(shown, terminal, wide=wide))
    first, second = scroll.windows(problems, pods, room - 2, least=LEAST_POD_LINES)
    lines += [*first, "", *second] if first else second
    lines += [""] * (terminal.height - 1 - len(lines))
    keys = "Arrows and PgUp, PgDn scroll, q ends"
    if scroll.below:
        keys = f"… {plural(scroll.below, 'more line')}. {keys}"
    return "\n".join([*lines, head(keys, terminal.width)])


def _problems_of_all(markers: Sequence[MarkerView], terminal: Terminal) -> Iterator[str]:
    for marker in markers:
        if len(markers) > 1 and marker.problems:
            yield terminal.paint(f"{marker.namespace}/{marker.name}", "strong")
        yield from _problem_lines(marker.problems, terminal)


def _pods_of_all(view: StatusView, terminal: Terminal, *, wide: bool) -> Iterator[str]:
    """All markers with their pods, without their problems."""
    now = _time_of(view)
    for marker in view.markers:
        yield from _title_lines(marker, terminal, wide=wide)
        yield from _pod_table(marker, terminal, now, wide=wide)


def _urgency(marker: MarkerView) -> str:
    """Sort key: broken, waiting, no problem."""
    return min(
        (problem.severity for problem in marker.problems),
        default="~",
    )


def _screen_head(
    view: StatusView, markers: Sequence[MarkerView], terminal: Terminal
) -> Iterator[str]:
    total = CountsView(
        pods=sum(marker.counts.pods for marker in markers),
        succeeded=sum(marker.counts.succeeded for marker in markers),
        failed=sum(marker.counts.failed for marker in markers),
        unknown=sum(marker.counts.unknown for marker in markers),
    )
    header = f"{view.time}  {plural(len(markers), 'marker')}, {_counts(total)}"
    yield from terminal.paragraph(Cell(""), header)
    yield from _notes(view.notes, terminal)
    yield ""


def _broken_pods(marker: MarkerView) -> set[str]:
    return {problem.pod for problem in marker.problems if problem.severity == LinkState.BROKEN}


def status_lines(view: StatusView, terminal: Terminal, *, wide: bool) -> Iterator[str]:
    """The problems and results of all markers."""
    now = _time_of(view)
    yield from _notes(view.notes, terminal)
    for number, marker in enumerate(view.markers):
        if number and (marker.problems or marker.pods):
            yield ""
        yield from _marker_lines(marker, terminal, now, wide=wide)


def _time_of(view: StatusView) -> datetime:
    now = parse_time(view.time)
    assert now is not None, "our own stamp"
    return now


def _counts(counts: CountsView, matching: int = 0) -> str:
    pods = plural(counts.pods, "pod")
    if matching > counts.pods:
        pods = f"{counts.pods} of {plural(matching, 'pod')} can be probed"
    if not counts.pods:
        return pods
    return f"{pods}: {counts.succeeded} succeeded, {counts.failed} failed, {counts.unknown} unknown"


def _marker_lines(
    marker: MarkerView, terminal: Terminal, now: datetime, *, wide: bool
) -> Iterator[str]:
    yield from _title_lines(marker, terminal, wide=wide)
    yield from _problem_lines(marker.problems, terminal)
    yield from _pod_table(marker, terminal, now, wide=wide)


def _title_lines(marker: MarkerView, terminal: Terminal, *, wide: bool) -> Iterator[str]:
    pods = _counts(marker.counts, len(marker.pods))
    name = f"{marker.namespace}/{marker.name}"
    yield from terminal.paragraph(Cell(f"{name}  ", "strong"), f"{marker.selector}  {pods}")
    if wide:
        yield from _probe_table(marker, terminal)
        yield ""


def _probe_table(marker: MarkerView, terminal: Terminal) -> Iterator[str]:
    rows = [
        {
            "PROBE": Cell(probe.name),
            "CONTAINER": Cell(probe.container_name),
            "DELAY": Cell(f"{probe.initial_delay_seconds}s"),
            "PERIOD": Cell(f"{probe.period_seconds}s"),
            "TIMEOUT": Cell(f"{probe.timeout_seconds}s"),
            "SUCCESS": Cell(str(probe.success_threshold)),
            "FAILURE": Cell(str(probe.failure_threshold)),
            "CONDITION": Cell(probe.pod_condition_type),
            "CHECK": Cell(probe.check),
        }
        for probe in marker.probes
    ]
    return terminal.table(rows)


def _pod_table(
    marker: MarkerView, terminal: Terminal, now: datetime, *, wide: bool
) -> Iterator[str]:
    """One row for each result; pods with a broken link come first, the others keep their order."""
    broken = _broken_pods(marker)
    reasons = {
        (problem.pod, problem.probe): problem.reason for problem in reversed(marker.problems)
    }
    rows = []
    for pod in sorted(
        marker.pods,
        key=lambda pod: pod.name not in broken,
    ):
        name = pod.name
        node = pod.node
        for result in pod.results:
            why = reasons.get((pod.name, result.probe)) or reasons.get((pod.name, ""), "")
            if not why and result.state == PENDING and pod.phase == "Running":
                why = reasons.get(("", ""), "")
            row = {
                "POD": Cell(name),
                "PROBE": Cell(result.probe),
                "STATE": Cell(result.state, result.state),
                "SINCE": Cell(age(result.since, now)),
                "LAST": Cell(age(result.last_probe_time, now)),
                "NODE": Cell(node),
                "MARKS": Cell(",".join([*_marks(result), *_foreign_marks(result)])),
                "MESSAGE": Cell(_message(pod, result, why)),
            }
            rows.append(row)
            name = ""
            node = ""
    return terminal.table(
        rows,
        optional=() if wide else ("NODE", "LAST"),
    )


def _message(pod: PodView, result: ResultView, why: str) -> str:
    text = result.message or why
    if not text and pod.phase != "Running":
        text = pod.phase
    if result.outdated:
        return f"(before the last edit) {text}".rstrip()
    return text


def _marks(written: ResultView | AttemptView) -> list[str]:
    """The labels and annotations as `kubectl label` writes them: `key=value`, and `key-` for a removed one."""
    marks = []
    for key, value in chain(written.labels.items(), written.annotations.items()):
        name = key.rpartition("/")[2]
        marks.append(f"{name}-" if value is None else f"{name}={value}")
    return marks


def _foreign_marks(result: ResultView) -> list[str]:
    """Values that no result wrote, such as those of a backup."""
    marks = []
    for key, value in result.not_written.items():
        name = key.rpartition("/")[2]
        marks.append(f"{name}={value} (not written by this probe)")
    return marks


def _by_cause(problems: Iterable[ProblemView]) -> list[list[ProblemView]]:
    """The problems of each cause."""
    groups: dict[tuple[str, str, str], list[ProblemView]] = {}
    for problem in problems:
        cause = "" if problem.link == "result" else _cause(problem)
        key = (problem.severity, problem.reason, cause)
        groups.setdefault(key, []).append(problem)
    return list(groups.values())


def _problem_lines(problems: Sequence[ProblemView], terminal: Terminal) -> Iterator[str]:
    """One paragraph for each cause: reason and names, what was found, and what to do."""
    groups = _by_cause(problems)
    for group in groups[:MAX_PROBLEMS]:
        first = group[0]
        yield from terminal.paragraph(
            _severity(first),
            _heading(group),
            "  ",
        )
        if len(set(map(_cause, group))) == 1:
            yield from terminal.paragraph(
                Cell(""),
                first.message,
                "    ",
            )
        yield from _remedy(first.remedy, terminal, "    ")
    if len(groups) > MAX_PROBLEMS:
        yield f"  and {len(groups) - MAX_PROBLEMS} more: -o json shows all of them"


_VARYING: Final = re.compile(r"\b[0-9][0-9a-z.]*s\b")
"""Durations, which differ between pods with the same problem."""
_WORD: Final = re.compile(r"[\w.-]+")


@lru_cache(maxsize=16384)
def _cause(problem: ProblemView) -> str:
    text = _VARYING.sub("", problem.message)
    return _WORD.sub(lambda word: "" if word[0] == problem.pod else word[0], text)


def _severity(problem: ProblemView) -> Cell:
    return Cell(f"{problem.severity}: ", problem.severity)


def _heading(group: Sequence[ProblemView]) -> str:
    """`Reason  web-0, web-1 and 3 more pods (idle, lobby)`: what the problems of one cause concern. A problem of a pod concerns all of its probes."""
    pods: dict[str, None] = {}
    probes: dict[str, None] = {}
    for problem in group:
        if problem.pod:
            pods[problem.pod] = None
        if problem.probe and problem.link != "pod":
            probes[problem.probe] = None
    text = group[0].reason
    if pods:
        text += f"  {', '.join(list(pods)[:MAX_NAMES])}"
    if len(pods) > MAX_NAMES:
        text += f" and {plural(len(pods) - MAX_NAMES, 'more pod')}"
    if probes:
        text += f" ({', '.join(probes)})"
    return text


def attempt_lines(view: AttemptsView, terminal: Terminal) -> Iterator[str]:
    """The results of `try`: a paragraph for each probe, so that no mark and no message is cut."""
    attempts = view.attempts
    succeeded = sum(attempt.state == "Succeeded" for attempt in attempts)
    summary = f"{succeeded} of {plural(len(attempts), 'probe')} succeeded"
    pod = f"{view.namespace}/{view.pod}"
    if view.node:
        pod += f" on {view.node}"
    yield from terminal.paragraph(Cell(f"{pod}: ", "strong"), summary)
    yield from _notes(view.notes, terminal)
    several = len({attempt.marker for attempt in attempts}) > 1
    for attempt in attempts:
        name = f"{attempt.marker}#{attempt.probe}" if several else attempt.probe
        yield from _attempt_lines(name, attempt, terminal)


def _attempt_lines(name: str, attempt: AttemptView, terminal: Terminal) -> Iterator[str]:
    line = f"  {terminal.paint(name, 'strong')}  {terminal.paint(attempt.state, attempt.state)}"
    if attempt.duration_seconds is not None:
        line += f" in {attempt.duration_seconds:.2f}s"
    yield line
    marks = _marks(attempt)
    if attempt.condition_status:
        name = attempt.pod_condition_type.rpartition("/")[2]
        marks.insert(0, f"{name}={attempt.condition_status}")
    if marks:
        yield from terminal.paragraph(
            Cell("marks    "),
            ", ".join(marks),
            "    ",
        )
    if attempt.message:
        yield from terminal.paragraph(
            Cell("message  "),
            attempt.message,
            "    ",
        )
    yield from _remedy(
        attempt.remedy,
        terminal,
        " " * 13,
    )


def explanation_lines(view: ExplanationView, terminal: Terminal, *, wide: bool) -> Iterator[str]:
    """The explanation of one pod; `wide` shows every link, and the markers that do not select a pod beside those that do."""
    strong = Cell(f"{view.namespace}/{view.pod}", "strong")
    yield from terminal.paragraph(strong, f": {view.summary}")
    yield from _notes(view.notes, terminal)
    yield f"  {view.phase} on {view.node}" if view.node else f"  {view.phase}"
    yield from _link_lines(view.readiness_gates, terminal, "  ")
    for marker in view.other_namespaces:
        text = f"PodProbeMarker {marker} has a selector for its labels, but a marker selects only pods of its own namespace"
        yield from terminal.paragraph(
            Cell(""),
            text,
            "  ",
        )
        yield from _remedy(
            f"create it in namespace {view.namespace}",
            terminal,
            "  ",
        )
    for match in view.matching:
        yield ""
        name = Cell(f"{match.marker} ", "strong")
        yield from terminal.paragraph(name, f"selects it: {match.selector}")
        for trace in match.probes:
            yield from terminal.paragraph(
                Cell(f"{trace.probe}  ", "strong"),
                trace.check,
                "  ",
            )
            links = trace.links if wide else _folded(trace.links)
            yield from _link_lines(
                [*links, *_last_result(trace)],
                terminal,
                "    ",
            )
    if view.matching and not wide:
        return
    if view.not_matching:
        yield ""
        yield "Other PodProbeMarkers of the namespace do not select it:"
    for other in view.not_matching:
        yield from terminal.paragraph(
            Cell(other.marker, "strong"),
            f": {other.why}",
            "  ",
        )
    if view.more_not_matching:
        yield f"  and {view.more_not_matching} more"


def _last_result(trace: TraceView) -> Iterator[Link]:
    """What the pod still shows of a probe whose links end before the result, such as a paused one."""
    if not trace.first_broken or "result" in {link.name for link in trace.links}:
        return
    result = trace.result
    marks = ",".join(_marks(result))
    if result.state in ("Succeeded", "Failed"):
        text = f"{result.state}: {result.message}".rstrip(": ")
        yield Link(LAST_RESULT, LinkState.OK, f"{text}; {marks}" if marks else text)
    elif marks:
        yield Link(STILL_SET, LinkState.OK, marks)
    if foreign := _foreign_marks(result):
        yield Link(
            NOT_A_RESULT,
            LinkState.OK,
            ", ".join(foreign),
        )


def _folded(links: Sequence[Link]) -> list[Link]:
    """The links that are OK as one line: with their results if all are OK, otherwise only their names."""
    working = [link for link in links if link.state == "ok"]
    others = [link for link in links if link.state != "ok"]
    if not working:
        return others
    text = ", ".join(link.name for link in working)
    if not others:
        results = ("provider", "result", "condition", "marks")
        text = "; ".join(link.text for link in links if link.name in results)
    return [
        Link(
            plural(len(working), "link"),
            LinkState.OK,
            text,
        ),
        *others,
    ]


def _link_lines(
    links: Sequence[Link],
    terminal: Terminal,
    indent: str,
) -> Iterator[str]:
    """State, name and text in columns; the remedy below."""
    state_width = max(
        (len(_shown_state(link)) for link in links),
        default=0,
    )
    name_width = max(
        (len(link.name) for link in links),
        default=0,
    )
    column = " " * (len(indent) + state_width + name_width + 4)
    for link in links:
        state = _shown_state(link)
        padding = " " * (state_width - len(state))
        text = f"{link.text} ({link.reason})" if link.reason else link.text
        first, *rest = terminal.paragraph(
            Cell(""),
            text,
            column,
        )
        first = first[len(column) :]
        yield f"{indent}{terminal.paint(state, state)}{padding}  {link.name:<{name_width}}  {first}".rstrip()
        yield from rest
        yield from _remedy(link.remedy, terminal, column)


def _shown_state(link: Link) -> str:
    return "" if link.name in (LAST_RESULT, STILL_SET, NOT_A_RESULT) else link.state
