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


def text(
    *, maximum: int | None = None, minimum: int | None = None, enum: Sequence[str] = ()
) -> Schema:
    schema: Schema = {"type": "string"}
    if maximum is not None:
        schema["maxLength"] = maximum
    if minimum is not None:
        schema["minLength"] = minimum
    if enum:
        schema["enum"] = list(enum)
    return schema


def int32(*, minimum: int | None = None, maximum: int | None = None) -> Schema:
    return {**int64(minimum=minimum, maximum=maximum), "format": "int32"}


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


def int64(*, minimum: int | None = None, maximum: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "format": "int64"}
    if minimum is not None:
        schema["minimum"] = minimum
    if maximum is not None:
        schema["maximum"] = maximum
    return schema


def anything() -> Schema:
    """An object that the API server stores as it is."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def date_time() -> Schema:
    return {"type": "string", "format": "date-time"}


def list_of(items: Schema, *, maximum: int | None = None, minimum: int | None = None) -> Schema:
    schema: Schema = {"type": "array", "items": items}
    if maximum is not None:
        schema["maxItems"] = maximum
    if minimum is not None:
        schema["minItems"] = minimum
    return schema


def map_of(values: Schema, *, maximum: int | None = None) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    if maximum is not None:
        schema["maxProperties"] = maximum
    return schema


def record(properties: Mapping[str, Schema], *, required: Sequence[str] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = sorted(required)
    return schema


def ruled(schema: Schema, *rules: Mapping[str, str]) -> Schema:
    """Add CEL rules (see `rules`) to a schema."""
    return {**schema, "x-kubernetes-validations": [dict(each) for each in rules]}
