"""Schemas of our kinds for their CRDs, from the declarations of `api.v1alpha1` and `api.node_pod_probe`, and the docstrings of its structs.

Source: apiextensions/v1 JSONSchemaProps.
"""

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kruise_probe import manifests
from kruise_probe.api.fields import Rule, Shape, literal, shape_of
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.problems import ErrorKind
from kruise_probe.api.v1alpha1 import PodProbeMarker

Schema = dict[str, Any]

FOLDER = Path(manifests.__file__).parent
KINDS: dict[str, type[msgspec.Struct]] = {
    "podprobemarkers_crd.yaml": PodProbeMarker,
    "nodepodprobes_crd.yaml": NodePodProbe,
}
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"),
    "integer": ("minimum", "maximum"),
    "int-or-string": ("minimum", "maximum"),
}


def definitions() -> Iterator[tuple[Path, str]]:
    """Each file of a CRD, with the fields of its spec and status from the declarations."""
    for name, kind in KINDS.items():
        path = FOLDER / name
        crd = yaml.safe_load(path.read_text())
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema = schema_of(shape_of(kind))
        for half in ("spec", "status"):
            root["properties"][half] = schema["properties"][half]
        required = [field for field in schema.get("required", ()) if field != "metadata"]
        if required:
            root["required"] = required
        yield path, manifests.yaml_of([crd])


def descriptions(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The meaning of each attribute, from the docstrings of the struct and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        _, _, section = cleandoc(vars(base).get("__doc__") or "").partition("Attributes:\n")
        for name, text in _ATTRIBUTE.findall(section):
            texts[name] = " ".join(text.split())
    return texts


def schema_of(shape: Shape) -> Schema:
    """The schema of a type; its rules may contain `reserved.ALLOWED_LABELS`.

    Raises:
        ValueError: the API server would refuse the rule, because it reads what the schema leaves open.
    """
    field = shape.field
    if field.open:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    rules = [rule for rule in field.rules if rule.cel]
    schema = _type_of(shape)
    bounds = zip(
        _BOUNDS.get(shape.kind, ()),
        (field.least, field.most),
        strict=False,
    )
    schema |= {name: bound for name, bound in bounds if bound is not None}
    if field.values:
        schema["enum"] = [str(value) for value in field.values]
    if field.default is not None:
        schema["default"] = field.default
    if rules:
        schema["x-kubernetes-validations"] = [_rule(rule, shape) for rule in rules]
    return {**schema, **field.schema}


def _type_of(shape: Shape) -> Schema:
    match shape.kind:
        case "object":
            return _object(shape)
        case "integer":
            return {"type": "integer", "format": "int64"}
        case "int-or-string":
            return {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            }
        case _:
            pass
    if shape.items is None:
        return {"type": shape.kind}
    items = schema_of(shape.items)
    if shape.kind == "map":
        return {"type": "object", "additionalProperties": items}
    return {"type": "array", "items": items}


def _object(shape: Shape) -> Schema:
    assert shape.struct is not None
    texts = descriptions(shape.struct)
    properties: dict[str, Schema] = {}
    for attribute, field in shape.properties.items():
        about = {"description": texts[attribute]} if attribute in texts else {}
        properties[field.name] = {**about, **schema_of(field)}
    schema: Schema = {"type": "object", "properties": properties}
    required = sorted(field.name for field in shape.properties.values() if field.required)
    if required:
        schema["required"] = required
    return schema


def _rule(rule: Rule, shape: Shape) -> Schema:
    for field in shape.properties.values():
        if field.field.open and re.search(rf"self\.{field.name}\b", rule.cel):
            raise ValueError(
                f"the schema of {field.name} is open: CEL has no such field: {rule.cel}"
            )
    schema: Schema = {"rule": rule.cel, "message": rule.message}
    if rule.item:
        schema["messageExpression"] = f"{rule.item} + {literal(rule.message)}"
    # Not of duplicates: the API server omits the message of such a rule.
    if rule.kind in (ErrorKind.REQUIRED, ErrorKind.FORBIDDEN):
        schema["reason"] = rule.kind.cause
    if rule.field:
        schema["fieldPath"] = f".{rule.field}"
    return schema
