"""Pruning and defaulting of the values that clients send.

Source: apiextensions-apiserver pkg/apiserver/schema/{pruning,defaulting}; encoding/json for built-in kinds.
Differs: times and quantities stay as they are sent; in built-in kinds rare optional numbers and booleans keep an explicit zero; Go drops it without a pointer.
"""

from copy import deepcopy
from typing import Any

from kruise_probe_playground.apiserver.schema import UNTYPED, Schema

_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}

_GO_NAMES = {"integer": "number", "boolean": "bool"}


class WrongType(Exception):
    """A field of a built-in kind has a value that Go cannot decode."""


def type_name(value: Any) -> str:
    """The JSON type of a decoded value, as OpenAPI names it."""
    if isinstance(value, bool):
        return "boolean"
    for name, python in _PYTHON_TYPES.items():
        if isinstance(value, python):
            return name
    return "null"


def is_of(value: Any, types: tuple[str, ...]) -> bool:
    """Whether the value has one of these JSON types; no types allow all."""
    if not types:
        return True
    name = type_name(value)
    if name == "integer" and "number" in types:
        return True
    if name == "number" and "integer" in types:
        return bool(value.is_integer())
    return name in types


def prune(
    value: Any,
    schema: Schema,
    unknown: list[str],
    path: str = "",
) -> Any:
    """Return a copy without unknown fields; append their paths to `unknown`.

    Raises:
        WrongType: in built-in kinds only; custom resources are validated later.
    """
    if schema.typed and not is_of(value, schema.types):
        found = type_name(value)
        found = _GO_NAMES.get(found, found)
        wanted = "/".join(schema.types)
        why = f"json: cannot unmarshal {found} into Go struct field {path} of type {wanted}"
        raise WrongType(why)
    if isinstance(value, dict):
        return _prune_map(value, schema, unknown, path)
    if isinstance(value, list) and schema.items is not None:
        return [
            prune(
                item,
                schema.items,
                unknown,
                f"{path}[{index}]",
            )
            for index, item in enumerate(value)
            if not (schema.typed and item is None)
        ]
    return value


def _prune_map(
    value: dict[str, Any],
    schema: Schema,
    unknown: list[str],
    path: str,
) -> Any:
    kept = {}
    for key, field in value.items():
        child = schema.child(key)
        where = f"{path}.{key}" if path else key
        if child is None:
            unknown.append(where)
        elif field is None and _drops_null(child, schema):
            if schema.typed and key not in schema.properties and "string" in child.types:
                kept[key] = ""  # Go has an entry with the zero value
        else:
            pruned = prune(field, child, unknown, where)
            if not (schema.typed and _is_omitted(pruned, key, child, schema)):
                kept[key] = pruned
    return kept


def _drops_null(child: Schema, parent: Schema) -> bool:
    """Whether null means absent, as in `periodSeconds:` without a value. A default then replaces it."""
    return parent.typed or (child is not UNTYPED and child.default is None)


def _is_omitted(
    value: Any,
    key: str,
    child: Schema,
    parent: Schema,
) -> bool:
    """Whether Go omits the value: an empty optional string, list or map, or a number that the schema marks."""
    if value or key in parent.required or key not in parent.properties:
        return False
    if "x-pointer" in child.rules:
        return False
    if "x-omitempty" in child.rules:
        return True
    if isinstance(value, dict):
        return "additionalProperties" in child.rules
    return isinstance(value, (str, list))


def apply_defaults(value: Any, schema: Schema) -> None:
    """Set the defaults of absent fields in place."""
    if not schema.has_defaults:
        return
    if isinstance(value, list) and schema.items is not None:
        for item in value:
            apply_defaults(item, schema.items)
    elif isinstance(value, dict):
        _default_map(value, schema)


def _default_map(value: dict[str, Any], schema: Schema) -> None:
    for key, absent in schema.absent.items():
        if key not in value:
            value[key] = deepcopy(absent)
    for key, name in schema.properties.items():
        _default_field(value, key, name)
    if schema.extra is not None:
        for key in value.keys() - schema.properties.keys():
            apply_defaults(value[key], schema.extra)


def _default_field(
    value: dict[str, Any],
    key: str,
    schema: Schema,
) -> None:
    present = value.get(key)
    if present is None and schema.default is not None:
        value[key] = present = deepcopy(schema.default)
    if present is not None:
        apply_defaults(present, schema)
