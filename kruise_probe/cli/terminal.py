"""Text for terminals: tables and paragraphs by the width of characters, and colours.

If the output is not a terminal, nothing is cut.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import click

GAP: Final = "  "

_STYLES: Final = {
    "Succeeded": "32", "Failed": "31", "Unknown": "33", "Pending": "2",
    "ok": "32", "broken": "1;31", "waiting": "33", "note": "33",
    "strong": "1", "heading": "1;2", "remedy": "36", "frame": "1;94",
}  # fmt: skip
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+")


def printable(text: str) -> str:
    """The text without control characters. Messages and annotations may come from untrusted pods."""
    return _CONTROLS.sub(" ", text)


def cells(text: str) -> int:
    """How many columns the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _head(text: str, width: int) -> str:
    """As many characters as fit, at least one."""
    end, room = 1, width - cells(text[:1])
    while end < len(text) and (room := room - _cells(text[end])) >= 0:
        end += 1
    return text[:end]


def head(text: str, width: int) -> str:
    """The beginning of the text in at most `width` columns, with `…` after it if it is cut."""
    return text if cells(text) <= width else f"{_head(text, width - 1)}…"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; 0 for one line."""
    if not width or cells(text) <= width:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if line and cells(joined) > width:
            lines.append(line)
            joined = word
        while cells(joined) > width > 1:
            lines.append(_head(joined, width))
            joined = joined[len(lines[-1]) :]
        line = joined
    return [*lines, line]


def show(text: str) -> None:
    """Print text that has escape sequences only if they are wanted; click would remove them from a pipe."""
    click.echo(text, nl=False, color=True)


class Cell(NamedTuple):
    text: str
    style: str = ""


class Terminal(NamedTuple):
    """Where text is printed. `width` and `height` are 0 if the output is not limited."""

    width: int = 0
    height: int = 0
    color: bool = False

    @classmethod
    def of_stdout(cls) -> Self:
        """Standard output. FORCE_COLOR gives a pipe and TERM=dumb colours too; NO_COLOR wins over it."""
        dumb = os.environ.get("TERM") in ("dumb", "unknown")
        wanted = os.environ.get("FORCE_COLOR") or (sys.stdout.isatty() and not dumb)
        color = bool(wanted and not os.environ.get("NO_COLOR"))
        if not sys.stdout.isatty():
            return cls(color=color)
        import shutil  # lazy: 3 ms, and most output of programs goes to no terminal

        width, height = shutil.get_terminal_size()
        return cls(width, 0 if dumb else height, color)

    def paint(self, text: str, style: str = "") -> str:
        code = _STYLES.get(style) if self.color else None
        return f"\x1b[{code}m{printable(text)}\x1b[0m" if code and text else printable(text)

    def paragraph(self, lead: Cell, text: str, indent: str = "") -> Iterator[str]:
        """`lead` and the text, whose further lines begin in the column of the text."""
        start = len(indent) + cells(printable(lead.text))
        first, *rest = wrapped(printable(text), self.width and max(self.width - start, 8))
        yield f"{indent}{self.paint(*lead)}{first}".rstrip()
        yield from (f"{' ' * start}{each}" for each in rest)

    def table(
        self, rows: Iterable[Mapping[str, Cell]], optional: Sequence[str] = ()
    ) -> Iterator[str]:
        """Lines of at most the width; `rows` are cells by column. Columns that are `optional` leave first; then MESSAGE and
        MARKS shrink. Without rows there is no line.
        """
        table = [
            {name: Cell(printable(each.text), each.style) for name, each in row.items()}
            for row in rows
        ]
        heading = {name: Cell(name, "heading") for row in table[:1] for name in row}
        table = [heading, *table] if table else []
        widths = {name: max(cells(row[name].text) for row in table) for name in heading}
        for name in optional:
            if self._excess(widths | {"MESSAGE": min(widths.get("MESSAGE", 0), 40)}) > 0:
                del widths[name]
        self._shrink(widths)
        for row in table:
            line = [self._fitted(row[name], width, name == "POD") for name, width in widths.items()]
            yield f"{GAP}{GAP.join(line)}".rstrip()

    def _excess(self, widths: dict[str, int]) -> int:
        return sum(widths.values()) + len(GAP) * len(widths) - self.width if self.width else 0

    def _shrink(self, widths: dict[str, int]) -> None:
        widest = sorted(widths, key=lambda name: -widths[name])
        order = [("MESSAGE", 24), ("MARKS", 24), ("MESSAGE", 8)]
        order += [(name, least) for least in (12, 8, 4) for name in widest]
        for name, least in order:
            if name in widths:
                widths[name] -= max(min(self._excess(widths), widths[name] - least), 0)

    def _fitted(self, cell: Cell, width: int, keep_end: bool) -> str:
        """The text in `width` columns. Names of pods differ in their end, so it is kept."""
        text = cell.text
        if cells(text) > width:
            text = f"…{text[1 - width :]}" if keep_end else head(text, width)
        return self.paint(text, cell.style) + " " * (width - cells(text))


class _HelpFormatter(click.HelpFormatter):
    def write_heading(self, heading: str) -> None:
        super().write_heading(Terminal.of_stdout().paint(heading, "strong"))


class HelpContext(click.Context):
    """The context of a command whose --help has bold headings where colours are wanted."""

    formatter_class: type[click.HelpFormatter] = _HelpFormatter

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.color = Terminal.of_stdout().color
