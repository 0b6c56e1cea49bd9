"""JSON Schema of a PodProbeMarker, from the CRD's schema: for editors, and for the fields that lint knows.

Source: JSON Schema draft-07, which editors support; apimachinery pkg/apis/meta/v1 ObjectMeta.
Differs: without the CEL rules, which JSON Schema cannot express.
"""

from collections.abc import Collection
from typing import Any, Final

from kruise_probe.api.resources import MARKERS
from kruise_probe.manifests.crds import marker_crd
from kruise_probe.manifests.schema import (
    Schema,
    date_time,
    described,
    int64,
    list_of,
    map_of,
    record,
    text,
)

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"


def marker_json_schema(allowed_labels: Collection[str] = ()) -> dict[str, Any]:
    """The schema of a whole object; unknown fields are errors."""
    crd = marker_crd(allowed_labels)["spec"]
    kind = crd["names"]["kind"]
    root = crd["versions"][0]["schema"]["openAPIV3Schema"]
    properties = {
        **root["properties"],
        "apiVersion": text(enum=[MARKERS.api_version]),
        "kind": text(enum=[kind]),
        "metadata": _metadata(),
    }
    required = ["apiVersion", "kind", "metadata", *root["required"]]
    schema = described(root["description"], record(properties, required=required))
    return {"$schema": _DRAFT, "title": kind, **_closed(schema)}


def _metadata() -> Schema:
    return described(
        "Name, namespace, labels and annotations.",
        record(
            {
                "name": described("Name; unique in the namespace.", text()),
                "generateName": described("Prefix of a generated name.", text()),
                "namespace": described("Namespace of the marker and of its pods.", text()),
                "labels": described("Labels of the marker itself.", map_of(text())),
                "annotations": described("Annotations of the marker itself.", map_of(text())),
                "finalizers": list_of(text()),
                "ownerReferences": list_of({"type": "object"}),
                "managedFields": list_of({"type": "object"}),
                "uid": text(),
                "resourceVersion": text(),
                "generation": int64(),
                "creationTimestamp": date_time(),
                "deletionTimestamp": date_time(),
                "deletionGracePeriodSeconds": int64(),
                "selfLink": text(),
            }
        ),
    )


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
