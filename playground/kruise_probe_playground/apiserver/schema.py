"""Structural schemas of built-in kinds and custom resources, compiled from OpenAPI v3.

Pruning, defaulting, validation, patches, comparison and managed fields use them.

Source: apiextensions-apiserver pkg/apiserver/schema; kube-openapi pkg/schemaconv for list and map types.
Differs: no CEL, no x-kubernetes-embedded-resource; a value of unknown type counts as untyped.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import yaml

Json = dict[str, Any]


def listed(of: Json, field: str) -> Sequence[Any]:
    """The list of a field; a null one is as absent."""
    return of.get(field) or ()


ListType = Literal["atomic", "set", "map"]


@cache
def additions() -> Mapping[str, Mapping[str, Json]]:
    """What OpenAPI lacks about the built-in kinds: `absent`, `fields` and `blank`, by the name of a definition or a kind."""
    text = files(__package__).joinpath("core_additions.yaml").read_bytes()
    loaded: Mapping[str, Mapping[str, Json]] = yaml.safe_load(text)
    return loaded


def put(of: Json, key: str, value: Any) -> None:
    """Set the value at a key; None removes the key."""
    if value is None:
        of.pop(key, None)
    else:
        of[key] = value


def value_at(of: Any, path: Iterable[str]) -> Any:
    """The value at a path of keys, or None."""
    for key in path:
        of = (of or {}).get(key)
    return of


class Schema:
    """One node of a compiled schema. Immutable once compiled; shared between objects.

    Attributes:
        rules: the OpenAPI keywords, for validation.
        typed: values are decoded into Go structs, which drops nulls and empty optional values.
        types: allowed JSON types; empty allows all.
        extra: schema of keys that are not properties; None prunes them.
        keys: the keys of a list of type map.
        merge_key: the key for strategic merge patches; "" for lists of scalars.
        absent: see `core_additions.yaml`.
    """

    def __init__(self, rules: Json, *, typed: bool) -> None:
        strategy: str = rules.get("x-kubernetes-patch-strategy", "")
        self.rules = rules
        self.typed = typed
        self.types = _types(rules)
        self.properties: dict[str, Schema] = {}
        self.extra: Schema | None = None
        self.items: Schema | None = None
        self.required: frozenset[str] = frozenset(rules.get("required", ()))
        self.preserve: bool = rules.get("x-kubernetes-preserve-unknown-fields", False)
        self.default: Any = rules.get("default")
        self.merges = "merge" in strategy
        self.merge_key: str = rules.get("x-kubernetes-patch-merge-key", "")
        self.list_type: ListType = _list_type(rules)
        self.keys: tuple[str, ...] = tuple(
            rules.get("x-kubernetes-list-map-keys", (self.merge_key,) if self.merge_key else ())
        )
        self.atomic_map: bool = rules.get("x-kubernetes-map-type") == "atomic"
        self.absent: Json = {}
        self.has_defaults = False

    def child(self, key: str) -> "Schema | None":
        """The schema of the value at `key`, or None for an unknown key."""
        known = self.properties.get(key)
        return known if known is not None else self.extra

    def identity(self, item: Any) -> tuple[tuple[str, Any], ...] | None:
        """The keys and values that identify an item of a list of type map; None without any."""
        if not isinstance(item, dict):
            return None
        found = []
        for key in sorted(self.keys):
            value = item.get(key)
            if value is None and self.items is not None and key in self.items.properties:
                value = self.items.properties[key].default
            if value is not None:
                found.append((key, value))
        return tuple(found) or None


class Compiler:
    """Compiles schemas; named definitions are compiled once.

    Args:
        definitions: schemas by the last part of a `$ref`.
        typed: see `Schema`.
    """

    def __init__(
        self, definitions: Mapping[str, Json] | None = None, *, typed: bool = False
    ) -> None:
        self._definitions = definitions or {}
        self._typed = typed
        self._done: dict[str, Schema] = {}

    def compile(self, rules: Json) -> Schema:
        reference = rules.get("$ref")
        if reference is None:
            return self._node(rules)
        name = str(reference).rsplit("/", 1)[-1]
        beside = {key: value for key, value in rules.items() if key != "$ref"}
        if beside:
            return self._node({**self._definitions[name], **beside}, name)
        return self._done.get(name) or self._node(self._definitions[name], name)

    def _node(self, rules: Json, name: str = "") -> Schema:
        node = Schema(rules, typed=self._typed)
        if rules is self._definitions.get(name):
            self._done[name] = node  # before its parts, which may refer to it
        node.absent = additions()["absent"].get(name, {})
        limits = additions()["fields"].get(name, {})
        for key, value in rules.get("properties", {}).items():
            node.properties[key] = self.compile({**value, **limits.get(key, {})})
        node.extra = self._extra(rules, node)
        if "items" in rules:
            node.items = self.compile(rules["items"])
        below = [
            *node.properties.values(),
            *filter(None, (node.extra, node.items)),
        ]
        node.has_defaults = bool(node.absent) or any(
            item.default is not None or item.has_defaults for item in below
        )
        return node

    def _extra(self, rules: Json, node: Schema) -> Schema | None:
        additional = rules.get("additionalProperties")
        if isinstance(additional, dict):
            return self.compile(additional)
        shapeless = not node.properties and (self._typed or not node.types)
        return UNTYPED if additional is True or node.preserve or shapeless else None


def _types(rules: Json) -> tuple[str, ...]:
    if rules.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    if "type" in rules:
        return (rules["type"],)
    return tuple(
        alternative["type"] for alternative in rules.get("oneOf", ()) if "type" in alternative
    )


def _list_type(rules: Json) -> ListType:
    declared: ListType | None = rules.get("x-kubernetes-list-type")
    if declared is not None:
        return declared
    if rules.get("x-kubernetes-patch-strategy") in ("merge", "merge,retainKeys"):
        return "map" if rules.get("x-kubernetes-patch-merge-key") else "set"
    return "atomic"


UNTYPED: Final = Schema({"x-kubernetes-preserve-unknown-fields": True}, typed=False)
UNTYPED.extra = UNTYPED
