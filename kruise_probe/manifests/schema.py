"""Structural schemas from the declarations of `api.fields`, as plain dictionaries.

Source: apiextensions/v1 JSONSchemaProps; apiserver pkg/cel for the cost budget of all rules of a CRD.
"""

from typing import Any

from kruise_probe.api.fields import Rule, Shape, literal
from kruise_probe.api.mark_rules import ALLOWED_LABELS
from kruise_probe.api.problems import CAUSES, ErrorKind

Schema = dict[str, Any]

_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"),
    "integer": ("minimum", "maximum"),
    "port": ("minimum", "maximum"),
}


def schema_of(shape: Shape, *, allowed_labels: str | None = None) -> Schema:
    """The schema of a type.

    `allowed_labels` is the list in CEL that replaces `mark_rules.ALLOWED_LABELS`; None for a schema without CEL.
    """
    field = shape.field
    schema: Schema = {"description": shape.text} if shape.text else {}
    if field.open:
        return {**schema, "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema |= _type_of(shape, allowed_labels)
    for name, bound in zip(_BOUNDS.get(shape.kind, ()), (field.least, field.most), strict=False):
        if bound is not None:
            schema[name] = bound
    if field.values:
        schema["enum"] = [str(each) for each in field.values]
    if field.default is not None:
        schema["default"] = field.default
    rules = [each for each in field.rules if each.cel]
    if rules and allowed_labels is not None:
        schema["x-kubernetes-validations"] = [_rule(each, allowed_labels) for each in rules]
    return {**schema, **field.schema}


def _type_of(shape: Shape, allowed_labels: str | None) -> Schema:
    items = schema_of(shape.items, allowed_labels=allowed_labels) if shape.items else {}
    match shape.kind:
        case "object":
            properties = {
                each.name: schema_of(each.shape, allowed_labels=allowed_labels)
                for each in shape.properties.values()
            }
            needed = sorted(each.name for each in shape.properties.values() if each.required)
            schema: Schema = {"type": "object", "properties": properties}
            return {**schema, "required": needed} if needed else schema
        case "array":
            return {"type": "array", "items": items}
        case "map":
            return {"type": "object", "additionalProperties": items}
        case "integer":
            return {"type": "integer", "format": "int64"}
        case "port":
            return {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            }
        case kind:
            return {"type": kind}


def _rule(rule: Rule, allowed_labels: str) -> Schema:
    cel = rule.cel.replace(ALLOWED_LABELS, allowed_labels)
    schema = {"rule": cel, "message": rule.message}
    if rule.item:
        item = rule.item.replace(ALLOWED_LABELS, allowed_labels)
        schema["messageExpression"] = f"{item} + {literal(rule.message)}"
    # Not of duplicates: the API server omits the message of such a rule.
    if rule.kind in (ErrorKind.REQUIRED, ErrorKind.FORBIDDEN):
        schema["reason"] = CAUSES[rule.kind]
    if rule.field:
        schema["fieldPath"] = f".{rule.field}"
    return schema
