"""The two CustomResourceDefinitions, and the JSON Schema of a PodProbeMarker.

`hack/gen_config.py` writes the schemas in the YAML files from the declarations of `api.v1alpha1`. Field names are Kruise's.
Additions: bounds, defaults of httpGet, CEL rules, short names, categories, printer columns and status fields.

Source: openkruise/kruise config/crd/bases; apiextensions/v1 JSONSchemaProps; apimachinery pkg/apis/meta/v1 TypeMeta and
ObjectMeta; JSON Schema draft-07, which editors support.
Differs: the additions above. The JSON Schema is without the CEL rules, which it cannot express. Absent numbers get no
default, as Kruise's defaults differ from those of core/v1.
"""

import json
from collections.abc import Collection
from functools import cache
from typing import Any

from kruise_probe.api.reserved import ALLOWED_LABELS
from kruise_probe.api.resources import MARKERS
from kruise_probe.manifests import Manifest, read_yaml

Schema = dict[str, Any]


def all_crds(allowed_labels: Collection[str] = ()) -> list[Manifest]:
    return [marker_crd(allowed_labels), node_pod_probe_crd()]


def marker_crd(allowed_labels: Collection[str] = ()) -> Manifest:
    """The CRD of PodProbeMarkers. `allowed_labels` as the manager's --allowed-label-keys."""
    keys = json.dumps(
        sorted(allowed_labels),
        separators=(",", ":"),
    )
    # As the chart's template formats it, as a part of a text of JSON.
    escaped = json.dumps(keys)[1:-1]
    (crd,) = read_yaml("podprobemarkers_crd")
    definition: Manifest = json.loads(json.dumps(crd).replace(ALLOWED_LABELS, escaped))
    return definition


def node_pod_probe_crd() -> Manifest:
    (crd,) = read_yaml("nodepodprobes_crd")
    return crd


@cache
def marker_json_schema() -> Schema:
    """The schema of a whole object, for editors and lint; unknown fields are errors."""
    version = marker_crd()["spec"]["versions"][0]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    (metadata,) = read_yaml("metadata_schema")
    schema["properties"] |= {
        "apiVersion": {"type": "string", "enum": [MARKERS.api_version]},
        "kind": {"type": "string", "enum": [MARKERS.kind]},
        "metadata": metadata,
    }
    schema["required"] = [
        "apiVersion",
        "kind",
        "metadata",
        *schema["required"],
    ]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": MARKERS.kind,
        **_closed(schema),
    }


def _closed(schema: Schema) -> Schema:
    """A copy without Kubernetes' extensions, in which objects have no other fields than their properties."""
    closed = {key: part for key, part in schema.items() if not key.startswith("x-kubernetes-")}
    if "properties" in schema:
        properties = schema["properties"].items()
        closed["properties"] = {name: _closed(field) for name, field in properties}
        closed["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            closed[key] = _closed(schema[key])
    return closed
