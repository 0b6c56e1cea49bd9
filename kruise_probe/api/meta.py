"""Objects of the API server: their names, metadata and conditions, and their kinds with REST path, decoders, list pages and
watch events. It knows no particular kind. Also names of servers (Go net.JoinHostPort).

All structs are frozen. Decoding drops unknown fields, so a decoded object is never written back whole; writes are
patches. A JSON null decodes as absent. The items of a list are decoded one by one, in steps. So an invalid object causes an
error for itself only, and a page of large objects does not block the event loop. The same is true of one that is nested too deeply for the interpreter: the API server
stores 10,000 levels, for example in `managedFields`.

Source: apimachinery pkg/apis/meta/v1/types.go and watch.go (WatchEvent), pkg/watch.
Differs: there is no ERROR event; the client raises it as a typed error.
"""

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import coroutine
from typing import Annotated, Any, Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from kruise_probe.api.fields import Field
from kruise_probe.api.structs import Wire

MAX_DEPTH: Final = 100
"""Values that are nested more deeply are left out if a decoder refuses the whole. Ours have less than twenty levels."""

_STRING_OR_BRACKET: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)

BYTES_PER_STEP: Final = 256 * 1024
"""Bytes of items that a step decodes: up to 10 ms."""

TOKENS_PER_STEP: Final = 16 * 1024
"""Strings and brackets that a step of `without_depth` reads: up to 10 ms."""

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All errors that decoding can raise. msgspec has no error of its own for invalid UTF-8 or for deep nesting."""

_V = TypeVar("_V")


Encoded = bytes | msgspec.Raw


@coroutine
def run_steps(steps: Generator[None, None, _V]) -> Generator[None, None, _V]:
    """Await it in a task: other tasks run between the steps."""
    return (yield from steps)


def decode_deep(decode: Callable[[Encoded], _V], data: Encoded) -> Generator[None, None, _V]:
    """Decode JSON that may be nested too deeply: then in steps, without what is deeper than MAX_DEPTH."""
    try:
        return decode(data)
    except RecursionError:
        shallow = yield from without_depth(bytes(data))
        return decode(shallow)


def decode_nulls(decode: Callable[[Encoded], _V], data: Encoded) -> _V:
    """Decode JSON in which a list or a map may be null: then as if it were absent, as in Go."""
    try:
        return decode(data)
    except msgspec.ValidationError:
        if b"null" not in bytes(data):
            raise
        return decode(msgspec.json.encode(without_nulls(msgspec.json.decode(data))))


def without_nulls(value: Any) -> Any:
    """The plain value without the fields that are null."""
    if isinstance(value, dict):
        return {key: without_nulls(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return list(map(without_nulls, value))
    return value


def without_depth(data: bytes) -> Generator[None, None, bytes]:
    """Return the JSON with null in place of each value that is nested more deeply than MAX_DEPTH."""
    kept = bytearray()
    begin = 0
    depth = 0
    for number, found in enumerate(_STRING_OR_BRACKET.finditer(data), start=1):
        if number % TOKENS_PER_STEP == 0:
            yield
        if found[0] in (b"[", b"{"):
            if depth == MAX_DEPTH:
                kept += data[begin : found.start()] + b"null"
            depth += 1
        elif found[0] in (b"]", b"}"):
            depth -= 1
            if depth == MAX_DEPTH:
                begin = found.end()
    return bytes(kept + data[begin:])


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
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"


class OwnerReference(Wire, frozen=True):
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
    nodes = [owner for owner in present if owner.is_node]
    others = [owner for owner in present if not owner.is_node]
    if [(owner.name, owner.uid) for owner in nodes] == [(node.name, node.uid)]:
        return None
    return (*others, node)


class ObjectMeta(Wire, frozen=True):
    """Object metadata. Times stay strings (see `times`); `generation` changes with the spec only."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class ApiObject(Wire, frozen=True):
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


class Condition(Wire, frozen=True):
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


class KubeObject(Protocol):
    """The interface of a decoded object that caches and queues need."""

    @property
    def key(self) -> NamespacedName: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


T = TypeVar("T", bound=KubeObject)


_NO_KEY: Final = NamespacedName("", "?")


class Undecodable(NamedTuple):
    """An item that did not decode: its key if its metadata decoded, and the error with the field path."""

    key: NamespacedName
    resource_version: str
    error: str

    @property
    def identified(self) -> bool:
        """Whether the key is known."""
        return self.key != _NO_KEY


class ListPage(NamedTuple, Generic[T]):
    """One page of a list; `continue_token` is empty on the last one."""

    items: list[T]
    undecodable: list[Undecodable]
    resource_version: str
    continue_token: str


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(NamedTuple, Generic[T]):
    """A watch event. `object` is None for a BOOKMARK and for an object that did not decode (see `undecodable`).

    `initial_events_end` marks the bookmark that ends the initial list of a streaming list (KEP-3157).
    """

    type: EventType
    object: T | None
    resource_version: str
    initial_events_end: bool = False
    undecodable: Undecodable | None = None


class _ListMeta(
    msgspec.Struct,
    frozen=True,
    rename={"resource_version": "resourceVersion", "continue_token": "continue"},
):
    resource_version: str | None = None
    continue_token: str | None = None


class _ListWire(msgspec.Struct, frozen=True):
    kind: str | None = None
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_list_decoder = msgspec.json.Decoder(_ListWire)
_identity_decoder = msgspec.json.Decoder(ApiObject)


@dataclass(eq=False)
class Resource(Generic[T]):
    """A kind with its REST path and decoders. Immutable.

    Attributes:
        kind: e.g. `Pod`; for error messages and metrics.
        wire, project: what is decoded, and how an object is made of it.
        decode: decodes one object; raises one of DECODE_ERRORS if it is no JSON object, or a field has a wrong type.
    """

    group: str
    version: str
    plural: str
    kind: str
    wire: type[Any]
    project: Callable[[Any], T]
    namespaced: bool = True

    def __post_init__(self) -> None:
        one = msgspec.json.Decoder(self.wire)
        self.decode: Callable[[Encoded], T] = lambda data: self.project(
            decode_nulls(one.decode, data)
        )

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> str:
        """`/apis/apps.kruise.io/v1alpha1/namespaces/ns/podprobemarkers/name/status`, quoted."""
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        if name:
            path += f"/{quote(name, safe='')}"
        if subresource:
            path += f"/{subresource}"
        return path

    def encode(self, **parts: object) -> bytes:
        """An object to create: its kind, and what is given, such as `metadata` and `spec`."""
        return msgspec.json.encode(
            {
                "apiVersion": self.api_version,
                "kind": self.kind,
                **parts,
            }
        )

    def decode_list(self, data: bytes) -> Generator[None, None, ListPage[T]]:
        """Decode one page in steps; invalid items are returned as `undecodable`.

        Raises:
            DECODE_ERRORS: the response is not a list of this kind. As an empty list it would empty the caches.
        """
        page = yield from decode_deep(_list_decoder.decode, data)
        version = page.metadata.resource_version
        if page.kind != f"{self.kind}List" or not version:
            raise msgspec.ValidationError(
                f"its kind is {page.kind!r} and its resourceVersion {version!r}"
            )
        items: list[T] = []
        undecodable: list[Undecodable] = []
        step_bytes = 0
        for raw in page.items or ():
            try:
                items.append(self.decode(raw))
            except DECODE_ERRORS as error:
                failed = yield from undecodable_of(raw, error)
                undecodable.append(failed)
            step_bytes += len(memoryview(raw))
            if step_bytes >= BYTES_PER_STEP:
                step_bytes = 0
                yield
        return ListPage(items, undecodable, version, page.metadata.continue_token or "")


def undecodable_of(raw: Encoded, error: Exception) -> Generator[None, None, Undecodable]:
    """Identify an object that did not decode, if its metadata decodes."""
    try:
        named = yield from decode_deep(_identity_decoder.decode, raw)
    except DECODE_ERRORS:
        return Undecodable(_NO_KEY, "", str(error))
    return Undecodable(named.key, named.resource_version, str(error))


def as_is(decoded: T) -> T:
    """The `project` of a kind that is used as it is decoded."""
    return decoded
