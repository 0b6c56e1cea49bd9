"""Metadata that every object has, trimmed to what is read.

All structs are frozen views of the wire: unknown fields are dropped on decode, so a decoded object is
never written back whole; writes are patches. A JSON null reads as absent.

Source: apimachinery pkg/apis/meta/v1/types.go.
"""

from collections.abc import Mapping

import msgspec

from kruise_probe.api.keys import NamespacedName


class OwnerReference(msgspec.Struct, frozen=True, rename={"api_version": "apiVersion"}, gc=False):
    """Names the object whose end is this object's end."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def is_node(self) -> bool:
        return self.kind == "Node" and self.api_version == "v1"


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Stamps stay strings (see `times`); `generation` moves with the spec only."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class ApiObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every kind whose metadata is kept whole; gives what informers need of any object."""

    metadata: ObjectMeta

    @property
    def key(self) -> NamespacedName:
        return NamespacedName(self.metadata.namespace or "", self.metadata.name)

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version

    @property
    def deleting(self) -> bool:
        """True once somebody asked for its deletion (finalizers may still hold it)."""
        return bool(self.metadata.deletion_timestamp)


class LabelSelectorRequirement(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False
):
    """`operator` is In, NotIn, Exists or DoesNotExist; anything else makes the selector invalid."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """metav1.LabelSelector; `selectors.compile_selector` turns it into a predicate."""

    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
