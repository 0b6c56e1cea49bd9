"""YAML as nodes with positions: composed from the parser's events, with bounds on depth and size.

A mapping's merge keys (`<<`) are resolved. An alias is the same node as its anchor, so a file of aliases uses little
memory. Its expanded size counts, so that a walk over all values is bounded too.

Source: PyYAML composer.py; sigs.k8s.io/yaml for which duplicate keys are an error.
Differs: iterative, bounded, and it keeps positions of keys.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

import yaml

from kruise_probe.lint.findings import Position, Rule

MAX_DEPTH: Final = 64
"""Maximum nesting, with aliases expanded; a pod template has about 12 levels."""
MAX_VALUES: Final = 500_000
"""Maximum values of a file, with aliases expanded."""
MAX_FLAWS: Final = 20
"""Maximum flaws that are reported for one document."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE_KEY: Final = "<<"

TOO_DEEP: Final = f"the file is nested more than {MAX_DEPTH} levels deep; remove levels"
TOO_MANY_VALUES: Final = f"the file has more than {MAX_VALUES:,} values with aliases expanded; split it, or use fewer aliases"


class Malformed(Exception):
    """The YAML is not supported: it is too deep or too large, or has a cyclic or unknown alias."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


class ScalarNode(NamedTuple):
    """A scalar as it is written. `plain` means without quotes, so that it may be a number, a boolean or null."""

    position: Position
    text: str
    plain: bool
    tag: str
    size: int = 1
    depth: int = 0


class SequenceNode(NamedTuple):
    position: Position
    items: "tuple[YamlNode, ...]"
    size: int
    depth: int


class MappingNode(NamedTuple):
    """A mapping. Keys that are not scalars are left out."""

    position: Position
    entries: "dict[str, Entry]"
    size: int
    depth: int

    def get(self, key: str) -> "YamlNode | None":
        entry = self.entries.get(key)
        return entry.value if entry else None


YamlNode = ScalarNode | SequenceNode | MappingNode


class Entry(NamedTuple):
    key: ScalarNode
    value: YamlNode


class Flaw(NamedTuple):
    """The reason why a file, or part of a document, cannot be checked.

    Attributes:
        mapping: the position of the mapping with the key; None if it is not about a key.
        key: the key of the entry.
    """

    position: Position
    rule: Rule
    message: str
    mapping: Position | None = None
    key: str = ""


class Document(NamedTuple):
    root: YamlNode
    flaws: tuple[Flaw, ...]


class Lines:
    """Converts character offsets to positions. Only line feeds end a line, as in editors."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *accumulate(len(each) + 1 for each in text.split("\n"))]

    def at(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def offset(self, position: Position) -> int:
        return self._starts[position.line - 1] + position.column - 1


def documents(text: str, lines: Lines) -> Iterator[Document]:
    """Compose the documents of `text`.

    Raises:
        yaml.YAMLError: a syntax error; its marks have the offset.
        Malformed: the document is not supported.
    """
    composer = _Composer(text, lines)
    for event in yaml.parse(text, Loader=_LOADER):
        document = composer.feed(event)
        if document is not None:
            yield document


class _Open:
    """A sequence or mapping whose end has not been read."""

    def __init__(self, position: Position, anchor: str | None, *, is_mapping: bool) -> None:
        self.position = position
        self.anchor = anchor
        self.is_mapping = is_mapping
        self.children: list[YamlNode] = []


_TEMPLATE_KEY: Final = "{{"
OPEN_TEMPLATE: Final = "this is a template, not YAML; render it first: helm template CHART >FILE"
_COMPLEX_KEY: Final = "the key of this entry is not a text; write a text before the colon"


class _Composer:
    """Builds nodes from events. Keeps a stack of its own instead of recursing."""

    def __init__(self, text: str, lines: Lines) -> None:
        self._text = text
        self._lines = lines
        self._values = 0
        self._start()

    def _start(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, YamlNode | None] = {}
        self._flaws: list[Flaw] = []

    def feed(self, event: Any) -> Document | None:
        """Return the document that `event` completes."""
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._begin(event)
            return None
        node: YamlNode
        if isinstance(event, yaml.ScalarEvent):
            node = ScalarNode(self._at(event), event.value, not event.style, event.tag or "")
            anchor = event.anchor
        elif isinstance(event, yaml.AliasEvent):
            node, anchor = self._aliased(event), None
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            closed = self._open.pop()
            node, anchor = self._closed(closed), closed.anchor
        else:
            return None
        if anchor:
            self._anchors[anchor] = node
        return self._add(node, self._at(event))

    def _at(self, event: Any) -> Position:
        return self._lines.at(event.start_mark.index)

    def _begin(self, event: Any) -> None:
        position = self._at(event)
        if len(self._open) >= MAX_DEPTH:
            raise Malformed(position, TOO_DEEP)
        if event.anchor:
            self._anchors[event.anchor] = None
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        self._open.append(_Open(position, event.anchor, is_mapping=is_mapping))

    def _aliased(self, event: Any) -> YamlNode:
        if event.anchor not in self._anchors:
            message = f"the alias *{event.anchor} has no anchor &{event.anchor}; define it above"
            raise Malformed(self._at(event), message)
        node = self._anchors[event.anchor]
        if node is None:
            message = f"the anchor &{event.anchor} contains itself; remove the alias"
            raise Malformed(self._at(event), message)
        self._values += node.size - 1
        return node

    def _add(self, node: YamlNode, position: Position) -> Document | None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise Malformed(position, TOO_MANY_VALUES)
        if len(self._open) + node.depth > MAX_DEPTH:
            raise Malformed(position, TOO_DEEP)
        if self._open:
            self._open[-1].children.append(node)
            return None
        document = Document(node, tuple(self._flaws))
        self._start()
        return document

    def _closed(self, closed: _Open) -> YamlNode:
        children = closed.children
        size = 1 + sum(each.size for each in children)
        depth = 1 + max((each.depth for each in children), default=0)
        if not closed.is_mapping:
            return SequenceNode(closed.position, tuple(children), size, depth)
        entries: dict[str, Entry] = {}
        merged: list[YamlNode] = []
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                if len(self._flaws) < MAX_FLAWS:
                    self._flaws.append(self._complex_key(key, closed.position))
            elif key.plain and key.text == _MERGE_KEY:
                merged.append(value)
            elif key.text in entries:
                if len(self._flaws) == MAX_FLAWS:
                    continue
                first = entries[key.text].key.position.line
                is_object = not self._open and key.text in ("apiVersion", "kind")
                remedy = "write '---' between two objects" if is_object else "remove one of the two"
                message = f"the key {key.text!r} is already in line {first}; {remedy}"
                self._flaws.append(
                    Flaw(key.position, Rule.DUPLICATE_KEY, message, closed.position, key.text)
                )
            else:
                entries[key.text] = Entry(key, value)
        for each in merged:
            self._merge(each, entries)
        return MappingNode(closed.position, entries, size, depth)

    def _complex_key(self, key: YamlNode, mapping: Position) -> Flaw:
        """`name: {{ .Values.name }}` is a mapping whose key is a mapping."""
        start = self._lines.offset(key.position) - 1
        if self._text.startswith(_TEMPLATE_KEY, max(start, 0)):
            return Flaw(self._lines.at(start), Rule.TEMPLATE, OPEN_TEMPLATE, mapping)
        return Flaw(key.position, Rule.SYNTAX, _COMPLEX_KEY, mapping)

    def _merge(self, value: YamlNode, entries: dict[str, Entry]) -> None:
        """Add the entries of a merge key's value. Explicit and earlier entries win."""
        for each in value.items if isinstance(value, SequenceNode) else (value,):
            if not isinstance(each, MappingNode):
                raise Malformed(
                    each.position, "the value of << is not a mapping; use an alias of one"
                )
            for key, entry in each.entries.items():
                entries.setdefault(key, entry)
