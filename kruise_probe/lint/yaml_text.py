"""YAML and JSON as nodes, with the types that kubectl gives to scalars. Merge keys (`<<`) are resolved.

JSON is composed as YAML, after `json` has checked it and found its end: kubectl reads a stream of documents.

Source: PyYAML's composer; Go's encoding/json; sigs.k8s.io/yaml goyaml.v2/resolve.go (YAML 1.1 booleans and octal numbers, no sexagesimal
numbers; a time stays text).
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml
from yaml.composer import Composer

from kruise_probe.lint.findings import Position, Rule
from kruise_probe.lint.nodes import (
    TOO_DEEP,
    Document,
    MappingNode,
    Node,
    NodeBuilder,
    Plain,
    ScalarNode,
    SequenceNode,
    child_path,
)
from kruise_probe.lint.syntax import OPEN_TEMPLATE, syntax_error

_FORBIDDEN: Final = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""Characters that YAML does not allow."""
_COMPLEX_KEY: Final = "the key of this entry is not a text; write a text before the colon"
_MERGED_SCALAR: Final = "the value of << is not a mapping; use an alias of one"

_PLAIN, _QUOTED = "plain", "quoted"
"""Instead of the tag of a scalar that has none."""
_TYPED: Final = tuple(f"tag:yaml.org,2002:{each}" for each in ("int", "float", "bool", "null"))
"""Tags of scalars that are not text. The schema of a field finds a value that is not of its tag."""
_WORDS: Final[dict[str, Plain]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}  # fmt: skip
_NUMBER: Final = re.compile(r"[-+]?[0-9][-+0-9A-Za-z_.]*|[-+]?\.[0-9][-+0-9eE]*")
_OCTAL: Final = re.compile(r"[-+]?0[0-7]+")
_TOO_LARGE: Final = 2**64
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def yaml_documents(builder: NodeBuilder) -> Iterator[Document]:
    """The documents of a text.

    Raises:
        Malformed: the rest is not valid YAML, or too large.
    """
    if match := _FORBIDDEN.search(builder.text):
        message = f"the character U+{ord(match[0]):04X} is not allowed in YAML; remove it"
        raise builder.malformed(match.start(), message, Rule.UNREADABLE)
    try:
        composer = _Composer(builder, builder.text)
        while composer.check_node():
            yield builder.document(_node(builder, composer.get_node(), "", 0))
    except yaml.YAMLError as error:
        raise syntax_error(error, builder) from error


_DECODER: Final = json.JSONDecoder()
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_ONLY_JSON: Final = re.compile(rf"\\u[dD][89a-fA-F]..|[\x85\u2028\u2029]|{_FORBIDDEN.pattern}")
"""What a string of JSON may contain, but not one of YAML."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CORRECT_JSON: Final = (
    "correct the JSON here; a text that begins with '{' is read as JSON, not as YAML"
)


def json_documents(builder: NodeBuilder) -> Iterator[Document]:
    """The documents of a text that begins with `{`.

    Raises:
        Malformed: the rest is not valid JSON, or too large.
    """
    text, end = builder.text, 0
    while (match := _BLANK.match(text, end)) and match.end() < len(text):
        builder.start = 0
        try:
            _, end = _DECODER.raw_decode(text, match.end())
        except json.JSONDecodeError as error:
            message = f"not valid JSON: {error.msg}; {_CORRECT_JSON}"
            raise builder.malformed(error.pos, message) from error
        except RecursionError as error:
            raise builder.malformed(match.end(), TOO_DEEP) from error
        builder.start = match.end()
        part = _ONLY_JSON.sub(lambda found: "?" * len(found[0]), text[builder.start : end])
        try:
            node = _Composer(builder, part).get_single_node()
            yield builder.document(_node(builder, node, "", 0))
        except yaml.YAMLError as error:
            raise syntax_error(error, builder) from error


class _Composer(Composer, yaml.CSafeLoader):
    """PyYAML's composer on its parser in C. The composer in C recurses without a limit."""

    def __init__(self, builder: NodeBuilder, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._builder = builder
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        self._builder.check_depth(event.start_mark.index, self._depth)
        if event.anchor and not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)  # an anchor may be defined again
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.ScalarEvent) and event.tag == "!":
            node.tag = _QUOTED
        return node

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] else _QUOTED


def _node(builder: NodeBuilder, node: Any, path: str, depth: int) -> Node:
    """Convert a node of PyYAML, with aliases expanded; a cycle of aliases is too deep."""
    start = node.start_mark.index
    position = builder.count(start, depth)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(builder, node, position)
    if isinstance(node, yaml.SequenceNode):
        items = (
            _node(builder, each, f"{path}[{index}]", depth + 1)
            for index, each in enumerate(node.value)
        )
        return SequenceNode(position, tuple(items))
    pairs: list[tuple[ScalarNode, Node]] = []
    merged: list[Node] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _complex_key(builder, key.start_mark.index, path)
            continue
        name = _scalar(builder, key, builder.position(key.start_mark.index))
        made = _node(builder, value, child_path(path, name.text), depth + 1)
        if key.tag == _PLAIN and key.value == "<<":
            merged.append(made)
        else:
            pairs.append((name, made))
    mapping = builder.mapping(position, pairs, path)
    for each in merged:
        for source in each.items if isinstance(each, SequenceNode) else (each,):
            if not isinstance(source, MappingNode):
                raise builder.malformed(start, _MERGED_SCALAR)
            for key, entry in source.entries.items():  # explicit and earlier entries win
                mapping.entries.setdefault(key, entry)
    return mapping


def _scalar(builder: NodeBuilder, node: Any, position: Position) -> ScalarNode:
    """A string of JSON has its value from the text. As in Go, a surrogate without its partner becomes U+FFFD."""
    start, end = (builder.start + each.index for each in (node.start_mark, node.end_mark))
    if builder.is_json and node.tag == _QUOTED:
        text = _SURROGATE.sub("\ufffd", json.loads(builder.text[start:end]))
        return ScalarNode(position, text, text)
    typed = node.tag == _PLAIN or node.tag in _TYPED
    return ScalarNode(position, node.value, _plain(node.value) if typed else node.value)


def _complex_key(builder: NodeBuilder, start: int, path: str) -> None:
    """`name: {{ .Values.name }}` is a mapping whose key is a mapping."""
    if builder.text.startswith("{{", max(start - 1, 0)):
        builder.add_flaw(builder.position(start - 1), path, Rule.TEMPLATE, OPEN_TEMPLATE)
    else:
        builder.add_flaw(builder.position(start), path, Rule.SYNTAX, _COMPLEX_KEY)


def _plain(text: str) -> Plain:
    """The value of a text without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    digits = text.replace("_", "")
    try:
        value = int(digits, 8 if _OCTAL.fullmatch(digits) else 0)
    except ValueError:
        value = _TOO_LARGE
    if -(2**63) <= value < _TOO_LARGE:
        return value
    return float(digits) if _FLOAT.fullmatch(digits) else text
