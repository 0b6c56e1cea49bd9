"""Values that patterns find: in the message of a result (`fromMessage`), and in lines of an output (`extract`, `successWhen`).
Pure functions.

A tenant chooses the pattern and a pod chooses the message, so both are bounded: RE2 matches in linear time, its memory
has a limit, and only the first bytes of a message are searched. This is the only module that uses RE2.

Source: github.com/google/re2 (re2.h) for options and syntax.
"""

from collections.abc import Generator
from typing import Final, NamedTuple, TypeVar

import re2

from kruise_probe.api.caches import OBJECT_BYTES, STRING_BYTES, WIDEST_CHARACTER, Cache
from kruise_probe.api.labels import annotation_value_error, label_value_error
from kruise_probe.api.pods import Mark
from kruise_probe.api.reserved import MAX_PATTERN, SYNTAX

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A computation in bounded steps, as `workqueue.slices` runs them."""

MAX_INSTRUCTIONS: Final = 2000
"""Maximum size of a pattern, and of all patterns that are matched for one pod. A short pattern has 20 instructions,
`.{1,63}` has 570. The slowest match takes some 25 µs per instruction."""

MAX_MARKER_INSTRUCTIONS: Final = 20_000
"""Maximum size of all patterns of one marker. Compiling them takes some 10 ms."""

UNICODE_CLASS_INSTRUCTIONS: Final = 250
"""What a class such as `\\pL` counts in addition: RE2 takes 0.1 ms to parse it, also if the program is small."""

MAX_VALUE_BYTES: Final = 1024
"""Maximum size of an annotation's value from a message."""

SEARCHED_BYTES: Final = MAX_VALUE_BYTES + 4
"""How much of a message is searched: more than our daemon publishes, and enough to find that a value is too long."""

TOO_LARGE: Final = "is too large; use fewer patterns, or shorter repetitions and fewer classes"

LARGEST_BYTES: Final = 256 << 10
"""Memory in which RE2 may compile a pattern: enough for `MAX_INSTRUCTIONS`."""
MATCHING_BYTES: Final = 8 << 10
INSTRUCTION_BYTES: Final = 192
"""Memory that RE2 may use for a compiled pattern, and in addition for each of its instructions. Half of it is for the states
that matching adds. With less, RE2 matches without them."""
PARSED_BYTES: Final = 48
"""Memory of one character of a pattern as RE2 parses it."""


STEP_BYTES: Final = 1024
"""How many bytes a pattern of `MAX_INSTRUCTIONS` is matched with in one step of a search, which takes some 50 ms at worst."""
MAX_STEPS: Final = 16
_CHEAP_STEPS: Final = 16
"""This part of a step takes milliseconds at worst."""


def _compiled(pattern: str, max_bytes: int, *, in_lines: bool = False) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.never_nl = in_lines
    options.max_mem = max_bytes
    compiled = re2.compile(pattern, options)
    re2.purge()  # The cache of the module counts patterns, not bytes.
    return compiled


def _max_bytes(instructions: int) -> int:
    return min(MATCHING_BYTES + INSTRUCTION_BYTES * instructions, LARGEST_BYTES)


def _pattern_bytes(pattern: str, compiled: re2._Regexp) -> int:
    states = _max_bytes(compiled.programsize) // 2
    programs = 64 * compiled.programsize
    return states + programs + PARSED_BYTES * len(pattern) + 16 * OBJECT_BYTES


_program_sizes: Cache[str, int] = Cache(
    lambda pattern, _: STRING_BYTES + WIDEST_CHARACTER * len(pattern),
    lambda pattern: _compiled(pattern, LARGEST_BYTES).programsize,
)
_patterns: Cache[str, re2._Regexp] = Cache(
    _pattern_bytes, lambda pattern: _compiled(pattern, _max_bytes(_program_sizes[pattern]))
)
_line_patterns: Cache[str, re2._Regexp] = Cache(
    _pattern_bytes,
    lambda pattern: _compiled(
        f"(?m){pattern}",
        _max_bytes(_program_sizes[pattern]),
        in_lines=True,
    ),
)


class FromMessage(NamedTuple):
    """A value to extract from the message of a result.

    Attributes:
        pattern: the value is group 1 of its first match, or the match if it has no group. Empty for the first line that is not blank.
        static: the value if the message has no valid one; None removes the key.
        instructions: the size of the compiled pattern.
        over_limit: whether the patterns of the pod exceed `MAX_INSTRUCTIONS`, so that this one is not matched.
    """

    pattern: str
    static: str | None
    instructions: int
    over_limit: bool = False


MarkValue = str | FromMessage | None
"""A static value, a value from the message, or None for a key that must be absent."""


class PatternError(ValueError):
    """Why a pattern cannot be used."""


class PatternBudget:
    """What is left of `MAX_MARKER_INSTRUCTIONS` for the next pattern of one marker."""

    def __init__(self) -> None:
        self._left = MAX_MARKER_INSTRUCTIONS

    def take(self, pattern: str) -> int:
        """Take the instructions of `pattern`, and return their number.

        An invalid pattern takes as much as the largest, because it takes time as well.

        Raises:
            PatternError: RE2 rejects the pattern, or the patterns so far are too large.
        """
        if not pattern:
            return 0
        left = self._left
        self._left = max(0, left - MAX_INSTRUCTIONS)
        if len(pattern) > MAX_PATTERN:
            raise PatternError(f"may not be more than {MAX_PATTERN} characters")
        classes = pattern.count(r"\p") + pattern.count(r"\P")
        size = classes * UNICODE_CLASS_INSTRUCTIONS
        if size > min(left, MAX_INSTRUCTIONS) or not left:
            raise PatternError(TOO_LARGE)
        try:
            size += _program_sizes[pattern]
        except re2.error as error:
            why = error.args[0]
            text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
            if "too large" in text:
                raise PatternError(TOO_LARGE) from error
            raise PatternError(f"{SYNTAX}: {text}") from error
        except UnicodeEncodeError as error:
            raise PatternError(SYNTAX) from error
        if size > min(left, MAX_INSTRUCTIONS):
            raise PatternError(TOO_LARGE)
        self._left = left - size
        return size


class PatternTooCostly(Exception):
    """The text is too large for the pattern."""

    def __init__(self) -> None:
        super().__init__("pattern too costly")


def match_in_lines(text: bytes, pattern: str) -> Steps[re2._Match | None]:
    """The first match of `pattern` within a line.

    Yields before each step that may take milliseconds.

    Raises:
        PatternTooCostly: the text needs more than `MAX_STEPS`, or a line more than one.
    """
    compiled = _line_patterns[pattern]
    instructions = max(compiled.programsize, 1)
    step_bytes = MAX_INSTRUCTIONS * STEP_BYTES // instructions
    if len(text) > MAX_STEPS * step_bytes:
        raise PatternTooCostly
    begin = 0
    while begin < len(text):
        end = begin + step_bytes
        if end < len(text):
            end = text.rfind(b"\n", begin, end) + 1
            if end <= begin:
                raise PatternTooCostly
        part = text[begin:end]
        if len(part) > step_bytes // _CHEAP_STEPS:
            yield
        match = compiled.search(part.replace(b"\r\n", b"\n"))
        if match is not None:
            return match
        begin = end
    return None


def matched_value(match: re2._Match) -> bytes | None:
    """Group 1, or the whole match if the pattern has no group. None: the group is in a branch that did not match."""
    value: bytes | None = match[min(match.re.groups, 1)]
    return value


def extract(message: str, pattern: str) -> str | None:
    """Extract the value that `pattern` finds in `message`, or None.

    Without a pattern it is the first line that is not blank, trimmed.
    """
    text = message.encode(errors="replace")[:SEARCHED_BYTES]
    if not pattern:
        lines = text.decode(errors="ignore").strip()
        return lines.partition("\n")[0].rstrip() or None
    match = _patterns[pattern].search(text.decode(errors="ignore").encode())
    if match is None:
        return None
    value = matched_value(match)
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:  # `\C` matches a part of a character
        return None


def value_of(mark: Mark, wanted: FromMessage, message: str) -> str | None:
    """Extract the value of a label or annotation; None if the message has no valid one."""
    if wanted.over_limit:
        return None
    value = extract(message, wanted.pattern)
    if value is None or len(value.encode()) > MAX_VALUE_BYTES:
        return None
    if mark.field == "labels":
        error = label_value_error(value)
    else:
        error = annotation_value_error(mark.name, value)
    if error:
        return None
    return value
