"""Tables in YAML, with tags for values that a program makes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml


def load_table(path: Path, tags: dict[str, Callable[[Any], Any]]) -> Any:
    """The document; a tag `!name` calls `tags["name"]` with the value that follows it.

    All tables have `!times [text or list, count]`, `!join [text, …]`, and `!bytes` of a text or of several, in Latin-1.
    """

    class Loader(yaml.SafeLoader):
        pass

    def add(name: str, made: Callable[[Any], Any]) -> None:
        def construct(loader: Loader, node: yaml.Node) -> Any:
            if isinstance(node, yaml.MappingNode):
                return made(loader.construct_mapping(node, deep=True))
            if isinstance(node, yaml.SequenceNode):
                return made(loader.construct_sequence(node, deep=True))
            return made(node.value)

        Loader.add_constructor(f"!{name}", construct)

    for name, made in {"times": _times, "join": "".join, "bytes": _bytes, **tags}.items():
        add(name, made)
    return yaml.load(path.read_text(), Loader)


def _times(repeated: Any) -> Any:
    value, count = repeated
    return value * count


def _bytes(text: Any) -> bytes:
    return "".join(text).encode("latin-1")
