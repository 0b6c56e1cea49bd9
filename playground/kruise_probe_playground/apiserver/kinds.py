"""A kind of object, and the rules by which one kind differs from another.

Source: apiserver pkg/registry/rest (strategies), apiextensions/v1 CustomResourceDefinitionSpec.
Differs: one version per kind.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kruise_probe.api.meta import NamespacedName
from kruise_probe_playground.apiserver.failures import Cause, FailureTarget
from kruise_probe_playground.apiserver.schema import Json, Schema, listed, put, value_at
from kruise_probe_playground.apiserver.store import Stored
from kruise_probe_playground.apiserver.tables import Column

ALL_VERBS: Final = (
    "create",
    "delete",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)

SUBRESOURCE_VERBS: Final[Mapping[str, Sequence[str]]] = {
    "status": ("get", "patch", "update"),
    "binding": ("create",),
    "log": ("get",),
    "exec": ("create", "get"),
    "portforward": ("create", "get"),
    "scale": ("get", "patch", "update"),
}

_encoder = msgspec.json.Encoder()


class Rules:
    """How objects of a kind are written. This base class fits most built-in kinds.

    Methods change `new` in place and depend on their arguments only.
    """

    def default(self, new: Json) -> None:
        """Set defaults that the schema cannot express."""

    def reset_for_create(self, new: Json) -> None:
        """Remove what a create may not set: the status."""
        new.pop("status", None)

    def prepare_for_create(self, new: Json) -> None:
        """Set fields that the server sets. They have no field manager."""

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        """Restore what this endpoint may not write: the status, or everything but the status."""
        restored = "spec" if subresource == "status" else "status"
        put(new, restored, old.get(restored))

    def prepare_for_update(self, new: Json, old: Json) -> None:
        """Set fields that the server sets."""

    def validate(self, new: Json) -> Sequence[Cause]:
        """Return the errors of a new object."""
        return ()

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        """Return the errors of an update; metadata is checked elsewhere."""
        return self.validate(new)

    def terminate(self, new: Json) -> bool:
        """Mark an object as terminating, if other objects are deleted before it; False for other kinds."""
        return False

    def grace_seconds(
        self,
        stored: Json,
        requested: int | None,
    ) -> int | None:
        """The grace period of a deletion; None for a kind that is deleted at once."""
        return None


def fields(*paths: str) -> Callable[[Json], Mapping[str, str]]:
    """Return the function that reads the fields at these dotted paths, for field selectors."""
    split = [(path, path.split(".")) for path in paths]
    return lambda of: {path: value_at(of, parts) or "" for path, parts in split}


NO_FIELDS: Final = fields()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of object that the server serves.

    Attributes:
        has_generation: the generation counts changes outside metadata and status.
        blank: an object with no field set. Managed fields of a new object are the difference to it.
        select_fields: the values of the fields that field selectors support, besides name and namespace.
        custom: defined by a CustomResourceDefinition.
        returns_deleted: the response to an immediate deletion is the object, not a Status.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    schema: Schema
    openapi: Json
    columns: Sequence[Column]
    rules: Rules
    short_names: Sequence[str] = ()
    subresources: Sequence[str] = ()
    custom: bool = False
    has_generation: bool = False
    unconditional_update: bool = True
    returns_deleted: bool = False
    verbs: Sequence[str] = ALL_VERBS
    blank: Json = field(default_factory=dict)
    select_fields: Callable[[Json], Mapping[str, str]] = NO_FIELDS

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """E.g. `apis/apps.kruise.io/v1alpha1`."""
        return f"{'apis' if self.group else 'api'}/{self.api_version}"

    @property
    def resource(self) -> str:
        """E.g. `podprobemarkers.apps.kruise.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def known_fields(self) -> Set[str]:
        return self.select_fields({}).keys() | {"metadata.name", "metadata.namespace"}

    def counted(self, of: Json) -> Json:
        """The parts of an object whose changes its generation counts."""
        ignored = ("metadata", "status") if "status" in self.subresources else ("metadata",)
        return {key: value for key, value in of.items() if key not in ignored}

    def target(self, name: str = "") -> FailureTarget:
        return FailureTarget(self.group, self.plural, self.kind, name)

    def whole(self, stored: Stored) -> bytes:
        """The JSON of a single object. Items of lists of built-in kinds omit kind and apiVersion."""
        if self.custom:
            return stored.body
        head = f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'
        return head.encode() + stored.body[1:]

    def decode(self, stored: Stored) -> Json:
        """A new copy, which the caller may change."""
        decoded: Json = msgspec.json.decode(stored.body)
        return {"kind": self.kind, "apiVersion": self.api_version, **decoded}

    def encode(self, new: Json, revision: int) -> Stored:
        """Set the resource version and encode the object."""
        metadata = new["metadata"]
        metadata["resourceVersion"] = str(revision)
        omitted = () if self.custom else ("kind", "apiVersion")
        body = _encoder.encode({key: value for key, value in new.items() if key not in omitted})
        key = NamespacedName(metadata.get("namespace") or "", metadata["name"])
        selectable = {
            "metadata.name": key.name,
            "metadata.namespace": key.namespace,
            **self.select_fields(new),
        }
        return Stored(
            key,
            metadata["uid"],
            revision,
            body,
            metadata.get("labels") or {},
            selectable,
            tuple(reference["uid"] for reference in listed(metadata, "ownerReferences")),
            "deletionTimestamp" in metadata,
        )
