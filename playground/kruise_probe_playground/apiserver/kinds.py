"""A kind of object, and the rules by which one kind differs from another.

Source: apiserver pkg/registry/rest (strategies), apiextensions/v1 CustomResourceDefinitionSpec.
Differs: one version per kind.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe_playground.apiserver.columns import Column
from kruise_probe_playground.apiserver.failures import Cause, Target
from kruise_probe_playground.apiserver.schema import Json, Schema
from kruise_probe_playground.apiserver.store import Stored

READ_VERBS: Final = ("get", "list", "watch")
ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)

SUBRESOURCE_VERBS: Final[Mapping[str, Sequence[str]]] = {
    "status": ("get", "patch", "update"),
    "finalize": ("update",),
    "binding": ("create",),
    "log": ("get",),
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
        """Remove fields that a create may not set."""

    def prepare_for_create(self, new: Json) -> None:
        """Set fields that the server sets. They have no field manager."""

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        """Restore what this endpoint may not write: the status, or everything but the status."""
        if subresource == "status":
            _restore(new, old, "spec")
        else:
            _restore(new, old, "status")

    def prepare_for_update(self, new: Json, old: Json) -> None:
        """Set fields that the server sets, such as the generation."""

    def validate(self, new: Json) -> Sequence[Cause]:
        """Return the errors of a new object."""
        return ()

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        """Return the errors of an update; metadata is checked elsewhere."""
        return ()

    def warnings(self, new: Json) -> Sequence[str]:
        """Return what the client should know about a new object that is accepted."""
        return ()

    def companions(self, new: Json) -> Sequence[tuple[str, Json]]:
        """Return the resource and the object of each object that a controller creates beside a new one."""
        return ()

    def terminate(self, new: Json, now: datetime) -> bool:
        """Mark an object whose contents are deleted before itself; False for kinds without contents."""
        return False

    def grace_seconds(self, stored: Json, requested: int | None) -> int | None:
        """The grace period of a deletion; None for a kind that is deleted at once."""
        return None


def _restore(new: Json, old: Json, part: str) -> None:
    if part in old:
        new[part] = old[part]
    else:
        new.pop(part, None)


def no_fields(_: Json) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of object that the server serves.

    Attributes:
        blank: an object with no field set. Managed fields of a new object are the difference to it.
        select_fields: the values of the fields that field selectors support, besides name and namespace.
        custom: defined by a CustomResourceDefinition.
        returns_deleted: the response to an immediate deletion is the object, not a Status.
        dns_label_name: names are DNS labels, not subdomains.
        plain_finalizers: finalizers need no domain.
        metadata_last: the metadata of a new object is validated only if the rest is valid.
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
    list_kind: str = ""
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresources: Sequence[str] = ()
    custom: bool = False
    has_generation: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    dns_label_name: bool = False
    plain_finalizers: bool = False
    metadata_last: bool = False
    verbs: Sequence[str] = ALL_VERBS
    blank: Json = field(default_factory=dict)
    select_fields: Callable[[Json], Mapping[str, str]] = no_fields

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """E.g. `podprobemarkers.apps.kruise.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def known_fields(self) -> Set[str]:
        return self.select_fields({}).keys() | {"metadata.name", "metadata.namespace"}

    @property
    def list_name(self) -> str:
        return self.list_kind or f"{self.kind}List"

    def target(self, name: str = "") -> Target:
        return Target(self.group, self.plural, self.kind, name)

    @property
    def head(self) -> bytes:
        """Kind and apiVersion of a single object; items of lists of built-in kinds omit them."""
        return (
            b""
            if self.custom
            else f'"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()
        )

    def whole(self, stored: Stored) -> bytes:
        """The JSON of a single object."""
        return b"{" + self.head + stored.body[1:]

    def decode(self, stored: Stored) -> Json:
        """A new copy, which the caller may change."""
        decoded: Json = msgspec.json.decode(stored.body)
        return {"kind": self.kind, "apiVersion": self.api_version, **decoded}

    def encode(self, new: Json, revision: int) -> Stored:
        """Set the resource version and encode the object. Revision 0 sets none: the object is not stored."""
        metadata = new["metadata"]
        if revision:
            metadata["resourceVersion"] = str(revision)
        if self.custom:
            body = _encoder.encode(new)
        else:
            parts = {key: each for key, each in new.items() if key not in ("kind", "apiVersion")}
            body = _encoder.encode(parts)
        key = NamespacedName(metadata.get("namespace") or "", metadata["name"])
        fields = {
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
            fields,
            tuple(each["uid"] for each in metadata.get("ownerReferences") or ()),
            "deletionTimestamp" in metadata,
        )
