"""Kruise's two CRDs: ours without our additions."""

from typing import Any

from kruise_probe.manifests.crds import marker_crd, node_pod_probe_crd

Json = dict[str, Any]

_ADDED_KEYS = frozenset(
    {
        "x-kubernetes-validations", "maxLength", "minLength", "maxItems", "minItems", "maxProperties",
        "minimum", "maximum", "pattern", "enum", "default", "description",
    }
)  # fmt: skip
_ADDED_FIELDS = {
    "status": {"conditions", "succeeded", "failed", "unknown", "nodesBehind"},
    "probeStates": {"containerID", "probeHash"},
    "grpc": {"mode"},
}
"""By the field that holds them."""


def kruise_crds() -> list[Json]:
    return [_plain(marker_crd()), _plain(node_pod_probe_crd())]


def _plain(crd: Json) -> Json:
    spec = crd["spec"]
    names = {key: spec["names"][key] for key in ("kind", "listKind", "plural", "singular")}
    (version,) = spec["versions"]
    root = _schema(version["schema"]["openAPIV3Schema"])
    root.pop("required", None)
    if "observedGeneration" in root["properties"]["status"]["properties"]:
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
    kept = {key: each for key, each in schema.items() if key not in _ADDED_KEYS}
    if "properties" in kept:
        kept["properties"] = {
            name: _schema(each, name)
            for name, each in kept["properties"].items()
            if name not in _ADDED_FIELDS.get(field, ())
        }
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _schema(kept[key], field)
    return kept
