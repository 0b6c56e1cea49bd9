"""Finds the node of a field path, and the path of a text."""

import re
from collections.abc import Iterator
from typing import Final

from kruise_probe.lint.findings import Position
from kruise_probe.lint.nodes import Mapping, Node, Scalar, Sequence

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


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
    if isinstance(node, Sequence):
        same = (each for each in node.items if isinstance(each, Scalar) and each.text == item)
        return next((each.position for each in same), position)
    return position


def _child(node: Node, step: str) -> tuple[Node, Position] | None:
    if isinstance(node, Mapping) and (entry := node.entries.get(step)):
        return entry.value, entry.key.position
    if isinstance(node, Sequence) and step.isdecimal() and int(step[:6]) < len(node.items):
        item = node.items[int(step[:6])]
        return item, item.position
    return None


def below(root: Node, *names: str) -> Node | None:
    """The node at nested keys."""
    node: Node | None = root
    for name in names:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def path_to(root: Node, position: Position, path: str = "") -> str | None:
    """The path of the mapping that begins at `position`."""
    if isinstance(root, Mapping):
        if root.position == position:
            return path
        children = [(f"{path}.{key}" if path else key, x.value) for key, x in root.entries.items()]
    else:
        children = [(f"{path}[{index}]", each) for index, each in enumerate(items_of(root))]
    found = (path_to(each, position, where) for where, each in children)
    return next((each for each in found if each is not None), None)


def items_of(node: Node | None) -> tuple[Node, ...]:
    """The items of a list; nothing for any other node."""
    return node.items if isinstance(node, Sequence) else ()


def occurrences(node: Node, text: str, path: str) -> Iterator[tuple[str, Position]]:
    """The keys and values below `node` that are `text`, with the paths of their fields."""
    if isinstance(node, Mapping):
        for key, entry in node.entries.items():
            if key == text:
                yield path, entry.key.position
            yield from occurrences(entry.value, text, f"{path}.{key}")
    elif isinstance(node, Sequence):
        for index, each in enumerate(node.items):
            yield from occurrences(each, text, f"{path}[{index}]")
    elif node.text == text:
        yield path, node.position
