"""Kruise's two CRDs: ours without our additions, and with a closed schema of NodePodProbe."""

from support.wire import Json

from kruise_probe.manifests.crds import marker_crd, node_pod_probe_crd

_ADDED_KEYS = frozenset(
    {
        "x-kubernetes-validations",
        "maxLength",
        "minLength",
        "maxItems",
        "minItems",
        "maxProperties",
        "minimum",
        "maximum",
        "pattern",
        "enum",
        "default",
        "description",
    }
)
_ADDED_FIELDS = {
    "status": {"conditions", "succeeded", "failed", "unknown", "nodesBehind"},
    "grpc": {"mode"},
    "markerPolicy": {"fromMessage"},
    "probes": {"whenTerminating", "whenStale", "extract", "successWhen"},
}
"""By the field that holds them."""


_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}


def kruise_crds() -> list[Json]:
    marker = _plain(marker_crd())
    node = _plain(node_pod_probe_crd())
    properties = _properties(node)
    properties["status"] = _NODE_STATUS
    probe_of_marker = _items(_properties(marker)["spec"]["properties"], "probes")
    entry = _items(properties["spec"]["properties"], "podProbes")
    _items(entry, "probes")["probe"] = probe_of_marker["probe"]
    return [marker, node]


def _items(properties: Json, field: str) -> Json:
    """The properties of the objects in a list."""
    found: Json = properties[field]["items"]["properties"]
    return found


def _properties(crd: Json) -> Json:
    (version,) = crd["spec"]["versions"]
    properties: Json = version["schema"]["openAPIV3Schema"]["properties"]
    return properties


def _list_of(required: Json, **more: Json) -> Json:
    item = {"type": "object", "required": sorted(required), "properties": {**required, **more}}
    return {"type": "array", "items": item}


_NODE_STATUS = {
    "type": "object",
    "properties": {
        "podProbeStatuses": _list_of(
            {"name": _TEXT, "namespace": _TEXT, "uid": _TEXT},
            probeStates=_list_of(
                {"name": _TEXT, "state": _TEXT},
                lastProbeTime=_TIME,
                lastTransitionTime=_TIME,
                message=_TEXT,
            ),
        )
    },
}


def _plain(crd: Json) -> Json:
    spec = crd["spec"]
    names = {key: spec["names"][key] for key in ("kind", "listKind", "plural", "singular")}
    (version,) = spec["versions"]
    root = _schema(version["schema"]["openAPIV3Schema"])
    root.pop("required", None)
    if "observedGeneration" in root["properties"]["status"].get("properties", ()):
        root["properties"]["status"]["required"] = ["observedGeneration"]
    served = {key: version[key] for key in ("name", "served", "storage", "subresources")}
    return {
        "apiVersion": crd["apiVersion"],
        "kind": crd["kind"],
        "metadata": {"name": crd["metadata"]["name"]},
        "spec": {
            **spec,
            "names": names,
            "versions": [{**served, "schema": {"openAPIV3Schema": root}}],
        },
    }


def _schema(schema: Json, field: str = "") -> Json:
    """That of `field`; the items of a list are in the list's field."""
    kept = {key: value for key, value in schema.items() if key not in _ADDED_KEYS}
    if "properties" in kept:
        kept["properties"] = {
            name: _schema(subschema, name)
            for name, subschema in kept["properties"].items()
            if name not in _ADDED_FIELDS.get(field, ())
        }
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _schema(kept[key], field)
    return kept
