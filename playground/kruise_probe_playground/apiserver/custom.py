"""Kinds that CustomResourceDefinitions define.

Source: apiextensions-apiserver pkg/registry/customresource (strategy, status_strategy), pkg/apiserver.
Differs: only the storage version is served; functions replace CEL.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kruise_probe_playground.apiserver import builtin
from kruise_probe_playground.apiserver.failures import Cause, invalid_value
from kruise_probe_playground.apiserver.kinds import Kind, Rules
from kruise_probe_playground.apiserver.schema import UNTYPED, Compiler, Json, Schema, put
from kruise_probe_playground.apiserver.shaping import apply_defaults
from kruise_probe_playground.apiserver.tables import NAME, Column, cell_of
from kruise_probe_playground.apiserver.validation import validate

Validator = Callable[[Json, Json | None], Sequence[Cause]]
"""Returns the errors of a new object. The second argument is the stored object, or None for a create."""


@dataclass(frozen=True)
class CustomRules(Rules):
    """Validation by schema, then by `validator`; a write of the status changes nothing else."""

    schema: Schema
    api_version: str
    kind: str
    validator: Validator | None

    def prepare_for_create(self, new: Json) -> None:
        """Set the default of the status, which `reset_for_create` removed."""
        apply_defaults(new, self.schema)

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        if subresource == "status":
            status = new.get("status")
            new.clear()
            new.update(
                {
                    **old,
                    "metadata": dict(old["metadata"]),
                }
            )
            put(new, "status", status)
        else:
            super().reset_for_update(new, old, subresource)

    def validate(self, new: Json) -> Sequence[Cause]:
        return self.validate_update(new, None)

    def validate_update(
        self,
        new: Json,
        old: Json | None,
    ) -> Sequence[Cause]:
        if new.get("kind") != self.kind:
            return [
                invalid_value(
                    "kind",
                    new.get("kind"),
                    f"must be {self.kind}",
                )
            ]
        if new.get("apiVersion") != self.api_version:
            sent = new.get("apiVersion")
            return [
                invalid_value(
                    "apiVersion",
                    sent,
                    f"must be {self.api_version}",
                )
            ]
        found = list(validate(new, self.schema, ""))
        blocked = any(cause.reason in _BLOCKING for cause in found)
        if self.validator is not None and not blocked:
            reported = {cause.field for cause in found}
            found += [cause for cause in self.validator(new, old) if cause.field not in reported]
        return found


_BLOCKING: Final = frozenset(
    f"FieldValue{name}"
    for name in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)
"""Reasons of errors after which the real server does not evaluate CEL."""


def custom_kind(crd: Json, validator: Validator | None = None) -> Kind:
    """The kind that a CustomResourceDefinition (v1) defines, with one version and the subresource status."""
    spec = crd["spec"]
    names = spec["names"]
    (version,) = spec["versions"]
    openapi: Json = version["schema"]["openAPIV3Schema"]
    schema = Compiler().compile(openapi)
    schema.properties["metadata"] = builtin.object_meta()
    for key in ("apiVersion", "kind"):
        schema.properties.setdefault(key, UNTYPED)
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        singular=names["singular"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        subresources=("status",),
        schema=schema,
        openapi=openapi,
        columns=(NAME, *map(_column, version.get("additionalPrinterColumns", ()))),
        rules=CustomRules(
            schema,
            f"{spec['group']}/{version['name']}",
            names["kind"],
            validator,
        ),
        custom=True,
        has_generation=True,
        unconditional_update=False,
    )


def _column(declared: Json) -> Column:
    return Column(
        declared["name"], cell_of(declared["jsonPath"], declared["type"]), declared["type"]
    )
