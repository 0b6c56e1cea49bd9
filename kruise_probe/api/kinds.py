"""Kinds of objects: REST paths, decoders, list pages and watch events. It knows no particular kind.

If a list does not decode as a whole, its items are decoded one by one. So an invalid object causes an error for
itself only.

Source: apimachinery pkg/watch and metav1.WatchEvent.
Differs: there is no ERROR event; the client raises it as a typed error.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import quote

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import DECODE_ERRORS, ApiObject, ObjectMeta


class KubeObject(Protocol):
    """The interface of a decoded object that caches and queues need."""

    @property
    def key(self) -> NamespacedName: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


T = TypeVar("T", bound=KubeObject)
W = TypeVar("W")
Encoded = bytes | msgspec.Raw


class Undecodable(NamedTuple):
    """An item that did not decode: its key, and the error with the field path."""

    key: NamespacedName
    resource_version: str
    error: str


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


class _ListWire(msgspec.Struct, Generic[W], frozen=True):
    kind: str | None = None
    metadata: _ListMeta = _ListMeta()
    items: list[W] | None = None


_raw_list_decoder = msgspec.json.Decoder(_ListWire[msgspec.Raw])
_identity_decoder = msgspec.json.Decoder(ApiObject)


class Resource(Generic[T]):
    """A kind with its REST path and decoders. Immutable; there is one instance per kind.

    Attributes:
        kind: e.g. `Pod`; for error messages and metrics.
    """

    def __init__(
        self,
        group: str,
        version: str,
        plural: str,
        kind: str,
        *,
        wire: type[W],
        project: Callable[[W], T],
        namespaced: bool = True,
    ) -> None:
        self.group: Final = group
        self.version: Final = version
        self.plural: Final = plural
        self.kind: Final = kind
        self.namespaced: Final = namespaced
        one = msgspec.json.Decoder(wire)
        whole = msgspec.json.Decoder(_ListWire[wire])  # type: ignore[valid-type]  # a type built from a value
        self._decode: Callable[[Encoded], T] = lambda data: project(one.decode(data))
        self._decode_whole: Callable[[bytes], ListPage[T]] = lambda data: _page(
            page := whole.decode(data), list(map(project, page.items or ())), []
        )

    def __repr__(self) -> str:
        return f"Resource({self.kind})"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """`/apis/apps.kruise.io/v1alpha1/namespaces/ns/podprobemarkers/name/status`, quoted."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def decode(self, data: Encoded) -> T:
        """Decode one object.

        Raises:
            DECODE_ERRORS: not a JSON object, or a field has a wrong type.
        """
        return self._decode(data)

    def decode_list(self, data: bytes) -> ListPage[T]:
        """Decode one page; invalid items are returned as `undecodable`.

        Raises:
            DECODE_ERRORS: the response is not a list.
        """
        try:
            return self._decode_whole(data)
        except DECODE_ERRORS:
            return self._decode_items(data)

    def _decode_items(self, data: bytes) -> ListPage[T]:
        page = _raw_list_decoder.decode(data)
        items: list[T] = []
        undecodable: list[Undecodable] = []
        for raw in page.items or ():
            try:
                items.append(self._decode(raw))
            except DECODE_ERRORS as error:
                undecodable.append(undecodable_of(raw, error))
        return _page(page, items, undecodable)


def _page(wire: _ListWire[Any], items: list[T], undecodable: list[Undecodable]) -> ListPage[T]:
    """Build a page. A Status or other object is an error, not an empty list: that would empty the caches."""
    if wire.kind and not wire.kind.endswith("List"):
        raise msgspec.ValidationError(f"its kind is {wire.kind}")
    return ListPage(
        items,
        undecodable,
        wire.metadata.resource_version or "",
        wire.metadata.continue_token or "",
    )


def undecodable_of(raw: Encoded, error: Exception) -> Undecodable:
    """Identify an object that did not decode, if its metadata decodes."""
    try:
        named = _identity_decoder.decode(raw)
    except DECODE_ERRORS:
        return Undecodable(NamespacedName("", "?"), "", str(error))
    return Undecodable(named.key, named.resource_version, str(error))


class Unstructured:
    """An object of any kind: its decoded JSON. Caches share it, so copy `content` before you change it.

    Source: apimachinery pkg/apis/meta/v1/unstructured.
    """

    __slots__ = ("content", "key", "resource_version", "uid")

    def __init__(self, content: dict[str, Any]) -> None:
        """Raises msgspec.ValidationError if the metadata has wrong types."""
        meta = content.get("metadata") or {}
        self.content: Final = content
        self.key: Final = msgspec.convert(
            NamespacedName(meta.get("namespace") or "", meta.get("name") or ""), NamespacedName
        )
        self.uid: Final = msgspec.convert(meta.get("uid") or "", str)
        self.resource_version: Final = msgspec.convert(meta.get("resourceVersion") or "", str)

    @property
    def metadata(self) -> ObjectMeta:
        return msgspec.convert(self.content.get("metadata") or {}, ObjectMeta)

    def __repr__(self) -> str:
        return f"{self.content.get('kind')} {self.key}"


_declared: dict[type, Callable[[], Resource[Any]]] = {}
_resources: dict[type, Resource[Any]] = {}
_untyped: dict[tuple[str, str], Resource[Unstructured]] = {}

C = TypeVar("C", bound=type)


def kind(
    api_version: str, plural: str = "", *, name: str = "", namespaced: bool = True
) -> Callable[[C], C]:
    """Declare a struct as a kind; `resource_of` then finds its resource.

    Args:
        api_version: such as `apps/v1`.
        plural: by default the name in lower case with an `s`.
        name: the kind, by default the name of the struct.
        namespaced: False for a cluster-scoped kind.
    """
    group, _, version = api_version.rpartition("/")

    def declare(struct: C) -> C:
        own = name or struct.__name__
        _declared[struct] = lambda: Resource(
            group,
            version,
            plural or f"{own.lower()}s",
            own,
            wire=struct,
            project=as_is,
            namespaced=namespaced,
        )
        return struct

    return declare


def untyped(
    api_version: str, kind: str, plural: str = "", *, namespaced: bool = True
) -> Resource[Unstructured]:
    """Return the resource of a kind that needs no struct; see `kind` for the arguments."""
    known = _untyped.get((api_version, kind))
    if known is None:
        group, _, version = api_version.rpartition("/")

        def project(content: dict[str, Any]) -> Unstructured:
            # items of a list have neither
            return Unstructured({"apiVersion": api_version, "kind": kind, **content})

        known = _untyped[api_version, kind] = Resource(
            group,
            version,
            plural or f"{kind.lower()}s",
            kind,
            wire=dict[str, Any],
            project=project,
            namespaced=namespaced,
        )
    return known


def resource_of(what: "Resource[T] | type[T] | T") -> Resource[T]:
    """Return the resource of a declared struct, of one of its objects, or of an Unstructured.

    Raises:
        LookupError: the kind was not declared.
    """
    if isinstance(what, Resource):
        return what
    if isinstance(what, Unstructured):
        api_version, own = what.content.get("apiVersion", ""), what.content.get("kind", "")
        if (api_version, own) not in _untyped:
            raise LookupError(f'{what!r} is not declared: call untyped("{api_version}", "{own}")')
        return cast(Resource[T], _untyped[api_version, own])
    struct = what if isinstance(what, type) else type(what)
    if struct not in _resources:
        if struct not in _declared:
            raise LookupError(f"{struct.__name__} is not declared: decorate it with @kind(…)")
        _resources[struct] = _declared[struct]()
    return _resources[struct]


def encode(obj: KubeObject) -> bytes:
    """Encode an object with its apiVersion and kind.

    Raises:
        LookupError: the kind was not declared.
    """
    return msgspec.json.encode(to_json(obj))


def to_json(obj: KubeObject) -> dict[str, Any]:
    """The JSON value of an object, with its apiVersion and kind; see `encode`."""
    resource = resource_of(obj)
    content = obj.content if isinstance(obj, Unstructured) else msgspec.to_builtins(obj)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **content}


def as_is(decoded: T) -> T:
    """The `project` of a kind that is used as it is decoded."""
    return decoded
