"""Reads YAML and JSON as nodes, with the types that kubectl gives to scalars. Merge keys (`<<`) are resolved.

JSON is composed as YAML, after `json` has checked it and found its end: kubectl reads a stream of documents.

Source: PyYAML's composer; Go's encoding/json; sigs.k8s.io/yaml goyaml.v2/resolve.go (YAML 1.1 booleans and octal numbers, no sexagesimal
numbers; a time stays text).
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

import yaml
from yaml.composer import Composer

from kruise_probe.lint.findings import Finding, Position, Rule
from kruise_probe.lint.nodes import (
    Document,
    Entry,
    Malformed,
    MappingNode,
    Node,
    Plain,
    ScalarNode,
    SequenceNode,
    child_path,
)

MAX_DEPTH: Final = 64
"""Maximum nesting, with aliases expanded; a pod template has about 12 levels."""
MAX_VALUES: Final = 500_000
"""Maximum values of a file, with aliases expanded."""
_TOO_DEEP: Final = f"the file is nested more than {MAX_DEPTH} levels deep; remove levels, or an alias of what contains it"
_TOO_MANY: Final = f"the file has more than {MAX_VALUES:,} values with aliases expanded; split it, or use fewer aliases"

_FORBIDDEN: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that YAML does not allow."""
_ONLY_JSON: Final = re.compile(rf"\\\\|\\u[dD][89a-fA-F]..|[\x85\u2028\u2029]|{_FORBIDDEN.pattern}")
"""What a string of JSON may contain, but not one of YAML."""
_NOT_BLANK: Final = re.compile(r"[^ \t\r\n]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_PLAIN: Final = "plain"
_QUOTED: Final = "quoted"
"""Instead of the tag of a scalar that has none."""
_TYPED: Final = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null"))
"""Tags of scalars that are not text. The schema of a field finds a value that is not of its tag."""
_NULLS: Final = ("", "~", "null", "Null", "NULL")
_TRUE: Final = ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"]
_FALSE: Final = ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"]
_WORDS: Final[dict[str, Plain]] = {
    **dict.fromkeys(_NULLS, None),
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
}
_NUMBER: Final = re.compile(r"[-+]?[0-9][-+0-9A-Za-z_.]*|[-+]?\.[0-9][-+0-9eE]*")
_OCTAL: Final = re.compile(r"[-+]?0[0-7]+")
_TOO_LARGE: Final = 2**64
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

_OPEN_TEMPLATE: Final = "this is a template, not YAML; render it first: helm template CHART >FILE"

_TEMPLATE: Final = re.compile(r"^[ \t]*(?:- +)?(?:[^\s#'\"]+: +)?(\{\{|\{%)", re.MULTILINE)
"""An expression of a template without quotes around it."""
_FIRST_OF_LINE: Final = re.compile(r"^[ \t]*(?!#)(\S)", re.MULTILINE)
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


class Reader:
    """Reads the documents of one text, with bounds on the depth and number of their values."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Only line feeds end a line, as in editors.
        self._starts = [
            0,
            *accumulate(len(line) + 1 for line in text.split("\n")),
        ]
        self._values = 0
        self._flaws: list[Finding] = []
        start = text.lstrip()
        self._is_json = start.startswith("{") and not start.startswith(("{{", "{%"))
        self._start = 0
        """Of the document that is composed: its offsets count from here."""

    def documents(self) -> Iterator[Document]:
        """The documents, as kubectl reads them: JSON if the first character is `{`, otherwise YAML.

        Raises:
            Malformed: the rest cannot be read, or is too large.
        """
        if self._is_json:
            yield from self._json_documents()
            return
        if match := _FORBIDDEN.search(self._text):
            message = f"the character U+{ord(match[0]):04X} is not allowed in YAML; remove it"
            raise self.malformed(
                match.start(),
                message,
                Rule.UNREADABLE,
            )
        yield from self._composed(self._text)

    def _json_documents(self) -> Iterator[Document]:
        decoder = json.JSONDecoder()
        end = 0
        while found := _NOT_BLANK.search(self._text, end):
            start = found.start()
            self._start = 0
            try:
                _, end = decoder.raw_decode(self._text, start)
            except json.JSONDecodeError as error:
                message = (
                    f"not valid JSON: {error.msg}; correct the JSON here; "
                    "a text that begins with '{' is read as JSON, not as YAML"
                )
                raise self.malformed(error.pos, message) from error
            except RecursionError as error:
                raise self.malformed(start, _TOO_DEEP) from error
            self._start = start
            part = _ONLY_JSON.sub(lambda match: "?" * len(match[0]), self._text[start:end])
            yield from self._composed(part)

    def _composed(self, text: str) -> Iterator[Document]:
        try:
            composer = _Composer(self, text)
            while composer.check_node():
                root = self._node(
                    composer.get_node(),
                    "",
                    0,
                )
                flaws = tuple(self._flaws)
                self._flaws.clear()
                yield Document(root, flaws)
        except yaml.YAMLError as error:
            raise self.malformed(*_syntax_problem(error, self._text)) from error

    def malformed(
        self,
        offset: int,
        message: str,
        rule: Rule = Rule.SYNTAX,
    ) -> Malformed:
        return Malformed(Finding(self._position(offset), "", rule, message))

    def _position(self, offset: int) -> Position:
        offset += self._start
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def check_depth(self, offset: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.malformed(offset, _TOO_DEEP)

    def _node(
        self,
        node: Any,
        path: str,
        depth: int,
    ) -> Node:
        """Convert a node of PyYAML, with aliases expanded; a cycle of aliases is too deep."""
        start = node.start_mark.index
        self.check_depth(start, depth)
        self._values += 1
        if self._values > MAX_VALUES:
            raise self.malformed(start, _TOO_MANY)
        position = self._position(start)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, position)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, position, path, depth)
        items = []
        for number, item in enumerate(node.value):
            items.append(
                self._node(
                    item,
                    f"{path}[{number}]",
                    depth + 1,
                )
            )
        return SequenceNode(position, tuple(items))

    def _mapping(
        self,
        node: Any,
        position: Position,
        path: str,
        depth: int,
    ) -> MappingNode:
        """A mapping. The first of two equal keys wins; the other one is a flaw."""
        entries: dict[str, Entry] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            at = self._position(key_node.start_mark.index)
            if not isinstance(key_node, yaml.ScalarNode):
                self._complex_key(key_node.start_mark.index, path)
                continue
            key = self._scalar(key_node, at)
            where = child_path(path, key.text)
            value = self._node(
                value_node,
                where,
                depth + 1,
            )
            if key_node.tag == _PLAIN and key.text == "<<":
                merged += value.items if isinstance(value, SequenceNode) else [value]
                continue
            first = entries.setdefault(key.text, Entry(key, value)).key
            if first is not key:
                self._duplicate_key(key, where, first.position.line)
        for source in merged:  # explicit and earlier entries win
            if not isinstance(source, MappingNode):
                message = "the value of << is not a mapping; use an alias of one"
                raise self.malformed(node.start_mark.index, message)
            for name, entry in source.entries.items():
                entries.setdefault(name, entry)
        return MappingNode(position, entries)

    def _duplicate_key(
        self,
        key: ScalarNode,
        path: str,
        line: int,
    ) -> None:
        remedy = "remove one of the two"
        if path in ("apiVersion", "kind"):
            remedy = "write '---' between two objects"
        message = f"the key {key.text!r} is already in line {line}; {remedy}"
        self._flaws.append(
            Finding(
                key.position,
                path,
                Rule.DUPLICATE_KEY,
                message,
            )
        )

    def _complex_key(self, start: int, path: str) -> None:
        """`name: {{ .Values.name }}` is a mapping whose key is a mapping."""
        rule = Rule.SYNTAX
        message = "the key of this entry is not a text; write a text before the colon"
        if self._text.startswith("{{", max(start - 1, 0)):
            start -= 1
            rule = Rule.TEMPLATE
            message = _OPEN_TEMPLATE
        self._flaws.append(
            Finding(
                self._position(start),
                path,
                rule,
                message,
            )
        )

    def _scalar(self, node: Any, position: Position) -> ScalarNode:
        """A string of JSON has its value from the text. As in Go, a surrogate without its partner becomes U+FFFD."""
        if self._is_json and node.tag == _QUOTED:
            start = self._start + node.start_mark.index
            end = self._start + node.end_mark.index
            text = _SURROGATE.sub("\ufffd", json.loads(self._text[start:end]))
            return ScalarNode(position, text, text)
        if node.tag == _PLAIN or node.tag in _TYPED:
            return ScalarNode(
                position,
                node.value,
                _plain(node.value),
            )
        return ScalarNode(position, node.value, node.value)


class _Composer(Composer, yaml.CSafeLoader):
    """PyYAML's composer on its parser in C. The composer in C recurses without a limit."""

    def __init__(self, reader: Reader, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._reader = reader
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        self._reader.check_depth(event.start_mark.index, self._depth)
        if event.anchor and not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)  # an anchor may be defined again
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.ScalarEvent) and event.tag == "!":
            node.tag = _QUOTED
        return node

    def resolve(
        self,
        kind: Any,
        value: Any,
        implicit: Any,
    ) -> str:
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] else _QUOTED


def _plain(text: str) -> Plain:
    """The value of a text without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    digits = text.replace("_", "")
    base = 8 if _OCTAL.fullmatch(digits) else 0
    try:
        value = int(digits, base)
    except ValueError:
        value = _TOO_LARGE
    if -(2**63) <= value < _TOO_LARGE:
        return value
    if _FLOAT.fullmatch(digits):
        return float(digits)
    return text


def _syntax_problem(error: yaml.YAMLError, text: str) -> tuple[int, str, Rule]:
    """The offset of a syntax error, a message with what to do, and the rule. If a template's expression precedes it, the file is a template."""
    problem = str(error)
    context = ""
    offset = 0
    if isinstance(error, yaml.MarkedYAMLError):
        problem = error.problem or problem
        context = error.context or ""
        offset = _offset_of(error, text)
    end = text.find("\n", offset)
    if end < 0:
        end = len(text)
    template = _TEMPLATE.search(text, 0, end)
    if template is not None:
        return template.start(1), _OPEN_TEMPLATE, Rule.TEMPLATE
    start = text.rfind("\n", 0, offset) + 1
    indent = text[start : offset + 1]
    has_tab = indent.isspace() and "\t" in indent
    if has_tab or _TAB in problem:
        return offset, "a tab indents this line; indent with spaces", Rule.SYNTAX
    if problem.startswith("mapping values are not allowed"):
        offset, message = _unexpected_colon(text, start, offset)
        return offset, message, Rule.SYNTAX
    if context.startswith("while parsing"):
        problem = f"{problem} {context}"
    remedy = _remedy(problem)
    return offset, f"not valid YAML: {problem}; {remedy}", Rule.SYNTAX


def _offset_of(error: yaml.MarkedYAMLError, text: str) -> int:
    """Where the error is: of a scalar that does not end, its begin."""
    mark = error.problem_mark
    is_tab = _TAB in (error.problem or "")
    if (error.context or "").startswith("while scanning a") and not is_tab:
        mark = error.context_mark or mark
    if mark is None:
        return 0
    return min(mark.index, len(text))


def _remedy(problem: str) -> str:
    for part, remedy in _REMEDIES:
        if part in problem:
            return remedy
    return _CORRECT_IT


def _unexpected_colon(text: str, start: int, offset: int) -> tuple[int, str]:
    """Its line has another one before it, or a previous line lacks one."""
    if re.search(r":\s", text[start:offset]):
        return offset, "a second ': ' in one line; quote the text that contains it"
    lines = list(_FIRST_OF_LINE.finditer(text, 0, start))
    if lines:
        message = "this line has no ': ' between a key and a value; add the colon and a space"
        return lines[-1].start(1), message
    return offset, f"not valid YAML: unexpected ':'; {_CORRECT_IT}"
