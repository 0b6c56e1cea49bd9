"""The content of a file as nodes with positions, whether it is YAML or JSON, and how to find a field in it."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

from kruise_probe.lint.findings import Finding, Position, Rule

MAX_DEPTH: Final = 64
"""Maximum nesting, with aliases expanded; a pod template has about 12 levels."""
MAX_VALUES: Final = 500_000
"""Maximum values of a file, with aliases expanded."""

TOO_DEEP: Final = f"the file is nested more than {MAX_DEPTH} levels deep; remove levels, or an alias of what contains it"
_TOO_MANY: Final = f"the file has more than {MAX_VALUES:,} values with aliases expanded; split it, or use fewer aliases"
TEMPLATES: Final = ("{{", "{%")
_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")

Plain = str | int | float | bool | None


class ScalarNode(NamedTuple):
    """A scalar: as it is written, and its value with the type that kubectl gives it."""

    position: Position
    text: str
    value: Plain


class SequenceNode(NamedTuple):
    position: Position
    items: "tuple[Node, ...]"


class MappingNode(NamedTuple):
    """A mapping. Keys that are not scalars are left out."""

    position: Position
    entries: "dict[str, Entry]"

    def get(self, key: str) -> "Node | None":
        entry = self.entries.get(key)
        return entry.value if entry else None


Node = ScalarNode | SequenceNode | MappingNode


class Entry(NamedTuple):
    key: ScalarNode
    value: Node


class Document(NamedTuple):
    """One document of a file; `flaws` are findings about its keys."""

    root: Node
    flaws: tuple[Finding, ...]


class Malformed(Exception):
    """The rest of a file cannot be read; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class NodeBuilder:
    """Builds the nodes of one file, with bounds on their depth and number. Offsets count from `start`."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        # Only line feeds end a line, as in editors.
        self._starts = [0, *accumulate(len(each) + 1 for each in text.split("\n"))]
        self._values = 0
        self._flaws: list[Finding] = []
        self.text = text
        self.is_json = text.lstrip().startswith("{") and not text.lstrip().startswith(TEMPLATES)
        self.start = 0

    def position(self, offset: int) -> Position:
        offset += self.start
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def malformed(self, offset: int, message: str, rule: Rule = Rule.SYNTAX) -> Malformed:
        return Malformed(Finding(self._file, self.position(offset), "", rule, message))

    def check_depth(self, offset: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.malformed(offset, TOO_DEEP)

    def count(self, offset: int, depth: int) -> Position:
        """Count a value; return its position.

        Raises:
            Malformed: the file has too many values, or they are nested too deeply.
        """
        self.check_depth(offset, depth)
        self._values += 1
        if self._values > MAX_VALUES:
            raise self.malformed(offset, _TOO_MANY)
        return self.position(offset)

    def add_flaw(self, position: Position, path: str, rule: Rule, message: str) -> None:
        self._flaws.append(Finding(self._file, position, path, rule, message))

    def mapping(
        self, position: Position, pairs: Iterable[tuple[ScalarNode, Node]], path: str
    ) -> MappingNode:
        """A mapping of `pairs`. The first of two equal keys wins; the other one is a flaw."""
        entries: dict[str, Entry] = {}
        for key, value in pairs:
            first = entries.setdefault(key.text, Entry(key, value))
            if first.key is not key:
                is_object = not path and key.text in ("apiVersion", "kind")
                remedy = "write '---' between two objects" if is_object else "remove one of the two"
                message = (
                    f"the key {key.text!r} is already in line {first.key.position.line}; {remedy}"
                )
                where = child_path(path, key.text)
                self.add_flaw(key.position, where, Rule.DUPLICATE_KEY, message)
        return MappingNode(position, entries)

    def document(self, root: Node) -> Document:
        document = Document(root, tuple(self._flaws))
        self._flaws = []
        return document


def child_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def value_of(node: Node | None) -> Any:
    """The node as plain Python values."""
    if isinstance(node, MappingNode):
        return {key: value_of(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [value_of(each) for each in node.items]
    return node.value if node else None


def text_of(node: Node | None) -> str:
    """The text of a scalar that is a string; empty for anything else."""
    value = node.value if isinstance(node, ScalarNode) else None
    return value if isinstance(value, str) else ""


def below(root: Node | None, *names: str) -> Node | None:
    """The node at nested keys."""
    node = root
    for name in names:
        node = node.get(name) if isinstance(node, MappingNode) else None
    return node


def items_of(node: Node | None) -> tuple[Node, ...]:
    """The items of a list; nothing for any other node."""
    return node.items if isinstance(node, SequenceNode) else ()


def locate(root: Node, path: str, *, key: str | None = None, item: object = None) -> Position:
    """The position of the field at `path`, or of the nearest parent that exists.

    Args:
        root: the object.
        path: such as `spec.probes[0].probe`.
        key: an entry of the mapping at `path`.
        item: the text of an item of the list at `path`.
    """
    node, position = root, root.position
    steps = [index or name for index, name in _STEP.findall(path)]
    if key is not None:
        steps.append(key)
    for step in steps:
        found = _child(node, step)
        if found is None:
            return position
        node, position = found
    same = (each for each in items_of(node) if isinstance(each, ScalarNode) and each.text == item)
    return next((each.position for each in same), position)


def finding_at(file: str, root: Node, path: str, rule: Rule, message: str) -> Finding:
    """A finding about the field at `path`."""
    return Finding(file, locate(root, path), path, rule, message)


def _child(node: Node, step: str) -> tuple[Node, Position] | None:
    if isinstance(node, MappingNode) and (entry := node.entries.get(step)):
        return entry.value, entry.key.position
    if step.isdecimal() and int(step[:6]) < len(items_of(node)):
        item = items_of(node)[int(step[:6])]
        return item, item.position
    return None


def occurrences(node: Node, text: str, path: str) -> Iterator[tuple[str, Position]]:
    """The keys and values below `node` that are `text`, with the paths of their fields."""
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            if key == text:
                yield path, entry.key.position
            yield from occurrences(entry.value, text, f"{path}.{key}")
    elif isinstance(node, SequenceNode):
        for index, each in enumerate(node.items):
            yield from occurrences(each, text, f"{path}[{index}]")
    elif node.text == text:
        yield path, node.position
