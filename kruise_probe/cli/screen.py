"""A screen that fills the terminal: its keys, and two lists of lines that scroll."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

S = TypeVar("S")
T = TypeVar("T")

_KEYS: Final = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"k": "up",
    b"\x1b[B": "down", b"\x1bOB": "down", b"j": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down",
    b"q": "quit", b"c": "commands",
}  # fmt: skip
_KEY: Final = re.compile(rb"\x1b(?:\[[0-9;]*[@-~]|O.)|.", re.DOTALL)


class Scroll:
    """A position in two lists of lines: the first one is scrolled to its end before the second one moves.

    Attributes:
        below: lines that the last `windows` left out below.
    """

    def __init__(self) -> None:
        self.below = 0
        self._position = 0
        self._page = 1

    def press(self, key: str) -> None:
        """Arrows move by a line, the others by a page."""
        steps = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page}
        self._position += steps.get(key, 0)

    def windows(
        self, first: Sequence[S], second: Sequence[T], room: int, *, least: int
    ) -> tuple[Sequence[S], Sequence[T]]:
        """The visible lines of both, at most `room`; the second has at least `least` of its lines."""
        of_second = max(min(len(second), least), room - len(first))
        of_first = max(min(len(first), room - of_second), 0)
        page = min(of_first or room, of_second)
        self._page = max(page - 1, 1)
        below_first = len(first) - of_first
        below_second = max(len(second) - of_second, 0)
        most = below_first + below_second
        self._position = max(min(self._position, most), 0)
        self.below = most - self._position
        start = min(self._position, below_first)
        start_of_second = self._position - start
        return (
            first[start : start + of_first],
            second[start_of_second : start_of_second + of_second],
        )


@contextmanager
def keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` with the name of each key. What is typed is not shown, and Ctrl-C remains a signal.

    Without a terminal as standard input, and on Windows, there are no keys.
    """
    try:
        import termios
        import tty
    except ImportError:
        yield
        return
    if not sys.stdin or not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    loop = asyncio.get_running_loop()

    def read() -> None:
        typed = b""
        with suppress(OSError):
            typed = os.read(terminal, 1024)
        if not typed:  # the terminal is closed
            loop.remove_reader(terminal)
        for key in _KEY.findall(typed):
            if key in _KEYS:
                press(_KEYS[key])

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
