"""The text output of `status`: problems and results of each marker. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from kruise_probe.api.times import age, parse_time
from kruise_probe.cli.paragraphs import (
    foreign_marks,
    mark_texts,
    note_lines,
    plural,
    remedy_lines,
)
from kruise_probe.cli.terminal import Cell, Terminal
from kruise_probe.inspection.link import LinkState
from kruise_probe.inspection.views import (
    PENDING,
    CountsView,
    MarkerView,
    PodView,
    ProblemView,
    ResultView,
    RoleView,
    StatusView,
)

MAX_PROBLEMS: Final = 8
MAX_NAMES: Final = 3
HINT: Final = "hint"
"""Instead of a severity: the probe works, and its result has a known cause."""


def status_lines(
    view: StatusView,
    terminal: Terminal,
    *,
    wide: bool,
) -> Iterator[str]:
    """The problems and results of all markers."""
    now = time_of(view)
    yield from note_lines(view.notes, terminal)
    for number, marker in enumerate(view.markers):
        if number and (marker.problems or marker.pods):
            yield ""
        yield from _marker_lines(
            marker,
            terminal,
            now,
            wide=wide,
        )


def time_of(view: StatusView) -> datetime:
    now = parse_time(view.time)
    assert now is not None, "our own stamp"
    return now


def counts_text(counts: CountsView, matching: int = 0) -> str:
    pods = plural(counts.pods, "pod")
    if matching > counts.pods:
        pods = f"{counts.pods} of {plural(matching, 'pod')} can be probed"
    if not counts.pods:
        return pods
    text = f"{pods}: {counts.succeeded} succeeded, {counts.failed} failed"
    unknown = counts.unknown - counts.pending
    if unknown or not counts.pending:
        text += f", {unknown} unknown"
    if counts.pending:
        text += f", {counts.pending} pending"
    return text


def _marker_lines(
    marker: MarkerView, terminal: Terminal, now: datetime, *, wide: bool
) -> Iterator[str]:
    yield from title_lines(marker, terminal, wide=wide)
    yield from _role_lines(marker.roles, terminal, now)
    yield from problem_lines(problems_and_hints(marker), terminal)
    yield from pod_table(marker, terminal, now, wide=wide)


def title_lines(
    marker: MarkerView,
    terminal: Terminal,
    *,
    wide: bool,
) -> Iterator[str]:
    name = Cell(f"{marker.namespace}/{marker.name}  ", "strong")
    pods = counts_text(marker.counts, len(marker.pods))
    yield from terminal.paragraph(name, f"{marker.selector}  {pods}")
    if wide:
        yield from _probe_table(marker, terminal)
        yield ""


def _role_lines(
    roles: Iterable[RoleView],
    terminal: Terminal,
    now: datetime,
) -> Iterator[str]:
    """One line for each role: `role=primary  db-1 (since 4m)  held off: db-0`."""
    for role in roles:
        text = ", ".join(role.holders) or "no holder"
        if role.since:
            epoch = "" if role.epoch is None else f", epoch {role.epoch}"
            text += f" (since {age(role.since, now)}{epoch})"
        if role.held_off:
            text += f"  held off: {', '.join(role.held_off)}"
        if role.group:
            text = f"{role.group}  {text}"
        yield from terminal.paragraph(Cell(f"{role.role}  ", "strong"), text)


def problems_and_hints(marker: MarkerView) -> list[ProblemView]:
    """The problems, and as such the results whose cause is known."""
    problems = [*marker.problems]
    for pod in marker.pods:
        for result in pod.results:
            if result.remedy:
                where = (pod.name, result.probe)
                problems.append(ProblemView(HINT, "", result.state, "", result.remedy, *where))
    return problems


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


def pod_table(
    marker: MarkerView, terminal: Terminal, now: datetime, *, wide: bool
) -> Iterator[str]:
    """One row for each result; pods with a broken link come first, the others keep their order."""
    broken = set[str]()
    reasons: dict[tuple[str, str], str] = {}
    for problem in marker.problems:
        reasons.setdefault((problem.pod, problem.probe), problem.reason)
        if problem.severity == LinkState.BROKEN:
            broken.add(problem.pod)
    rows = []
    for pod in sorted(marker.pods, key=lambda pod: pod.name not in broken):
        name = pod.name
        node = pod.node
        for result in pod.results:
            of_pod = reasons.get((pod.name, ""), "")
            why = reasons.get((pod.name, result.probe)) or of_pod
            if not why and result.state == PENDING and pod.phase == "Running":
                why = reasons.get(("", ""), "")
            row = {
                "POD": Cell(name),
                "PROBE": Cell(result.probe),
                "STATE": Cell(result.state, result.state),
                "SINCE": Cell(age(result.since, now)),
                "LAST": Cell(age(result.last_probe_time, now)),
                "NODE": Cell(node),
                "MARKS": Cell(",".join([*mark_texts(result), *foreign_marks(result)])),
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


def _by_cause(problems: Iterable[ProblemView]) -> list[list[ProblemView]]:
    """The problems of each cause."""
    groups: dict[tuple[str, str, str], list[ProblemView]] = {}
    for problem in problems:
        cause = ""
        if problem.link != "result":
            cause = _cause(problem)
        key = (problem.severity, problem.reason, cause)
        group = groups.setdefault(key, [])
        group.append(problem)
    return list(groups.values())


def problem_lines(problems: Sequence[ProblemView], terminal: Terminal) -> Iterator[str]:
    """One paragraph for each cause: reason and names, what was found, and what to do."""
    groups = _by_cause(problems)
    for group in groups[:MAX_PROBLEMS]:
        first = group[0]
        severity = Cell(f"{first.severity}: ", first.severity)
        heading = _heading(group)
        yield from terminal.paragraph(severity, heading, "  ")
        causes = {_cause(problem) for problem in group}
        if first.message and len(causes) == 1:
            yield from terminal.paragraph(Cell(""), first.message, "    ")
        yield from remedy_lines(first.remedy, terminal, "    ")
    more = len(groups) - MAX_PROBLEMS
    if more > 0:
        yield f"  and {more} more: -o json shows all of them"


_VARYING: Final = re.compile(r"\b[0-9][0-9a-z.]*s\b")
"""Durations, which differ between pods with the same problem."""
_WORD: Final = re.compile(r"[\w.-]+")


@lru_cache(maxsize=16384)
def _cause(problem: ProblemView) -> str:
    """Its message, or else its remedy, without what differs between pods: durations, and the name of the pod."""

    def without_pod(word: re.Match[str]) -> str:
        if word[0] == problem.pod:
            return ""
        return word[0]

    text = _VARYING.sub("", problem.message or problem.remedy)
    return _WORD.sub(without_pod, text)


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
        names = ", ".join(list(pods)[:MAX_NAMES])
        text += f"  {names}"
    if len(pods) > MAX_NAMES:
        more = plural(len(pods) - MAX_NAMES, "more pod")
        text += f" and {more}"
    if probes:
        names = ", ".join(probes)
        text += f" ({names})"
    return text
