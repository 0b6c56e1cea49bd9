"""Checks the fields of a marker against its schema: unknown fields, wrong types and missing fields, each at its node.

The result is a plain value that decodes into the marker's structs, so that the rules are checked too. A wrong value is
left out or replaced by an empty one. Rules that such a value breaks are not reported again (`FieldCheck.covers`).

Source: apiextensions-apiserver pkg/apiserver/validation; kubectl's strict field validation.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

from kruise_probe.api.problems import did_you_mean, shorten
from kruise_probe.lint.findings import Finding, Position, Rule
from kruise_probe.lint.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    child_path,
    value_of,
)
from kruise_probe.manifests.crds import Schema, marker_json_schema

_LAST_STEP: Final = re.compile(r"(\.?[^.\[\]]+|\[[^\]]*\])\Z")
_MAX_LISTED: Final = 12
_TYPES: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "integer": "an integer",
    "boolean": "true or false",
}
_NAMES: Final[Mapping[type, str]] = {str: "string", int: "integer", bool: "boolean"}


class FieldCheck:
    """Checks a marker against its JSON Schema.

    Attributes:
        findings: unknown, missing and mistyped fields.
        value: the plain object without the fields that have findings.
    """

    def __init__(self, file: str, root: MappingNode) -> None:
        self._file = file
        self.findings: list[Finding] = []
        self.value: dict[str, Any] = self._mapping(root, marker_json_schema(), "")

    def covers(self, path: str) -> bool:
        """Whether an error at `path` may be a consequence of a finding at, above or directly below it."""
        return any(
            path in (each.path, _LAST_STEP.sub("", each.path))
            or path.startswith((f"{each.path}.", f"{each.path}["))
            for each in self.findings
        )

    def _report(self, position: Position, path: str, rule: Rule, message: str) -> None:
        self.findings.append(Finding(self._file, position, path, rule, message))

    def _value(self, node: Node, schema: Schema, path: str) -> Any:
        """The value of a node of any schema; its empty value if the type is wrong."""
        kinds = [schema["type"]] if "type" in schema else [x["type"] for x in schema["anyOf"]]
        if kinds == ["object"] and isinstance(node, MappingNode):
            return self._mapping(node, schema, path)
        if kinds == ["array"] and isinstance(node, SequenceNode):
            return [
                self._value(each, schema["items"], f"{path}[{index}]")
                for index, each in enumerate(node.items)
            ]
        if isinstance(node, ScalarNode):
            value = node.value
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if _NAMES.get(type(value)) in kinds:
                return value
        wanted = " or ".join(_TYPES[each] for each in kinds)
        message = f"must be {wanted}, but is {_description(node)}; {_remedy(node, kinds)}"
        self._report(node.position, path, Rule.WRONG_TYPE, message)
        return _empty(schema)

    def _mapping(self, node: MappingNode, schema: Schema, path: str) -> dict[str, Any]:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        extra = schema.get("additionalProperties", True)
        value: dict[str, Any] = {}
        for key, entry in node.entries.items():
            each = properties.get(key)
            where = child_path(path, key)
            if each is not None:
                if not isinstance(entry.value, ScalarNode) or entry.value.value is not None:
                    value[key] = self._value(entry.value, each, where)
            elif isinstance(extra, dict):
                value[key] = self._value(entry.value, extra, f"{path}[{key}]")
            elif extra:
                value[key] = value_of(entry.value)
            else:
                message = self._unknown(key, path, properties)
                at = entry.key.position
                self._report(at, where, Rule.UNKNOWN_FIELD, message)
        for key in schema.get("required", ()):
            if key not in value:
                value[key] = _empty(properties[key])
                about = properties[key].get("description", "").rstrip(".")
                message = f"Required value: {about or 'the field is missing'}; add this field"
                at = node.entries[key].key.position if key in node.entries else node.position
                where = child_path(path, key)
                self._report(at, where, Rule.INVALID, message)
        return value

    def _unknown(self, key: str, path: str, properties: Mapping[str, Schema]) -> str:
        what = f"unknown field {key!r}"
        if close := did_you_mean(key, properties) or _containing(key, properties):
            return f"{what}.{close}"
        here = re.sub(r"\[[^\]]*\]", "[]", path)  # as the schema names it: spec.probes[].probe
        parents = [place for name, place in _places() if name == key and place != here]
        if len(parents) == 1:
            return f"{what}; it belongs to {parents[0] or 'the top level'}: check the indentation"
        known = ", ".join(sorted(properties)[:_MAX_LISTED])
        return f"{what}; the fields here are {known}"


def _containing(part: str, names: Iterable[str]) -> str:
    """` Did you mean 'x'?` if exactly one name contains `part`, or exactly one begins with it."""
    having = [each for each in names if len(part) > 3 and part.lower() in each.lower()]
    found = [each for each in having if each.lower().startswith(part.lower())] or having
    return f" Did you mean {found[0]!r}?" if len(found) == 1 else ""


@cache
def _places() -> list[tuple[str, str]]:
    """The fields of the spec with the places where they may be: `port` in `spec.probes[].probe.grpc` and others."""
    return list(_places_below(marker_json_schema(), ""))


def _places_below(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for name, each in schema.get("properties", {}).items():
        if path or name not in ("status", "metadata"):
            yield name, path
            below = f"{path}.{name}" if path else name
            yield from _places_below(each, below)
            yield from _places_below(each.get("items", {}), f"{below}[]")


def _description(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    value = node.value
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    text = _short(node.text)
    return f"the string {text!r}" if isinstance(value, str) else f"the number {text}"


def _remedy(node: Node, kinds: list[str]) -> str:
    if isinstance(node, ScalarNode):
        if "string" in kinds:
            return f'write "{_short(node.text)}" in quotes'
        if "array" in kinds:
            return "write a list: one item per line, each after '- '"
        if "integer" in kinds and node.text.isdecimal():
            return f"write {_short(node.text)} without quotes"
    if isinstance(node, SequenceNode) and "object" in kinds:
        return "remove the '-' before its fields"
    if isinstance(node, MappingNode) and "array" in kinds:
        return "begin each item with '- '"
    if "integer" in kinds:
        return "write a whole number, such as 5"
    return f"write {' or '.join(_TYPES[each] for each in kinds)}"


_short: Final = partial(shorten, most=40)


def _empty(schema: Schema) -> Any:
    """The smallest value that decodes."""
    if schema.get("type") == "object":
        required = schema.get("required", ())
        return {key: _empty(schema["properties"][key]) for key in required}
    return {"array": (), "string": "", "boolean": False}.get(schema.get("type", "port"), 1)
