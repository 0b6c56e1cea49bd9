"""Kinds that CustomResourceDefinitions define.

Source: apiextensions-apiserver pkg/registry/customresource (strategy, status_strategy), pkg/apiserver.
Differs: the storage version only; rules that a schema cannot say come as functions instead of CEL.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kruise_probe.playground.apiserver import builtin
from kruise_probe.playground.apiserver.columns import Column
from kruise_probe.playground.apiserver.failures import Cause, invalid_value
from kruise_probe.playground.apiserver.json_paths import cell_of
from kruise_probe.playground.apiserver.kinds import Kind, Rules
from kruise_probe.playground.apiserver.printers import NAME
from kruise_probe.playground.apiserver.schema import UNTYPED, Compiler, Json, Schema
from kruise_probe.playground.apiserver.validation import validate

Validator = Callable[[Json, Json | None], Sequence[Cause]]
"""Takes the new object and the stored one (None on creation) and tells what is wrong."""

_NO_TIME = datetime.min.replace(tzinfo=UTC)


class CustomRules(Rules):
    """Status apart, generation by anything but metadata and status, validation by schema, then by rules."""

    def __init__(
        self,
        schema: Schema,
        api_version: str,
        kind: str,
        validator: Validator | None,
        *,
        has_status: bool,
    ) -> None:
        self._schema = schema
        self._api_version = api_version
        self._kind = kind
        self._validator = validator
        self._has_status = has_status

    def reset_for_create(self, new: Json) -> None:
        if self._has_status:
            new.pop("status", None)

    def prepare_for_create(self, new: Json) -> None:
        new["metadata"]["generation"] = 1

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        if subresource == "status":
            status = new.get("status")
            new.clear()
            new.update({key: each for key, each in old.items() if key != "status"})
            new["metadata"] = dict(old["metadata"])
            if status is not None:
                new["status"] = status
        elif self._has_status:
            super().reset_for_update(new, old, subresource)

    def prepare_for_update(self, new: Json, old: Json) -> None:
        if self._counted(new) != self._counted(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _counted(self, of: Json) -> Json:
        ignored = ("metadata", "status") if self._has_status else ("metadata",)
        return {key: each for key, each in of.items() if key not in ignored}

    def validate(self, new: Json) -> Sequence[Cause]:
        return self._problems(new, None)

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        return self._problems(new, old)

    def _problems(self, new: Json, old: Json | None) -> Sequence[Cause]:
        if new.get("kind") != self._kind:
            return [invalid_value("kind", new.get("kind"), f"must be {self._kind}")]
        if new.get("apiVersion") != self._api_version:
            sent = new.get("apiVersion")
            return [invalid_value("apiVersion", sent, f"must be {self._api_version}")]
        found = list(validate(new, self._schema, ""))
        if not found and self._validator is not None:
            found += self._validator(new, old)
        return found


def custom_kind(crd: Json, validator: Validator | None = None) -> Kind:
    """The kind that a CustomResourceDefinition (v1) defines.

    Raises:
        ValueError: no version of it is served and stored.
    """
    spec = crd["spec"]
    names, version = spec["names"], _stored_version(crd)
    openapi: Json = version["schema"]["openAPIV3Schema"]
    schema = Compiler().compile(openapi)
    schema.properties["metadata"] = builtin.object_meta()
    for key in ("apiVersion", "kind"):
        schema.properties.setdefault(key, UNTYPED)
    has_status = "status" in version.get("subresources", {})
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        kind=names["kind"],
        list_kind=names.get("listKind") or "",
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=("status",) if has_status else (),
        schema=schema,
        openapi=openapi,
        columns=_columns(version),
        rules=CustomRules(
            schema,
            f"{spec['group']}/{version['name']}",
            names["kind"],
            validator,
            has_status=has_status,
        ),
        custom=True,
        has_generation=True,
        unconditional_update=False,
        select_fields=_select_fields(version),
        selectable=frozenset(_selectable(version)),
    )


def _stored_version(crd: Json) -> Json:
    for version in crd["spec"]["versions"]:
        if version.get("served") and version.get("storage"):
            stored: Json = version
            return stored
    raise ValueError(f"{crd['metadata']['name']}: no version is both served and stored")


def _columns(version: Json) -> Sequence[Column]:
    declared = version.get("additionalPrinterColumns") or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    ]
    return (
        NAME,
        *(
            Column(
                name=each["name"],
                type=each["type"],
                cell=cell_of(each["jsonPath"], each["type"]),
                wide=each.get("priority", 0) > 0,
                format=each.get("format", ""),
                description=each.get("description", ""),
            )
            for each in declared
        ),
    )


def _selectable(version: Json) -> list[str]:
    return [each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()]


def _select_fields(version: Json) -> Callable[[Json], Mapping[str, str]]:
    cells = {name: cell_of(f".{name}", "string") for name in _selectable(version)}

    def select(new: Json) -> Mapping[str, str]:
        return {name: _text(cell(new, _NO_TIME)) for name, cell in cells.items()}

    return select


def _text(value: Any) -> str:
    return "" if value is None else str(value)
