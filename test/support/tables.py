"""Tables in YAML, with tags for values that a program makes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml


def load_table(path: Path, tags: dict[str, Callable[[Any], Any]]) -> Any:
    """The document; a tag `!name` calls `tags["name"]` with the value that follows it.

    All tables have `!times [text or list, count]`, `!join [text, …]`, and `!bytes` of a text or of several, in Latin-1.
    """

    known: dict[str, Callable[[Any], Any]] = {
        "times": _times,
        "join": "".join,
        "bytes": _bytes,
        **tags,
    }

    class Loader(yaml.SafeLoader):
        pass

    def construct(loader: Loader, name: str, node: yaml.Node) -> Any:
        value = node.value
        if isinstance(node, yaml.MappingNode):
            value = loader.construct_mapping(node, deep=True)
        elif isinstance(node, yaml.SequenceNode):
            value = loader.construct_sequence(node, deep=True)
        return known[name](value)

    Loader.add_multi_constructor("!", construct)
    return yaml.load(path.read_text(), Loader)


def _times(repeated: Any) -> Any:
    value, count = repeated
    return value * count


def _bytes(text: Any) -> bytes:
    return "".join(text).encode("latin-1")
