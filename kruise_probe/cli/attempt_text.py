"""The text output of `try`. Pure."""

from collections.abc import Iterator, Mapping

from kruise_probe.cli.paragraphs import note_lines, plural, remedy_lines
from kruise_probe.cli.terminal import Cell, Terminal
from kruise_probe.inspection.attempts import AttemptsView, AttemptView


def attempt_lines(view: AttemptsView, terminal: Terminal) -> Iterator[str]:
    """The results of `try`: a paragraph for each probe, so that no mark and no message is cut."""
    attempts = view.attempts
    succeeded = sum(attempt.state == "Succeeded" for attempt in attempts)
    pod = f"{view.namespace}/{view.pod}"
    if view.node:
        pod += f" on {view.node}"
    yield from terminal.paragraph(
        Cell(f"{pod}: ", "strong"),
        f"{succeeded} of {plural(len(attempts), 'probe')} succeeded",
    )
    yield from note_lines(view.notes, terminal)
    several = len({attempt.marker for attempt in attempts}) > 1
    for attempt in attempts:
        name = f"{attempt.marker}#{attempt.probe}" if several else attempt.probe
        yield from _attempt_lines(name, attempt, terminal)


def _attempt_lines(
    name: str,
    attempt: AttemptView,
    terminal: Terminal,
) -> Iterator[str]:
    probe = terminal.paint(name, "strong")
    state = terminal.paint(attempt.state, attempt.state)
    line = f"  {probe}  {state}"
    if attempt.duration_seconds is not None:
        line += f" in {attempt.duration_seconds:.2f}s"
    yield line
    condition = ""
    if attempt.condition_status:
        condition = f"{attempt.pod_condition_type}={attempt.condition_status}"
    fields = [
        ("condition", condition),
        ("labels", _mark_text(attempt.labels)),
        ("annotations", _mark_text(attempt.annotations)),
        ("message", attempt.message),
    ]
    fields += [("note", note) for note in attempt.notes]
    for field, text in fields:
        if text:
            yield from terminal.paragraph(Cell(f"{field:13}"), text, "    ")
    yield from remedy_lines(attempt.remedy, terminal, "    ")


def _mark_text(marks: Mapping[str, str | None]) -> str:
    """The marks as `kubectl label` writes them: `key=value`, and `key-` for a removed one."""
    texts = []
    for key, value in marks.items():
        if value is None:
            texts.append(f"{key}-")
        else:
            texts.append(f"{key}={value}")
    return ", ".join(texts)
