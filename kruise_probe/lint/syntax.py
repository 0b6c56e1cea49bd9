"""Messages for YAML errors: what the parser reports, at the position of the mistake, and what to do."""

import re
from typing import Final, NamedTuple

import yaml

from kruise_probe.lint.findings import Rule

OPEN_TEMPLATE: Final = "this is a template, not YAML; render it first: helm template CHART >FILE"

_TEMPLATE: Final = re.compile(r"^[ \t]*(?:- +)?(?:[^\s#'\"]+: +)?(\{\{|\{%)", re.MULTILINE)
"""An expression of a template without quotes around it."""
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
    ("found undefined alias", "define the anchor of this name above, in the same document"),
)
_CORRECT_IT: Final = "correct the YAML here"


class SyntaxProblem(NamedTuple):
    offset: int
    message: str
    rule: Rule = Rule.SYNTAX


def syntax_problem(error: yaml.YAMLError, text: str) -> SyntaxProblem:
    """Describe a syntax error. If a template's expression precedes it, the file is a template."""
    problem = str(getattr(error, "problem", "") or error)
    context = str(getattr(error, "context", "") or "")
    mark = getattr(error, "problem_mark", None)
    if context.startswith("while scanning a") and _TAB not in problem:
        mark = getattr(error, "context_mark", None) or mark
    offset = min(mark.index, len(text)) if mark else 0
    start = text.rfind("\n", 0, offset) + 1
    end = (text.find("\n", offset) + 1 or len(text) + 1) - 1
    template = _TEMPLATE.search(text)
    if template and template.start(1) <= end:
        return SyntaxProblem(template.start(1), OPEN_TEMPLATE, Rule.TEMPLATE)
    before = text[start : offset + 1]
    if (before.isspace() and "\t" in before) or _TAB in problem:
        return SyntaxProblem(offset, "a tab indents this line; indent with spaces")
    if problem.startswith("mapping values are not allowed"):
        return _unexpected_colon(text, start, offset)
    remedy = next((remedy for start, remedy in _REMEDIES if start in problem), _CORRECT_IT)
    said = f"{problem} {context}".strip() if context.startswith("while parsing") else problem
    return SyntaxProblem(offset, f"not valid YAML: {said}; {remedy}")


def _unexpected_colon(text: str, start: int, offset: int) -> SyntaxProblem:
    """Its line has another one before it, or a previous line lacks one."""
    if re.search(r":\s", text[start:offset]):
        message = "a second ': ' in one line; quote the text that contains it"
        return SyntaxProblem(offset, message)
    lines = list(re.finditer(r"^[ \t]*(?!#)(\S)", text[:start], re.MULTILINE))
    if lines:
        message = "this line has no ': ' between a key and a value; add the colon and a space"
        return SyntaxProblem(lines[-1].start(1), message)
    return SyntaxProblem(offset, f"not valid YAML: unexpected ':'; {_CORRECT_IT}")
