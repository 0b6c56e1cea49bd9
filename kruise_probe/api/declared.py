"""Declared kinds: which resource a struct or an untyped object belongs to, and how an object becomes JSON.

Source: apimachinery pkg/runtime (Scheme), pkg/apis/meta/v1/unstructured.
Differs: a struct names its kind by a decorator; there is one registry for the process, and several structs may be of one
kind.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource, as_is
from kruise_probe.api.meta import ObjectMeta

T = TypeVar("T", bound=KubeObject)


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


KindRef = type[T] | Resource[T]
"""Names a kind: a declared struct, or a resource such as `untyped("v1", "ConfigMap")`."""

_declared: dict[type, Callable[[], Resource[Any]]] = {}
"""Builds the resource of each declared struct at its first use: the types of its fields may be defined after it."""
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
    """Declare a kind that needs no struct, and return its resource; see `kind` for the arguments.

    Raises:
        ValueError: the kind was declared with another plural or scope.
    """
    plural = plural or f"{kind.lower()}s"
    known = _untyped.get((api_version, kind))
    if known is None:
        group, _, version = api_version.rpartition("/")

        def project(content: dict[str, Any]) -> Unstructured:
            # The items of a list have no apiVersion and kind.
            return Unstructured({"apiVersion": api_version, "kind": kind, **content})

        known = _untyped[api_version, kind] = Resource(
            group,
            version,
            plural,
            kind,
            wire=dict[str, Any],
            project=project,
            namespaced=namespaced,
        )
    elif (known.plural, known.namespaced) != (plural, namespaced):
        raise ValueError(
            f"{api_version} {kind} was declared with plural {known.plural!r} and namespaced={known.namespaced}; "
            "use the same values everywhere"
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
