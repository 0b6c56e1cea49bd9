"""The content of a file as nodes with positions, whether it is YAML or JSON, and how to find a field in it."""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kruise_probe.api.problems import Problem
from kruise_probe.lint.findings import Finding, Position, Rule

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


def child_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def value_of(node: Node | None) -> Any:
    """The node as plain Python values."""
    if isinstance(node, MappingNode):
        return {key: value_of(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [value_of(item) for item in node.items]
    return node.value if node else None


def below(root: Node | None, *names: str) -> Node | None:
    """The node at nested keys."""
    node = root
    for name in names:
        if not isinstance(node, MappingNode) or name not in node.entries:
            return None
        node = node.entries[name].value
    return node


def text_of(root: Node | None, *names: str) -> str:
    """The text of a scalar at nested keys that is a string; empty for anything else."""
    node = below(root, *names)
    value = node.value if isinstance(node, ScalarNode) else None
    return value if isinstance(value, str) else ""


def items_of(root: Node | None, *names: str) -> tuple[Node, ...]:
    """The items of a list at nested keys; nothing for any other node."""
    node = below(root, *names)
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
    for step in [*steps, *([] if key is None else [key])]:
        if isinstance(node, MappingNode) and (entry := node.entries.get(step)):
            node, position = entry.value, entry.key.position
        elif step.isdecimal() and int(step[:6]) < len(items_of(node)):
            node = items_of(node)[int(step[:6])]
            position = node.position
        else:
            return position
    for each in items_of(node):
        if isinstance(each, ScalarNode) and each.text == item:
            return each.position
    return position


def finding_at(file: str, root: Node, problem: Problem) -> Finding:
    """The finding of a problem of the object at `root`."""
    rule = problem.reason if isinstance(problem.reason, Rule) else Rule.INVALID
    position = locate(root, problem.path, key=problem.key, item=problem.value)
    return Finding(file, position, problem.path, rule, problem.message)


def occurrences(node: Node | None, text: str, path: str) -> Iterator[tuple[str, Position]]:
    """The keys and values below `node` that are `text`, with the paths of their fields."""
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            if key == text:
                yield path, entry.key.position
            yield from occurrences(entry.value, text, f"{path}.{key}")
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.items):
            yield from occurrences(item, text, f"{path}[{index}]")
    elif node and node.text == text:
        yield path, node.position
