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
_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    bool: "boolean",
}


class FieldCheck:
    """Checks a marker against its JSON Schema.

    Attributes:
        findings: unknown, missing and mistyped fields.
        value: the plain object without the fields that have findings.
    """

    def __init__(self, root: MappingNode) -> None:
        self.findings: list[Finding] = []
        self.value: dict[str, Any] = self._mapping(
            root,
            marker_json_schema(),
            "",
        )

    def covers(self, path: str) -> bool:
        """Whether an error at `path` may be a consequence of a finding at, above or directly below it."""
        for finding in self.findings:
            wrong = finding.path
            if path in (wrong, _LAST_STEP.sub("", wrong)):
                return True
            if path.startswith((f"{wrong}.", f"{wrong}[")):
                return True
        return False

    def _report(
        self,
        position: Position,
        path: str,
        rule: Rule,
        message: str,
    ) -> None:
        self.findings.append(Finding(position, path, rule, message))

    def _value(
        self,
        node: Node,
        schema: Schema,
        path: str,
    ) -> Any:
        """The value of a node of any schema; its empty value if the type is wrong."""
        kinds = [option["type"] for option in schema.get("anyOf", [schema])]
        if kinds == ["object"] and isinstance(node, MappingNode):
            return self._mapping(node, schema, path)
        if kinds == ["array"] and isinstance(node, SequenceNode):
            values = []
            for index, item in enumerate(node.items):
                values.append(
                    self._value(
                        item,
                        schema["items"],
                        f"{path}[{index}]",
                    )
                )
            return values
        if isinstance(node, ScalarNode):
            value = node.value
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if _NAMES.get(type(value)) in kinds:
                return value
        wanted = " or ".join(_TYPES[kind] for kind in kinds)
        remedy = _remedy(node, kinds) or f"write {wanted}"
        message = f"must be {wanted}, but is {_description(node)}; {remedy}"
        self._report(
            node.position,
            path,
            Rule.WRONG_TYPE,
            message,
        )
        return _empty(schema)

    def _mapping(
        self,
        node: MappingNode,
        schema: Schema,
        path: str,
    ) -> dict[str, Any]:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        extra = schema.get("additionalProperties", True)
        value: dict[str, Any] = {}
        for key, entry in node.entries.items():
            where = child_path(path, key)
            if key in properties:
                if not isinstance(entry.value, ScalarNode) or entry.value.value is not None:
                    value[key] = self._value(
                        entry.value,
                        properties[key],
                        where,
                    )
            elif isinstance(extra, dict):
                value[key] = self._value(
                    entry.value,
                    extra,
                    f"{path}[{key}]",
                )
            elif extra:
                value[key] = value_of(entry.value)
            else:
                message = f"unknown field {key!r}{_meant_instead(key, path, properties)}"
                self._report(
                    entry.key.position,
                    where,
                    Rule.UNKNOWN_FIELD,
                    message,
                )
        for key in schema.get("required", ()):
            if key not in value:
                value[key] = _empty(properties[key])
                self._missing(
                    node,
                    key,
                    path,
                    properties[key],
                )
        return value

    def _missing(
        self,
        node: MappingNode,
        key: str,
        path: str,
        schema: Schema,
    ) -> None:
        meaning = schema.get("description", "the field is missing").rstrip(".")
        position = node.position
        if key in node.entries:
            position = node.entries[key].key.position
        message = f"Required value: {meaning}; add this field"
        self._report(
            position,
            child_path(path, key),
            Rule.INVALID,
            message,
        )


def _meant_instead(
    key: str,
    path: str,
    properties: Mapping[str, Schema],
) -> str:
    """The end of the message about an unknown field."""
    if close := did_you_mean(key, properties) or _containing(key, properties):
        return f".{close}"
    here = re.sub(
        r"\[[^\]]*\]",
        "[]",
        path,
    )  # as the schema names it: spec.probes[].probe
    parents = [place for name, place in _places() if name == key and place != here]
    if len(parents) == 1:
        return f"; it belongs to {parents[0] or 'the top level'}: check the indentation"
    known = ", ".join(sorted(properties)[:_MAX_LISTED])
    return f"; the fields here are {known}"


def _containing(part: str, names: Iterable[str]) -> str:
    """` Did you mean 'x'?` if exactly one name contains `part`, or exactly one begins with it."""
    if len(part) < 4:
        return ""
    text = part.lower()
    found = [name for name in names if text in name.lower()]
    if len(found) > 1:
        found = [name for name in found if name.lower().startswith(text)]
    if len(found) != 1:
        return ""
    return f" Did you mean {found[0]!r}?"


@cache
def _places() -> list[tuple[str, str]]:
    """The fields of the spec with the places where they may be: `port` in `spec.probes[].probe.grpc` and others."""
    return list(_places_below(marker_json_schema(), ""))


def _places_below(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for name, field in schema.get("properties", {}).items():
        below = child_path(path, name)
        if below in ("status", "metadata"):
            continue
        yield name, path
        yield from _places_below(field, below)
        items = field.get("items", {})
        yield from _places_below(items, f"{below}[]")


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
    """What to write; empty if the names of the kinds say it."""
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
    return ""


_short: Final = partial(shorten, most=40)


def _empty(schema: Schema) -> Any:
    """The smallest value that decodes."""
    match schema.get("type"):
        case "object":
            required = schema.get("required", ())
            return {key: _empty(schema["properties"][key]) for key in required}
        case "array":
            return ()
        case "string":
            return ""
        case "boolean":
            return False
        case _:
            return 1
