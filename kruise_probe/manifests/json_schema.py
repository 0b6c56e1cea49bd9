"""JSON Schema of a PodProbeMarker, from the CRD's schema: for editors, and for the fields that lint knows.

Source: JSON Schema draft-07, which editors support; apimachinery pkg/apis/meta/v1 ObjectMeta.
Differs: without the CEL rules, which JSON Schema cannot express.
"""

from collections.abc import Collection
from typing import Any, Final

from kruise_probe.api.fields import shape_of
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.api.resources import MARKERS
from kruise_probe.manifests.crds import marker_crd
from kruise_probe.manifests.schema import Schema, schema_of

_BY_SERVER: Final[dict[str, Schema]] = {
    "managedFields": {"type": "array", "items": {"type": "object"}},
    "deletionGracePeriodSeconds": {"type": "integer"},
    "selfLink": {"type": "string"},
}
"""Metadata that we do not read."""


def marker_json_schema(allowed_labels: Collection[str] = ()) -> dict[str, Any]:
    """The schema of a whole object; unknown fields are errors."""
    metadata = schema_of(shape_of(ObjectMeta))
    crd = marker_crd(allowed_labels)["spec"]
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
