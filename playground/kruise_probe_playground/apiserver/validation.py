"""Validation by schema: of custom resources by all keywords, of built-in kinds by enumerations and limits.

Source: apiextensions-apiserver pkg/apiserver/validation; kube-openapi pkg/validation (the wording).
Differs: only the keywords of this project's schemas; no CEL, no ratcheting of unchanged values.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause
from kruise_probe_playground.apiserver.schema import Schema
from kruise_probe_playground.apiserver.shaping import is_of, type_name

_SIZES: Final[Mapping[type, tuple[str, str]]] = {
    dict: ("Properties", "have at least {} properties"),
    list: ("Items", "have at least {} items"),
    str: ("Length", "be at least {} chars long"),
}
_RANGES: Final = {
    "int32": 2**31,
    "int64": 2**63,
}


def validate(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the errors of a pruned and defaulted value at `path`."""
    if not is_of(value, schema.types):
        found = type_name(value)
        why = f'{path} in body must be of type {schema.types[0]}: "{found}"'
        message = f"Invalid value: {failures.show(found)}: {why}"
        yield Cause("FieldValueTypeInvalid", message, path)
        return
    if isinstance(value, (dict, list, str)):
        yield from _size_problems(value, schema, path)
    if isinstance(value, dict):
        yield from _map_problems(value, schema, path)
    elif isinstance(value, list):
        yield from _list_problems(value, schema, path)
    elif isinstance(value, str):
        yield from _text_problems(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_problems(value, schema, path)
    allowed = schema.rules.get("enum")
    if allowed is not None and value not in allowed:
        yield failures.unsupported(path, value, allowed)


def _size_problems(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    unit, words = _SIZES[type(value)]
    least = schema.rules.get(f"min{unit}", 0)
    most = schema.rules.get(f"max{unit}")
    is_text = isinstance(value, str)
    if len(value) < least:
        shown = value if is_text else len(value)
        yield failures.invalid_value(
            path,
            shown,
            f"{path} in body should {words.format(least)}",
        )
    if most is not None and len(value) > most:
        too_many = f"Too many: {len(value)}: must have at most {most} items"
        yield (
            failures.too_long(path, most) if is_text else Cause("FieldValueTooMany", too_many, path)
        )


def _map_problems(
    value: dict[str, Any],
    schema: Schema,
    path: str,
) -> Iterator[Cause]:
    prefix = f"{path}." if path else ""
    if not schema.typed:  # Go has zero values instead
        for key in sorted(schema.required - value.keys()):
            yield failures.required(f"{prefix}{key}")
    for key, field in value.items():
        child = schema.child(key)
        if child is not None:
            yield from validate(
                field,
                child,
                f"{prefix}{key}",
            )


def _list_problems(
    value: list[Any],
    schema: Schema,
    path: str,
) -> Iterator[Cause]:
    if schema.items is not None:
        for index, item in enumerate(value):
            yield from validate(
                item,
                schema.items,
                f"{path}[{index}]",
            )
    if schema.list_type == "atomic" or schema.typed:
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = schema.identity(item) if schema.list_type == "map" else item
        if identity is not None and identity in seen:
            shown = dict(identity) if schema.list_type == "map" else item
            yield failures.duplicate(f"{path}[{index}]", shown)
        seen.append(identity)


def _text_problems(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    pattern = schema.rules.get("pattern")
    if pattern is not None and not re.search(pattern, value):
        yield failures.invalid_value(
            path,
            value,
            f"{path} in body should match '{pattern}'",
        )
    if schema.rules.get("format") == "date-time" and not schema.typed and not _is_time(value):
        why = f'{path} in body must be of type date-time: "{value}"'
        yield failures.invalid_value(path, value, why)


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _number_problems(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    least = schema.rules.get("minimum")
    most = schema.rules.get("maximum")
    form = schema.rules.get("format", "")
    if least is not None and value < least:
        why = f"{path} in body should be greater than or equal to {least}"
        yield failures.invalid_value(path, value, why)
    if most is not None and value > most:
        why = f"{path} in body should be less than or equal to {most}"
        yield failures.invalid_value(path, value, why)
    if form in _RANGES and not -_RANGES[form] <= value < _RANGES[form]:
        yield failures.invalid_value(
            path,
            value,
            f"{path} in body must be of type {form}",
        )
