"""What the text outputs of `status`, `explain` and `try` share. Pure."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from kruise_probe.cli.terminal import Cell, Terminal
from kruise_probe.inspection.views import ResultView


def plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def note_lines(notes: Iterable[str], terminal: Terminal) -> Iterator[str]:
    for note in notes:
        yield from terminal.paragraph(Cell("note: ", "note"), note)


_ARROW: Final = Cell("-> ", "remedy")
_COMMAND: Final = re.compile("[:;] (?=kubectl |kruise-probe )")


def remedy_lines(text: str, terminal: Terminal, indent: str) -> Iterator[str]:
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


def mark_texts(result: ResultView) -> list[str]:
    """Each mark as `key=value`, with the key's name only."""
    marks = chain(result.labels.items(), result.annotations.items())
    return [_mark_text(key, value) for key, value in marks]


def foreign_marks(result: ResultView) -> list[str]:
    """Values that no result wrote, such as those of a backup."""
    marks = result.not_written.items()
    return [f"{_mark_text(key, value)} (not written by this probe)" for key, value in marks]


def _mark_text(key: str, value: str) -> str:
    _, _, name = key.rpartition("/")
    return f"{name}={value}"
