"""CustomResourceDefinitions for tests: from files, dictionaries or msgspec structs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import yaml

from kruise_probe.api.declared import resource_of
from kruise_probe.api.kinds import KubeObject
from kruise_probe_playground.apiserver.schema import Json

DefinitionSource = Json | Path | str | type[msgspec.Struct]
"""Defines kinds: a CustomResourceDefinition, a file or folder of YAML, or a struct with `spec` and perhaps `status`."""

_KIND: Final = "CustomResourceDefinition"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_KEPT: Final = frozenset(
    {
        "type",
        "format",
        "properties",
        "required",
        "items",
        "enum",
        "default",
        "description",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "pattern",
    }
)


def read_definitions(source: DefinitionSource) -> Iterator[Json]:
    """Yield the CustomResourceDefinitions of a source; other objects of a file are skipped.

    Raises:
        OSError: a file cannot be read.
        ValueError: it contains no CustomResourceDefinition, or the struct has no group.
    """
    if isinstance(source, dict):
        yield source
    elif isinstance(source, type):
        yield _declared(source) or definition_of(source)
    else:
        found = [each for path in _files(Path(source)) for each in _in_file(path)]
        if not found:
            raise ValueError(f"{source}: contains no {_KIND}")
        yield from found


def _declared(struct: type[msgspec.Struct]) -> Json | None:
    """The definition of a struct that `kruise_probe.runtime.kind` declares, with the names that it gives."""
    try:
        resource = resource_of(cast(type[KubeObject], struct))
    except LookupError:
        return None
    return definition_of(
        struct,
        group=resource.group,
        version=resource.version,
        kind=resource.kind,
        plural=resource.plural,
        namespaced=resource.namespaced,
    )


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)


def _in_file(path: Path) -> Iterator[Json]:
    for document in yaml.safe_load_all(path.read_text()):
        if isinstance(document, dict) and document.get("kind") == _KIND:
            yield document


def definition_of(
    struct: type[msgspec.Struct],
    *,
    group: str = "",
    version: str = "v1",
    kind: str = "",
    plural: str = "",
    namespaced: bool = True,
) -> Json:
    """A CustomResourceDefinition with the schema of a struct.

    Args:
        struct: has the fields `spec` and perhaps `status`, whose types become the schema; a status is a subresource.
            Without them everything is accepted.
        group: e.g. `example.com`; by default the struct's attribute `group`.
        version: the only version; by default the struct's attribute `version`, then v1.
        kind: by default the name of the struct.
        plural: by default the kind in lower case with an s.
        namespaced: False for cluster-scoped kinds.
    """
    group = group or getattr(struct, "group", "")
    if not isinstance(group, str) or not group:
        raise ValueError(
            f"{struct.__name__} has no group; use definition_of({struct.__name__}, group=…)"
        )
    kind = kind or struct.__name__
    plural = plural or f"{kind.lower()}s"
    fields = {each.encode_name: each for each in msgspec.structs.fields(struct)}
    properties = {name: _schema(fields[name].type) for name in ("spec", "status") if name in fields}
    schema: Json = {"type": "object", "properties": properties}
    if not properties:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": _KIND,
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": plural, "kind": kind},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}} if "status" in properties else {},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _schema(of: Any) -> Json:
    (schema,), components = msgspec.json.schema_components([of], ref_template="{name}")
    return _structural(schema, components)


def _structural(schema: Json, components: Json) -> Json:
    """Replace references and unions, which a structural schema cannot have."""
    if "$ref" in schema:
        return _structural(components[schema["$ref"]], components)
    choices = schema.get("anyOf", ())
    values = [each for each in choices if each.get("type") != "null"]
    if len(values) == 1:
        return {**_structural(values[0], components), "nullable": True}
    if choices or "type" not in schema:
        return {"x-kubernetes-preserve-unknown-fields": True}
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if kept.get("default", ...) is None:
        del kept["default"]
    if "properties" in kept:
        kept["properties"] = {
            name: _structural(each, components) for name, each in kept["properties"].items()
        }
    if isinstance(kept.get("items"), dict):
        kept["items"] = _structural(kept["items"], components)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict) and not kept.get("properties"):
        kept["additionalProperties"] = _structural(additional, components)
    elif kept["type"] == "object" and not kept.get("properties"):
        kept["x-kubernetes-preserve-unknown-fields"] = True
    if kept["type"] == "array" and not kept.get("items"):
        kept["items"] = {"x-kubernetes-preserve-unknown-fields": True}
    return kept
