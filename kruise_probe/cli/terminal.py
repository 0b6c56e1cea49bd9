"""Text for terminals: tables and paragraphs by the width of characters, and colours.

If the output is not a terminal, nothing is cut.
"""

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import click

GAP: Final = "  "

_STYLES: Final = {
    "Succeeded": "32", "Failed": "31", "Unknown": "33", "Pending": "2",
    "ok": "32", "broken": "1;31", "waiting": "33", "note": "33", "hint": "33",
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
    room = width - cells(text[:1])
    for end, character in enumerate(text[1:], start=1):
        room -= _cells(character)
        if room < 0:
            return text[:end]
    return text


def head(text: str, width: int) -> str:
    """The beginning of the text in at most `width` columns, with `…` after it if it is cut."""
    if cells(text) <= width:
        return text
    return f"{_head(text, width - 1)}…"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; 0 for one line."""
    if not width or cells(text) <= width:
        return [text]
    lines = []
    line = ""
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
        is_terminal = sys.stdout.isatty()
        is_dumb = os.environ.get("TERM") in ("dumb", "unknown")
        color = bool(os.environ.get("FORCE_COLOR")) or (is_terminal and not is_dumb)
        if os.environ.get("NO_COLOR"):
            color = False
        if not is_terminal:
            return cls(color=color)
        import shutil  # lazy: 3 ms, and most output of programs goes to no terminal

        width, height = shutil.get_terminal_size()
        return cls(width, 0 if is_dumb else height, color)

    def paint(self, text: str, style: str = "") -> str:
        shown = printable(text)
        if not self.color or not text or style not in _STYLES:
            return shown
        return f"\x1b[{_STYLES[style]}m{shown}\x1b[0m"

    def paragraph(
        self,
        lead: Cell,
        text: str,
        indent: str = "",
    ) -> Iterator[str]:
        """`lead` and the text, whose further lines begin in the column of the text."""
        start = len(indent) + cells(printable(lead.text))
        room = self.width and max(self.width - start, 8)
        first, *rest = wrapped(printable(text), room)
        yield f"{indent}{self.paint(*lead)}{first}".rstrip()
        for line in rest:
            yield f"{' ' * start}{line}"

    def table(
        self, rows: Sequence[Mapping[str, Cell]], optional: Sequence[str] = ()
    ) -> Iterator[str]:
        """Lines of at most the width; `rows` are cells by column. Columns that are `optional` leave first; then MESSAGE and
        MARKS shrink. Without rows there is no line.
        """
        if not rows:
            return
        heading = {name: Cell(name, "heading") for name in rows[0]}
        table = [heading, *rows]
        widths = {name: max(cells(printable(row[name].text)) for row in table) for name in heading}
        for name in optional:
            with_short_messages = widths | {"MESSAGE": min(widths.get("MESSAGE", 0), 40)}
            if self._excess(with_short_messages) > 0:
                del widths[name]
        self._shrink(widths)
        for row in table:
            line = GAP
            for name, width in widths.items():
                line += (
                    self._fitted(
                        row[name],
                        width,
                        keep_end=name == "POD",
                    )
                    + GAP
                )
            yield line.rstrip()

    def _excess(self, widths: dict[str, int]) -> int:
        if not self.width:
            return 0
        return sum(widths.values()) + len(GAP) * len(widths) - self.width

    def _shrink(self, widths: dict[str, int]) -> None:
        widest = sorted(
            widths,
            key=lambda name: -widths[name],
        )
        order = [
            ("MESSAGE", 24),
            ("MARKS", 24),
            ("MESSAGE", 8),
        ]
        for least in (12, 8, 4):
            order += [(name, least) for name in widest]
        for name, least in order:
            if name in widths:
                spare = max(widths[name] - least, 0)
                widths[name] -= max(min(self._excess(widths), spare), 0)

    def _fitted(
        self,
        cell: Cell,
        width: int,
        *,
        keep_end: bool,
    ) -> str:
        """The text in `width` columns. Names of pods differ in their end, so it is kept."""
        text = printable(cell.text)
        if cells(text) > width:
            text = f"…{text[1 - width :]}" if keep_end else head(text, width)
        padding = " " * (width - cells(text))
        return f"{self.paint(text, cell.style)}{padding}"


class _HelpFormatter(click.HelpFormatter):
    def write_heading(self, heading: str) -> None:
        super().write_heading(Terminal.of_stdout().paint(heading, "strong"))


class HelpContext(click.Context):
    """The context of a command whose --help has bold headings where colours are wanted."""

    formatter_class: type[click.HelpFormatter] = _HelpFormatter

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.color = Terminal.of_stdout().color
