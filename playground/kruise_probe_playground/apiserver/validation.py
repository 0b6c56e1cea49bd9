"""Validation by schema: of custom resources by all keywords, of built-in kinds by enumerations and limits.

Source: apiextensions-apiserver pkg/apiserver/validation; kube-openapi pkg/validation (the wording).
Differs: only the keywords of this project's schemas; no CEL, no ratcheting of unchanged values.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause
from kruise_probe_playground.apiserver.schema import Schema
from kruise_probe_playground.apiserver.shaping import is_of, type_name


def validate(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the errors of a pruned and defaulted value at `path`."""
    if value is None and schema.nullable:
        return
    if not is_of(value, schema.types):
        yield _type_problem(value, schema, path)
        return
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
    yield from _combination_problems(value, schema, path)


def _type_problem(value: Any, schema: Schema, path: str) -> Cause:
    found = type_name(value)
    return failures.wrong_type(
        path, found, f'{path} in body must be of type {schema.types[0]}: "{found}"'
    )


def _map_problems(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    if not schema.typed:  # Go has zero values instead
        for key in sorted(schema.required - value.keys()):
            yield failures.required(f"{path}.{key}" if path else key)
    for key, each in value.items():
        child = schema.child(key)
        if child is not None:
            yield from validate(each, child, _below(path, key, schema))
    least, most = schema.rules.get("minProperties"), schema.rules.get("maxProperties")
    if least is not None and len(value) < least:
        yield failures.invalid_value(
            path, len(value), f"{path} in body should have at least {least} properties"
        )
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)


def _below(path: str, key: str, schema: Schema) -> str:
    return f"{path}.{key}" if path else key


def _list_problems(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.rules.get("minItems"), schema.rules.get("maxItems")
    if least is not None and len(value) < least:
        yield failures.invalid_value(
            path, len(value), f"{path} in body should have at least {least} items"
        )
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    if schema.items is not None:
        for index, each in enumerate(value):
            yield from validate(each, schema.items, f"{path}[{index}]")
    yield from _duplicate_problems(value, schema, path)


def _duplicate_problems(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    if schema.list_type == "atomic" or schema.typed:
        return
    seen: list[Any] = []
    for index, each in enumerate(value):
        identity = schema.identity(each) if schema.list_type == "map" else each
        if identity is not None and identity in seen:
            shown = dict(identity) if schema.list_type == "map" else each
            yield failures.duplicate(f"{path}[{index}]", shown)
        seen.append(identity)


def _too_many(path: str, found: int, most: int) -> Cause:
    message = f"Too many: {found}: must have at most {most} items"
    return Cause("FieldValueTooMany", message, path)


def _text_problems(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.rules.get("minLength"), schema.rules.get("maxLength")
    if least is not None and len(value) < least:
        yield failures.invalid_value(
            path, value, f"{path} in body should be at least {least} chars long"
        )
    if most is not None and len(value) > most:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", path)
    pattern = schema.rules.get("pattern")
    if pattern is not None and not re.search(pattern, value):
        yield failures.invalid_value(path, value, f"{path} in body should match '{pattern}'")
    if schema.rules.get("format") == "date-time" and not schema.typed and not _is_time(value):
        yield failures.invalid_value(
            path, value, f'{path} in body must be of type date-time: "{value}"'
        )


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _number_problems(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    rules = schema.rules
    least, most = rules.get("minimum"), rules.get("maximum")
    if least is not None and value < least:
        detail = f"{path} in body should be greater than or equal to {least}"
        yield failures.invalid_value(path, value, detail)
    if most is not None and value > most:
        yield failures.invalid_value(
            path, value, f"{path} in body should be less than or equal to {most}"
        )
    bits = {"int32": 31, "int64": 63}.get(rules.get("format", ""))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        yield failures.invalid_value(
            path, value, f"{path} in body must be of type {rules['format']}"
        )


def _combination_problems(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    if not isinstance(value, dict):
        return
    for keyword, enough in (("anyOf", any), ("allOf", all)):
        choices = schema.rules.get(keyword, ())
        if choices and not enough(
            each.get("required", []) <= [*value] or _holds(value, each) for each in choices
        ):
            yield failures.invalid_value(
                path, value, f"{path} in body must validate {keyword} of its schemas"
            )


def _holds(value: dict[str, Any], choice: dict[str, Any]) -> bool:
    return set(choice.get("required", ())) <= value.keys()
