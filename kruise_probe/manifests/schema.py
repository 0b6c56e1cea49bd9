"""Building blocks of OpenAPI v3 structural schemas, as plain dictionaries.

Source: apiextensions/v1 JSONSchemaProps.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kruise_probe.api.probe_validation import (
    MAX_PORT,
    MAX_PORT_NAME,
)

Schema = dict[str, Any]


def described(description: str, schema: Schema) -> Schema:
    return {"description": description, **schema}


def text(*, most: int | None = None, least: int | None = None, enum: Sequence[str] = ()) -> Schema:
    schema: Schema = {"type": "string"}
    if most is not None:
        schema["maxLength"] = most
    if least is not None:
        schema["minLength"] = least
    if enum:
        schema["enum"] = list(enum)
    return schema


def int32(*, least: int | None = None, most: int | None = None) -> Schema:
    return {**int64(least=least, most=most), "format": "int32"}


def port() -> Schema:
    """A port number or the name of a container port."""
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "minimum": 1,
        "maximum": MAX_PORT,
        "maxLength": MAX_PORT_NAME,
        "pattern": "^([0-9]+-)*[0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$",
    }


def int64(*, least: int | None = None, most: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "format": "int64"}
    if least is not None:
        schema["minimum"] = least
    if most is not None:
        schema["maximum"] = most
    return schema


def anything() -> Schema:
    """An object that the API server stores as it is."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def date_time() -> Schema:
    return {"type": "string", "format": "date-time"}


def list_of(items: Schema, *, most: int | None = None, least: int | None = None) -> Schema:
    schema: Schema = {"type": "array", "items": items}
    if most is not None:
        schema["maxItems"] = most
    if least is not None:
        schema["minItems"] = least
    return schema


def map_of(values: Schema, *, most: int | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    if most is not None:
        schema["maxProperties"] = most
    return schema


def record(properties: Mapping[str, Schema], *, required: Sequence[str] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = sorted(required)
    return schema


def ruled(schema: Schema, *rules: Mapping[str, str]) -> Schema:
    """Add CEL rules (see `rules`) to a schema."""
    return {**schema, "x-kubernetes-validations": [dict(each) for each in rules]}
