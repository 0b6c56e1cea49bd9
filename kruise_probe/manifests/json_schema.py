"""JSON Schema of a PodProbeMarker, from the CRD's schema: for editors, and for the fields that lint knows.

Source: JSON Schema draft-07, which editors support; apimachinery pkg/apis/meta/v1 ObjectMeta.
Differs: without the CEL rules, which JSON Schema cannot express.
"""

from collections.abc import Collection
from typing import Any

from kruise_probe.api.resources import MARKERS
from kruise_probe.manifests.crds import marker_crd
from kruise_probe.manifests.schema import Schema


def marker_json_schema(allowed_labels: Collection[str] = ()) -> dict[str, Any]:
    """The schema of a whole object; unknown fields are errors."""
    crd = marker_crd(allowed_labels)["spec"]
    root = crd["versions"][0]["schema"]["openAPIV3Schema"]
    properties = {
        **root["properties"],
        "apiVersion": {"type": "string", "enum": [MARKERS.api_version]},
        "kind": {"type": "string", "enum": [MARKERS.kind]},
        "metadata": _metadata(),
    }
    required = ["apiVersion", "kind", "metadata", *root["required"]]
    schema = {**root, "properties": properties, "required": required}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": MARKERS.kind,
        **_closed(schema),
    }


def _metadata() -> Schema:
    text = {"type": "string"}
    texts = {
        "name": "Name; unique in the namespace.",
        "generateName": "Prefix of a generated name.",
        "namespace": "Namespace of the marker and of its pods.",
    }
    maps = {
        "labels": "Labels of the marker itself.",
        "annotations": "Annotations of the marker itself.",
    }
    by_server: dict[str, Schema] = {
        "finalizers": {"type": "array", "items": text},
        **{
            name: {"type": "array", "items": {"type": "object"}}
            for name in ("ownerReferences", "managedFields")
        },
        **{name: {"type": "integer"} for name in ("generation", "deletionGracePeriodSeconds")},
        **dict.fromkeys(
            ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "selfLink"), text
        ),
    }
    return {
        "description": "Name, namespace, labels and annotations.",
        "type": "object",
        "properties": {
            **{name: {"description": meaning, **text} for name, meaning in texts.items()},
            **{
                name: {"description": meaning, "type": "object", "additionalProperties": text}
                for name, meaning in maps.items()
            },
            **by_server,
        },
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
