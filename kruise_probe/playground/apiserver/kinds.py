"""What the server knows of a kind of object, and the hooks by which one kind differs from another.

Source: apiserver pkg/registry/rest (strategies), apiextensions/v1 CustomResourceDefinitionSpec.
Differs: one version per kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.playground.apiserver.columns import Column
from kruise_probe.playground.apiserver.failures import Cause, Target
from kruise_probe.playground.apiserver.schema import Json, Schema
from kruise_probe.playground.apiserver.store import Stored

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

_encoder = msgspec.json.Encoder()


class Rules:
    """How objects of a kind are written; this base is right for most built-in kinds.

    Every method takes plain objects and changes `new` in place; none looks anywhere else.
    """

    def default(self, new: Json) -> None:
        """Fills what the schema's own defaults cannot say."""

    def reset_for_create(self, new: Json) -> None:
        """Drops what a creation may not set."""

    def prepare_for_create(self, new: Json) -> None:
        """Sets what the server itself sets; nobody manages these fields."""

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        """Restores what this endpoint may not write: status on the object, the rest on its status."""
        if subresource == "status":
            _restore(new, old, "spec")
        else:
            _restore(new, old, "status")

    def prepare_for_update(self, new: Json, old: Json) -> None:
        """Sets what the server itself sets, the generation first of all."""

    def validate(self, new: Json) -> Sequence[Cause]:
        """What is wrong with an object to be created."""
        return ()

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        """What is wrong with an update, beyond what is wrong with metadata."""
        return ()

    def grace_seconds(self, stored: Json, requested: int | None) -> int | None:
        """How long a deletion waits; None for a kind that is deleted at once."""
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
        blank: what an object without any field set looks like, for managed fields.
        select_fields: further fields that field selectors may name, with an object's values.
        custom: defined by a CustomResourceDefinition.
        returns_deleted: an immediate deletion answers the object, not a Status.
        dns_label_name: names are DNS labels, not subdomains.
        verbs: what can be done with its objects.
        description: for `kubectl explain`.
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
    verbs: Sequence[str] = ALL_VERBS
    blank: Json = field(default_factory=dict)
    selectable: frozenset[str] = frozenset()
    select_fields: Callable[[Json], Mapping[str, str]] = no_fields

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """E.g. `podprobemarkers.apps.kruise.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def known_fields(self) -> frozenset[str]:
        return self.selectable | {"metadata.name", "metadata.namespace"}

    @property
    def list_name(self) -> str:
        return self.list_kind or f"{self.kind}List"

    def target(self, name: str = "") -> Target:
        return Target(self.group, self.plural, self.kind, name)

    @property
    def head(self) -> bytes:
        """What precedes the fields of an object where it stands alone; lists of built-in kinds omit it."""
        return (
            b""
            if self.custom
            else f'"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()
        )

    def whole(self, stored: Stored) -> bytes:
        """The object's JSON where it stands alone."""
        return b"{" + self.head + stored.body[1:]

    def decode(self, stored: Stored) -> Json:
        """A fresh copy; change it as you like."""
        decoded: Json = msgspec.json.decode(stored.body)
        return {"kind": self.kind, "apiVersion": self.api_version, **decoded}

    def encode(self, new: Json, revision: int) -> Stored:
        """Stamps the revision (0: of an object that is not stored, and so has none) and freezes the object."""
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
