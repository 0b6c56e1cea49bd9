"""Messages for YAML errors: what the parser reports, at the position of the mistake, and what to do."""

import re
from typing import Final

import yaml

from kruise_probe.lint.findings import Position, Rule
from kruise_probe.lint.nodes import OPEN_TEMPLATE, Flaw, Lines

_TEMPLATE: Final = re.compile(r"^[ \t]*(?:- +)?(?:[^\s#'\"]+: +)?(\{\{|\{%)", re.MULTILINE)
"""An expression of a template without quotes around it."""
_UNTIL_NEXT_COLON: Final = "mapping values are not allowed"
_TAB: Final = "tab character"

_REMEDIES: Final = (
    ("did not find expected key", "check the indentation and the quotes of this line"),
    ("did not find expected '-'", "begin each item of the list with '- ' in the same column"),
    ("did not find expected ',' or", "close the bracket or brace, or separate the items with ','"),
    ("could not find expected ':'", "write ': ' after the key"),
    ("cannot start any token", "quote a text that begins with this character"),
    ("unexpected end of stream", "close the quote"),
    ("unknown escape character", "use single quotes, or write the backslash twice"),
    ("sequence entries are not allowed", "begin the list in a new line, or quote the text"),
)
_CORRECT_IT: Final = "correct the YAML here"


def syntax_flaw(error: yaml.YAMLError, text: str, lines: Lines) -> Flaw:
    """Describe a syntax error. If a template's expression precedes it, the file is a template."""
    problem = str(getattr(error, "problem", "") or error)
    context = str(getattr(error, "context", "") or "")
    mark = getattr(error, "problem_mark", None)
    if context.startswith("while scanning a") and _TAB not in problem:
        mark = getattr(error, "context_mark", None) or mark
    position = lines.at(min(mark.index, len(text))) if mark else Position(1, 1)
    template = _TEMPLATE.search(text)
    if template and lines.at(template.start(1)).line <= position.line:
        return Flaw(lines.at(template.start(1)), Rule.TEMPLATE, OPEN_TEMPLATE)
    written = text.split("\n")
    if _indented_with_tab(written, position) or _TAB in problem:
        return Flaw(position, Rule.SYNTAX, "a tab indents this line; indent with spaces")
    if problem.startswith(_UNTIL_NEXT_COLON):
        return _second_colon(written, position)
    remedy = next((remedy for start, remedy in _REMEDIES if start in problem), _CORRECT_IT)
    said = f"{problem} {context}".strip() if context.startswith("while parsing") else problem
    return Flaw(position, Rule.SYNTAX, f"not valid YAML: {said}; {remedy}")


def _indented_with_tab(written: list[str], position: Position) -> bool:
    before = written[position.line - 1][: position.column]
    return before.isspace() and "\t" in before


def _second_colon(written: list[str], position: Position) -> Flaw:
    """Describe an unexpected colon: its line has another one before it, or the previous line lacks one."""
    line = written[position.line - 1]
    if re.search(r":\s", line[: position.column - 1]):
        message = "a second ': ' in one line; quote the text that contains it"
        return Flaw(position, Rule.SYNTAX, message)
    for number in range(position.line - 1, 0, -1):
        before = written[number - 1]
        if before.strip() and not before.lstrip().startswith("#"):
            column = len(before) - len(before.lstrip()) + 1
            message = "this line has no ': ' between a key and a value; add the colon and a space"
            return Flaw(Position(number, column), Rule.SYNTAX, message)
    return Flaw(position, Rule.SYNTAX, f"not valid YAML: unexpected ':'; {_CORRECT_IT}")
