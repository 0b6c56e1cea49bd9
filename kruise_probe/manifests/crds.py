"""The two CustomResourceDefinitions, from the declarations of `api.v1alpha1`, and the JSON Schema of a PodProbeMarker.

Field names are Kruise's. Additions: bounds, defaults of httpGet, CEL rules, short names, categories, printer columns
and status fields.

Source: openkruise/kruise config/crd/bases; apiextensions/v1 JSONSchemaProps; apimachinery pkg/apis/meta/v1 TypeMeta and
ObjectMeta; JSON Schema draft-07, which editors support.
Differs: the additions above. The JSON Schema is without the CEL rules, which it cannot express. Absent numbers get no
default, as Kruise's defaults differ from those of core/v1.
"""

import json
from collections.abc import Collection
from functools import cache
from typing import Any, Final

from kruise_probe.api.fields import Rule, Shape, literal, shape_of
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.api.problems import ErrorKind
from kruise_probe.api.reserved import ALLOWED_LABELS
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.manifests import Manifest, objects_in

Schema = dict[str, Any]

_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"),
    "integer": ("minimum", "maximum"),
    "port": ("minimum", "maximum"),
}


def all_crds(allowed_labels: Collection[str] = ()) -> list[Manifest]:
    return [marker_crd(allowed_labels), node_pod_probe_crd()]


def marker_crd(allowed_labels: Collection[str] = ()) -> Manifest:
    """The CRD of PodProbeMarkers. `allowed_labels` as the manager's --allowed-label-keys."""
    # As the chart's template formats it, as a part of a text of JSON.
    allowed = json.dumps(json.dumps(sorted(allowed_labels), separators=(",", ":")))[1:-1]
    schema = json.dumps(schema_of(shape_of(PodProbeMarker))).replace(ALLOWED_LABELS, allowed)
    return _crd("podprobemarkers", json.loads(schema))


def node_pod_probe_crd() -> Manifest:
    return _crd("nodepodprobes", schema_of(shape_of(NodePodProbe)))


def _crd(plural: str, schema: Schema) -> Manifest:
    """The definition in `PLURAL_crd.yaml`, with the fields of the schema."""
    (crd,) = objects_in(f"{plural}_crd")
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"] = {**schema["properties"], **root["properties"]}
    if required := [each for each in schema.get("required", ()) if each != "metadata"]:
        root["required"] = required
    return crd


_BY_SERVER: Final[dict[str, Schema]] = {
    "managedFields": {"type": "array", "items": {"type": "object"}},
    "deletionGracePeriodSeconds": {"type": "integer"},
    "selfLink": {"type": "string"},
}
"""Metadata that we do not read."""


@cache
def marker_json_schema() -> Schema:
    """The schema of a whole object, for editors and lint; unknown fields are errors."""
    metadata = schema_of(shape_of(ObjectMeta))
    crd = marker_crd()["spec"]
    root = crd["versions"][0]["schema"]["openAPIV3Schema"]
    properties = {
        **root["properties"],
        "apiVersion": {"type": "string", "enum": [MARKERS.api_version]},
        "kind": {"type": "string", "enum": [MARKERS.kind]},
        "metadata": {**metadata, "properties": {**metadata["properties"], **_BY_SERVER}},
    }
    required = ["apiVersion", "kind", "metadata", *root["required"]]
    schema = {**root, "properties": properties, "required": required}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": MARKERS.kind,
        **_closed(schema),
    }


def _closed(schema: Schema) -> Schema:
    """A copy without Kubernetes' extensions, in which objects have no other fields than their properties."""
    closed = {key: each for key, each in schema.items() if not key.startswith("x-kubernetes-")}
    if "properties" in schema:
        closed["properties"] = {key: _closed(each) for key, each in schema["properties"].items()}
        closed["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = _closed(schema["additionalProperties"])
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    return closed


def schema_of(shape: Shape) -> Schema:
    """The schema of a type; its rules may contain `reserved.ALLOWED_LABELS`."""
    field = shape.field
    schema: Schema = {"description": shape.text} if shape.text else {}
    if field.open:
        return {**schema, "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema |= _type_of(shape)
    for name, bound in zip(_BOUNDS.get(shape.kind, ()), (field.least, field.most), strict=False):
        if bound is not None:
            schema[name] = bound
    if field.values:
        schema["enum"] = [str(each) for each in field.values]
    if field.default is not None:
        schema["default"] = field.default
    rules = [each for each in field.rules if each.cel]
    if rules:
        schema["x-kubernetes-validations"] = [_rule(each) for each in rules]
    return {**schema, **field.schema}


def _type_of(shape: Shape) -> Schema:
    items = schema_of(shape.items) if shape.items else {}
    match shape.kind:
        case "object":
            properties = {each.name: schema_of(each) for each in shape.properties.values()}
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


def _rule(rule: Rule) -> Schema:
    schema = {"rule": rule.cel, "message": rule.message}
    if rule.item:
        schema["messageExpression"] = f"{rule.item} + {literal(rule.message)}"
    # Not of duplicates: the API server omits the message of such a rule.
    if rule.kind in (ErrorKind.REQUIRED, ErrorKind.FORBIDDEN):
        schema["reason"] = rule.kind.cause
    if rule.field:
        schema["fieldPath"] = f".{rule.field}"
    return schema
