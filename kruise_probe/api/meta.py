"""Names of objects and of servers (Go net.JoinHostPort), object metadata reduced to the fields that are read, and the cache
for equal parts of decoded objects.

All structs are frozen. Decoding drops unknown fields, so a decoded object is never written back whole; writes are
patches. A JSON null decodes as absent.

Source: apimachinery pkg/apis/meta/v1/types.go.
"""

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from kruise_probe.api.fields import Field

SHARED_PARTS: Final = 8192
"""Maximum entries of a cache for shared parts; about one entry per pod template."""

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All errors that decoding can raise. msgspec has no error of its own for invalid UTF-8 or for deep nesting."""

_K = TypeVar("_K")
_V = TypeVar("_V")


def share(cache: dict[_K, _V], key: _K, part: _V) -> _V:
    """Cache `part`. A full cache is cleared first, because an LRU's bookkeeping costs more than a decode.

    In Go, copied strings and slices share memory. Python values that are decoded separately do not.
    """
    if len(cache) >= SHARED_PARTS:
        cache.clear()
    cache[key] = part
    return part


class NamespacedName(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped one is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class HostPort(NamedTuple):
    """Host name or IP address, and port. An IPv6 address is printed in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Reference to an owner; the garbage collector deletes the object with its owner.

    At most one owner of an object has `controller`. A foreground deletion of the owner waits for objects with
    `block_owner_deletion`.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def is_node(self) -> bool:
        return self.kind == "Node" and self.api_version == "v1"


def with_node_owner(
    present: tuple[OwnerReference, ...], node: OwnerReference
) -> tuple[OwnerReference, ...] | None:
    """The owner references that make `node` the only Node among them; None if it already is."""
    nodes = [each for each in present if each.is_node]
    if [(each.name, each.uid) for each in nodes] == [(node.name, node.uid)]:
        return None
    return (*(each for each in present if each not in nodes), node)


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Object metadata. Times stay strings (see `times`); `generation` changes with the spec only."""

    name: str = ""
    generate_name: str | None = None
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
    """Base of all kinds that keep their full metadata; implements what informers need."""

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
        """Whether deletion was requested (finalizers may still delay it)."""
        return bool(self.metadata.deletion_timestamp)


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """metav1.Condition.

    Attributes:
        type: Name of the condition.
        status: Status of the condition.
        reason: Machine-readable reason for the status.
        message: Human-readable explanation with a remedy.
        last_transition_time: Time of the last change of status.
        observed_generation: Generation of the object that the condition is based on.
    """

    type: str
    status: Annotated[str, Field(values=("True", "False", "Unknown"))]
    reason: str = ""
    message: str = ""
    last_transition_time: Annotated[str | None, Field(schema={"format": "date-time"})] = None
    observed_generation: int | None = None
