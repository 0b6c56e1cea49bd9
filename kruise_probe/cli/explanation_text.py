"""The text output of `explain`. Pure."""

from collections.abc import Iterator, Sequence

from kruise_probe.cli.paragraphs import (
    foreign_marks,
    mark_texts,
    note_lines,
    plural,
    remedy_lines,
)
from kruise_probe.cli.terminal import Cell, Terminal
from kruise_probe.inspection.explanation import ExplanationView, TraceView
from kruise_probe.inspection.link import Link, LinkState, address_of


def explanation_lines(view: ExplanationView, terminal: Terminal, *, wide: bool) -> Iterator[str]:
    """The explanation of one pod; `wide` shows every link, and beside the markers that select the pod all others, not only those with a typo."""
    strong = Cell(f"{view.namespace}/{view.pod}", "strong")
    yield from terminal.paragraph(strong, f": {view.summary}")
    yield from note_lines(view.notes, terminal)
    place = f"  {view.phase}"
    if view.node:
        place += f" on {view.node}"
    yield place
    yield from _link_lines(view.readiness_gates, terminal, "  ")
    for marker in view.other_namespaces:
        text = f"PodProbeMarker {marker} has a selector for its labels, but a marker selects only pods of its own namespace"
        yield from terminal.paragraph(Cell(""), text, "  ")
        yield from remedy_lines(
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
            yield from _link_lines([*links, *_last_result(trace)], terminal, "    ")
    unmatched = view.not_matching
    lists_typos_only = bool(view.matching) and not wide
    if lists_typos_only:
        unmatched = [other for other in unmatched if other.remedy]
    if unmatched:
        yield ""
        yield "Other PodProbeMarkers of the namespace do not select it:"
    for other in unmatched:
        name = Cell(other.marker, "strong")
        yield from terminal.paragraph(name, f": {other.why}", "  ")
        yield from remedy_lines(other.remedy, terminal, "  ")
    if view.more_not_matching and not lists_typos_only:
        yield f"  and {view.more_not_matching} more"


def _last_result(trace: TraceView) -> Iterator[Link]:
    """What the pod still shows of a probe whose links end before the result, such as a paused one."""
    if not trace.first_broken or "result" in {link.name for link in trace.links}:
        return
    result = trace.result
    marks = ",".join(mark_texts(result))
    if result.state in ("Succeeded", "Failed"):
        text = f"{result.state}: {result.message}".rstrip(": ")
        if marks:
            text += f"; {marks}"
        yield Link("last result", LinkState.NONE, text)
    elif marks:
        yield Link("still set", LinkState.NONE, marks)
    if foreign := foreign_marks(result):
        yield Link("not a result", LinkState.NONE, ", ".join(foreign))


def _folded(links: Sequence[Link]) -> list[Link]:
    """The links that are OK as one line: with their results if all are OK, otherwise only their names."""
    working = []
    others = []
    remedy = ""
    for link in links:
        if link.state == LinkState.OK:
            working.append(link)
            remedy = remedy or link.remedy
        else:
            others.append(link)
    if not working:
        return others
    text = ", ".join(link.name for link in working)
    if not others:
        results = ("provider", "result", "condition", "marks")
        text = "; ".join(link.text for link in links if link.name in results)
    folded = Link(
        plural(len(working), "link"),
        LinkState.OK,
        text,
        remedy=remedy,
    )
    return [folded, *others]


def _link_lines(
    links: Sequence[Link],
    terminal: Terminal,
    indent: str,
) -> Iterator[str]:
    """State, name and text in columns; the remedy below."""
    state_width = max((len(link.state) for link in links), default=0)
    name_width = max((len(link.name) for link in links), default=0)
    column = " " * (len(indent) + state_width + name_width + 4)
    for link in links:
        state = terminal.paint(link.state, link.state)
        padding = " " * (state_width - len(link.state))
        text = link.text
        if link.reason:
            text += f" ({link.reason})"
        first, *rest = terminal.paragraph(Cell(""), text, column)
        start = f"{indent}{state}{padding}  {link.name:<{name_width}}  "
        yield f"{start}{first.removeprefix(column)}".rstrip()
        yield from rest
        yield from remedy_lines(link.remedy, terminal, column)
        if address := address_of(link.reason):
            yield f"{column}   {address}"
