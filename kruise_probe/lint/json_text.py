"""JSON as nodes: a stream of documents, as `jq` and `json.dumps` write it.

Source: Go's encoding/json, with which kubectl reads each text that begins with `{`.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from kruise_probe.lint.nodes import (
    Document,
    Node,
    NodeBuilder,
    ScalarNode,
    SequenceNode,
    child_path,
)

_DECODER: Final = json.JSONDecoder()
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_LITERAL: Final = re.compile(
    r"true|false|null|-?(?:0|[1-9][0-9]{0,4000})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REMEDY: Final = "correct the JSON here; a text that begins with '{' is read as JSON, not as YAML"


def json_documents(builder: NodeBuilder) -> Iterator[Document]:
    """The documents of a text that begins with `{`.

    Raises:
        Malformed: the rest is not valid JSON.
    """
    scanner = _Scanner(builder)
    try:
        while scanner.has_more():
            yield builder.document(scanner.value("", 0))
    except json.JSONDecodeError as error:
        raise builder.malformed(error.pos, f"not valid JSON: {error.msg}; {_REMEDY}") from error


class _Scanner:
    """Reads values one after the other."""

    def __init__(self, builder: NodeBuilder) -> None:
        self._builder = builder
        self._text = builder.text
        self._at = 0

    def has_more(self) -> bool:
        return self._next() != ""

    def value(self, path: str, depth: int) -> Node:
        first = self._next()
        start = self._at
        position = self._builder.count(start, depth)
        if first == "{":
            pairs = []
            for _ in self._items("}"):
                key = self._string()
                self._expect(":")
                pairs.append((key, self.value(child_path(path, key.text), depth + 1)))
            return self._builder.mapping(position, pairs, path)
        if first == "[":
            items = tuple(self.value(f"{path}[{index}]", depth + 1) for index in self._items("]"))
            return SequenceNode(position, items)
        if first == '"':
            return self._string()
        literal = _LITERAL.match(self._text, start)
        if literal is None:
            raise json.JSONDecodeError("a value is missing", self._text, start)
        self._at = literal.end()
        return ScalarNode(position, literal[0], json.loads(literal[0]))

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._text[self._at : self._at + 1]

    def _items(self, end: str) -> Iterator[int]:
        """Yield before each item of a list or mapping, with its number."""
        self._at += 1
        if self._next() == end:
            self._at += 1
            return
        number = 0
        while True:
            yield number
            number += 1
            if self._next() == end:
                self._at += 1
                return
            self._expect(",", f"',' or '{end}'")

    def _expect(self, wanted: str, name: str = "") -> None:
        if self._next() != wanted:
            message = f"{name or repr(wanted)} is missing"
            raise json.JSONDecodeError(message, self._text, self._at)
        self._at += 1

    def _string(self) -> ScalarNode:
        """A string. As in Go, a surrogate without its partner becomes U+FFFD."""
        if self._next() != '"':
            raise json.JSONDecodeError("a key in double quotes is missing", self._text, self._at)
        position = self._builder.position(self._at)
        text, self._at = _DECODER.raw_decode(self._text, self._at)
        text = _SURROGATE.sub("\ufffd", text)
        return ScalarNode(position, text, text)
