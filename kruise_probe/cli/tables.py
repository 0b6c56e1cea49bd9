"""The text output of `status`, `explain` and `try`. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Final

import msgspec

from kruise_probe.api.times import age, parse_time
from kruise_probe.cli.terminal import Cell, Terminal
from kruise_probe.inspection.attempts import AttemptsView
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
LAST_RESULT: Final = "last result"
"""Instead of the name of a link; it has no state of its own."""


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _notes(notes: Iterable[str], terminal: Terminal) -> Iterator[str]:
    for note in notes:
        yield from terminal.paragraph(Cell("note: ", "note"), note)


_ARROW: Final = Cell("-> ", "remedy")
_COMMAND: Final = re.compile("[:;] (?=kubectl |kruise-probe )")


def _remedy(text: str, terminal: Terminal, indent: str) -> Iterator[str]:
    """A remedy. Each command at its end is a line that can be copied; --watch wraps it, because its screen cannot scroll."""
    prose, *commands = _COMMAND.split(text)
    if prose:
        yield from terminal.paragraph(_ARROW, f"{prose}:" if commands else prose, indent)
    copied = terminal if terminal.height else terminal._replace(width=0)
    for command in commands:
        yield from copied.paragraph(Cell(" " * len(_ARROW.text)), command, indent)


def screen_text(view: StatusView, terminal: Terminal, *, wide: bool) -> str:
    """What `--watch` draws: a header, and markers with problems first, broken ones before waiting ones.

    If there is not enough room for everything, only pods with problems are listed, so a marker without problems has one
    line. If the problems do not fit either, no pods are listed, and the problems of the last markers have one line each.
    What is below the screen is counted.
    """
    ordered = sorted(view.markers, key=_urgency)
    counts = [(0, 0, 0, 0), *(msgspec.structs.astuple(each.counts) for each in ordered)]
    total = CountsView(*map(sum, zip(*counts, strict=True)))
    header = f"{view.time}  {plural(len(ordered), 'marker')}, {_counts(total)}"
    lines = [*terminal.paragraph(Cell(""), header), *_notes(view.notes, terminal), ""]
    top = len(lines)
    brief = [list(_brief_lines(each, terminal)) for each in ordered]
    every = len(ordered)
    most = min(every, terminal.height // 3)  # a problem has three lines or more
    without_pods = [msgspec.structs.replace(each, pods=[]) for each in ordered[:most]]
    forms = [(ordered, every), (list(map(_reduced, ordered)), every)]
    forms += ((without_pods, count) for count in range(most, -1, -1))
    healthy = sum(not each.problems for each in ordered)
    last = terminal.height - 1
    for markers, count in forms:
        shown = msgspec.structs.replace(view, markers=markers[:count], notes=[])
        lines[top:] = status_lines(shown, terminal, wide=wide and markers is ordered)
        lines += chain(*brief[count:])
        if len(lines) - max(1, healthy * (markers is not ordered)) <= last:
            break
    if (more := len(lines) - last) > 1:
        lines[last:] = [f"… {more} more lines: enlarge the terminal, or name one marker"]
    return "\n".join(lines)


def _urgency(marker: MarkerView) -> str:
    """Sort key: broken, waiting, no problem."""
    return min((each.severity for each in marker.problems), default="~")


def _reduced(marker: MarkerView) -> MarkerView:
    """The marker with its pods that have a broken link."""
    broken = {each.pod for each in marker.problems if each.severity == LinkState.BROKEN}
    pods = [each for each in marker.pods if each.name in broken]
    return msgspec.structs.replace(marker, pods=pods)


def _brief_lines(marker: MarkerView, terminal: Terminal) -> Iterator[str]:
    """A line for each cause; one for a marker without problems."""
    name = f"{marker.namespace}/{marker.name}  "
    for group in _by_cause(marker.problems):
        lead = Cell(f"{group[0].severity}: ", group[0].severity)
        yield from terminal.paragraph(lead, f"{name}{group[0].reason}{_concerned(group)}")
    if not marker.problems:
        yield from terminal.paragraph(Cell(name, "strong"), _counts(marker.counts))


def status_lines(view: StatusView, terminal: Terminal, *, wide: bool) -> Iterator[str]:
    """The problems and results of all markers."""
    now = parse_time(view.time)
    assert now is not None, "our own stamp"
    yield from _notes(view.notes, terminal)
    for number, marker in enumerate(view.markers):
        if number and (marker.problems or marker.pods):
            yield ""
        yield from _marker_lines(marker, terminal, now, wide=wide)


def _counts(counts: CountsView, matching: int = 0) -> str:
    pods = plural(counts.pods, "pod")
    if matching > counts.pods:
        pods = f"{counts.pods} of {plural(matching, 'pod')} can be probed"
    summary = f"{counts.succeeded} succeeded, {counts.failed} failed, {counts.unknown} unknown"
    return f"{pods}: {summary}" if counts.pods else pods


def _marker_lines(
    marker: MarkerView, terminal: Terminal, now: datetime, *, wide: bool
) -> Iterator[str]:
    pods = _counts(marker.counts, len(marker.pods))
    name = f"{marker.namespace}/{marker.name}"
    yield from terminal.paragraph(Cell(f"{name}  ", "strong"), f"{marker.selector}  {pods}")
    if wide:
        yield from _probe_table(marker, terminal)
        yield ""
    yield from _problem_lines(marker.problems, terminal)
    if marker.pods:
        yield from _pod_table(marker, terminal, now, wide=wide)


def _probe_table(marker: MarkerView, terminal: Terminal) -> Iterator[str]:
    return terminal.table(
        {
            "PROBE": Cell(each.name),
            "CONTAINER": Cell(each.container_name),
            "DELAY": Cell(f"{each.initial_delay_seconds}s"),
            "PERIOD": Cell(f"{each.period_seconds}s"),
            "TIMEOUT": Cell(f"{each.timeout_seconds}s"),
            "SUCCESS": Cell(str(each.success_threshold)),
            "FAILURE": Cell(str(each.failure_threshold)),
            "CONDITION": Cell(each.pod_condition_type),
            "CHECK": Cell(each.check),
        }
        for each in marker.probes
    )


def _pod_table(
    marker: MarkerView, terminal: Terminal, now: datetime, *, wide: bool
) -> Iterator[str]:
    """One row for each result; pods with a broken link come first, the others keep their order."""
    broken = {each.pod for each in marker.problems if each.severity == LinkState.BROKEN}
    reasons = {(each.pod, each.probe): each.reason for each in reversed(marker.problems)}
    rows = []
    for pod in sorted(marker.pods, key=lambda pod: pod.name not in broken):
        for index, result in enumerate(pod.results):
            waits = result.state == PENDING and pod.phase == "Running"
            of_all = reasons.get(("", ""), "") if waits else ""
            why = reasons.get((pod.name, result.probe)) or reasons.get((pod.name, ""), of_all)
            rows.append(
                {
                    "POD": Cell("" if index else pod.name),
                    "PROBE": Cell(result.probe),
                    "STATE": Cell(result.state, result.state),
                    "SINCE": Cell(age(result.since, now)),
                    "LAST": Cell(age(result.last_probe_time, now)),
                    "NODE": Cell("" if index else pod.node),
                    "MARKS": Cell(",".join(_pairs(result.labels, result.annotations))),
                    "MESSAGE": Cell(_message(pod, result, why)),
                }
            )
    return terminal.table(rows, optional=() if wide else ("NODE", "LAST"))


def _message(pod: PodView, result: ResultView, why: str) -> str:
    text = result.message or why or ("" if pod.phase == "Running" else pod.phase)
    return f"(before the last edit) {text}".rstrip() if result.outdated else text


def _pairs(*marks: Mapping[str, str] | Mapping[str, str | None]) -> list[str]:
    """The marks as `kubectl label` writes them: `key=value`, and `key-` for a removed one."""
    return [
        f"{key.rpartition('/')[2]}{'-' if value is None else f'={value}'}"
        for each in marks
        for key, value in each.items()
    ]


def _by_cause(problems: Iterable[ProblemView]) -> list[list[ProblemView]]:
    """The problems of each cause."""
    groups: dict[tuple[str, str, str], list[ProblemView]] = {}
    for each in problems:
        cause = "" if each.link == "result" else _cause(each)
        groups.setdefault((each.severity, each.reason, cause), []).append(each)
    return list(groups.values())


def _problem_lines(problems: Sequence[ProblemView], terminal: Terminal) -> Iterator[str]:
    """One paragraph for each cause: reason and names, what was found, and what to do."""
    groups = _by_cause(problems)
    for group in groups[:MAX_PROBLEMS]:
        one = group[0]
        lead = Cell(f"{one.severity}: ", one.severity)
        yield from terminal.paragraph(lead, f"{one.reason}{_concerned(group)}", "  ")
        if len({_cause(each) for each in group}) == 1:
            yield from terminal.paragraph(Cell(""), one.message, "    ")
        yield from _remedy(one.remedy, terminal, "    ")
    if len(groups) > MAX_PROBLEMS:
        yield f"  and {len(groups) - MAX_PROBLEMS} more: -o json shows all of them"


_VARYING: Final = re.compile(r"\b[0-9][0-9a-z.]*s\b")
"""Durations, which differ between pods with the same problem."""
_WORD: Final = re.compile(r"[\w.-]+")


@lru_cache(maxsize=16384)
def _cause(problem: ProblemView) -> str:
    text = _VARYING.sub("", problem.message)
    return _WORD.sub(lambda word: "" if word[0] == problem.pod else word[0], text)


def _concerned(group: Iterable[ProblemView]) -> str:
    """`  web-0, web-1 and 3 more pods (idle, lobby)`: what the problems of one cause concern. A problem of a pod concerns all of its probes."""
    pods = list(dict.fromkeys(each.pod for each in group if each.pod))
    probes = dict.fromkeys(each.probe for each in group if each.probe and each.link != "pod")
    more = f" and {plural(len(pods) - MAX_NAMES, 'more pod')}" if len(pods) > MAX_NAMES else ""
    names = f"  {', '.join(pods[:MAX_NAMES])}{more}" if pods else ""
    return f"{names} ({', '.join(probes)})" if probes else names


def attempt_lines(view: AttemptsView, terminal: Terminal) -> Iterator[str]:
    """The results of `try`: a paragraph for each probe, so that no mark and no message is cut."""
    attempts = view.attempts
    succeeded = sum(each.state == "Succeeded" for each in attempts)
    summary = f"{succeeded} of {plural(len(attempts), 'probe')} succeeded"
    place = f" on {view.node}" if view.node else ""
    yield from terminal.paragraph(Cell(f"{view.namespace}/{view.pod}{place}: ", "strong"), summary)
    yield from _notes(view.notes, terminal)
    several = len({each.marker for each in attempts}) > 1
    for each in attempts:
        name = f"{each.marker}#{each.probe}" if several else each.probe
        seconds = each.duration_seconds
        time = "" if seconds is None else f" in {seconds:.2f}s"
        yield f"  {terminal.paint(name, 'strong')}  {terminal.paint(each.state, each.state)}{time}"
        condition = {each.pod_condition_type: each.condition_status}
        pairs = _pairs(condition if each.condition_status else {}, each.labels, each.annotations)
        for title, text in (("marks", ", ".join(pairs)), ("message", each.message)):
            if text:
                yield from terminal.paragraph(Cell(f"{title:<7}  "), text, "    ")
        yield from _remedy(each.remedy, terminal, " " * 13)


def explanation_lines(view: ExplanationView, terminal: Terminal, *, wide: bool) -> Iterator[str]:
    """The explanation of one pod; `wide` shows every link, and the markers that do not select a pod beside those that do."""
    strong = Cell(f"{view.namespace}/{view.pod}", "strong")
    yield from terminal.paragraph(strong, f": {view.summary}")
    yield from _notes(view.notes, terminal)
    yield f"  {view.phase}{f' on {view.node}' if view.node else ''}"
    yield from _link_lines(view.readiness_gates, terminal, "  ")
    for each in view.other_namespaces:
        text = f"PodProbeMarker {each} has a selector for its labels, but a marker selects only pods of its own namespace"
        yield from terminal.paragraph(Cell(""), text, "  ")
        yield from _remedy(f"create it in namespace {view.namespace}", terminal, "  ")
    for match in view.matching:
        yield ""
        yield from terminal.paragraph(
            Cell(f"{match.marker} ", "strong"), f"selects it: {match.selector}"
        )
        for trace in match.probes:
            yield from terminal.paragraph(Cell(f"{trace.probe}  ", "strong"), trace.check, "  ")
            links = [*(trace.links if wide else _folded(trace.links)), *_last_result(trace)]
            yield from _link_lines(links, terminal, "    ")
    if view.matching and not wide:
        return
    if view.not_matching:
        yield from ("", "Other PodProbeMarkers of the namespace do not select it:")
    for other in view.not_matching:
        yield from terminal.paragraph(Cell(other.marker, "strong"), f": {other.why}", "  ")
    if view.more_not_matching:
        yield f"  and {view.more_not_matching} more"


def _last_result(trace: TraceView) -> Iterator[Link]:
    """What the pod still shows of a probe whose links end before the result, such as a paused one."""
    if not trace.first_broken or any(each.name == "result" for each in trace.links):
        return
    result = trace.result
    marks = ",".join(_pairs(result.labels, result.annotations))
    known = result.state in ("Succeeded", "Failed")
    state = f"{result.state}: {result.message}".rstrip(": ") if known else ""
    if text := "; ".join(filter(None, (state, marks))):
        yield Link(LAST_RESULT, LinkState.OK, text)


def _folded(links: Sequence[Link]) -> list[Link]:
    """The links that are OK as one line: with their results if all are OK, otherwise only their names."""
    working = [each for each in links if each.state == "ok"]
    if len(working) == len(links):
        text = "; ".join(
            each.text for each in links if each.name in ("provider", "result", "condition", "marks")
        )
    else:
        text = ", ".join(each.name for each in working)
    folded = [Link(plural(len(working), "link"), LinkState.OK, text)] if working else []
    return [*folded, *(each for each in links if each.state != "ok")]


def _link_lines(links: Sequence[Link], terminal: Terminal, indent: str) -> Iterator[str]:
    """State, name and text in columns; the remedy below."""
    states = ["" if each.name == LAST_RESULT else each.state for each in links]
    state_width = max(map(len, states), default=0)
    name_width = max((len(each.name) for each in links), default=0)
    column = " " * (len(indent) + state_width + name_width + 4)
    for state, link in zip(states, links, strict=True):
        reason = f" ({link.reason})" if link.reason else ""
        first, *rest = terminal.paragraph(Cell(""), f"{link.text}{reason}", column)
        shown = f"{terminal.paint(state, state)}{' ' * (state_width - len(state))}"
        yield f"{indent}{shown}  {link.name:<{name_width}}  {first[len(column) :]}".rstrip()
        yield from rest
        yield from _remedy(link.remedy, terminal, column)
