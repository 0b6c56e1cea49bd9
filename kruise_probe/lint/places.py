"""Finds the position of a field by its path, and the paths of fields by a text."""

import re
from collections.abc import Iterator
from typing import Final

from kruise_probe.lint.findings import Position
from kruise_probe.lint.nodes import MappingNode, ScalarNode, SequenceNode, YamlNode

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def locate(root: YamlNode, path: str, *, key: str | None = None, item: object = None) -> Position:
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
    if isinstance(node, SequenceNode):
        same = (each for each in node.items if isinstance(each, ScalarNode) and each.text == item)
        return next((each.position for each in same), position)
    return position


def _child(node: YamlNode, step: str) -> tuple[YamlNode, Position] | None:
    if isinstance(node, MappingNode) and (entry := node.entries.get(step)):
        return entry.value, entry.key.position
    if isinstance(node, SequenceNode) and step.isdecimal() and int(step[:6]) < len(node.items):
        item = node.items[int(step[:6])]
        return item, item.position
    return None


def below(root: YamlNode, *names: str) -> YamlNode | None:
    """The node at nested keys."""
    node: YamlNode | None = root
    for name in names:
        node = node.get(name) if isinstance(node, MappingNode) else None
    return node


def path_to(root: YamlNode, position: Position, path: str = "") -> str | None:
    """The path of the mapping that begins at `position`."""
    if isinstance(root, MappingNode):
        if root.position == position:
            return path
        children = [(f"{path}.{key}" if path else key, x.value) for key, x in root.entries.items()]
    else:
        children = [(f"{path}[{index}]", each) for index, each in enumerate(items_of(root))]
    found = (path_to(each, position, where) for where, each in children)
    return next((each for each in found if each is not None), None)


def items_of(node: YamlNode | None) -> tuple[YamlNode, ...]:
    """The items of a list; nothing for any other node."""
    return node.items if isinstance(node, SequenceNode) else ()


def occurrences(node: YamlNode, text: str, path: str) -> Iterator[tuple[str, Position]]:
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
