"""Kinds of objects: REST paths, decoders, list pages and watch events. It knows no particular kind.

If a list does not decode as a whole, its items are decoded one by one. So an invalid object causes an error for
itself only.

Source: apimachinery pkg/watch and metav1.WatchEvent.
Differs: there is no ERROR event; the client raises it as a typed error.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS, ApiObject, NamespacedName


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


class _ListWire(msgspec.Struct, Generic[W], frozen=True):
    kind: str | None = None
    metadata: _ListMeta = _ListMeta()
    items: list[W] | None = None


_raw_list_decoder = msgspec.json.Decoder(_ListWire[msgspec.Raw])
_identity_decoder = msgspec.json.Decoder(ApiObject)


class Resource(Generic[T]):
    """A kind with its REST path and decoders. Immutable.

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
        self.decode: Final[Callable[[Encoded], T]] = lambda data: project(one.decode(data))
        """Decode one object; raise one of DECODE_ERRORS if it is no JSON object, or a field has a wrong type."""
        self._decode_whole: Callable[[bytes], ListPage[T]] = lambda data: self._page(
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

    def encode(self, **parts: object) -> bytes:
        """An object to create: its kind, and what is given, such as `metadata` and `spec`."""
        return msgspec.json.encode({"apiVersion": self.api_version, "kind": self.kind, **parts})

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
                items.append(self.decode(raw))
            except DECODE_ERRORS as error:
                undecodable.append(undecodable_of(raw, error))
        return self._page(page, items, undecodable)

    def _page(
        self, wire: _ListWire[Any], items: list[T], undecodable: list[Undecodable]
    ) -> ListPage[T]:
        """Build a page. Anything but a list of this kind is an error: as an empty list it would empty the caches."""
        if wire.kind != f"{self.kind}List" or not wire.metadata.resource_version:
            raise msgspec.ValidationError(
                f"its kind is {wire.kind!r} and its resourceVersion {wire.metadata.resource_version!r}"
            )
        return ListPage(
            items,
            undecodable,
            wire.metadata.resource_version,
            wire.metadata.continue_token or "",
        )


def undecodable_of(raw: Encoded, error: Exception) -> Undecodable:
    """Identify an object that did not decode, if its metadata decodes."""
    try:
        named = _identity_decoder.decode(raw)
    except DECODE_ERRORS:
        return Undecodable(_NO_KEY, "", str(error))
    return Undecodable(named.key, named.resource_version, str(error))


def as_is(decoded: T) -> T:
    """The `project` of a kind that is used as it is decoded."""
    return decoded
