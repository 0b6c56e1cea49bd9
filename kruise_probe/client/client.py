"""The client of operators: structs in, structs out.

`RestClient` sends bytes. This client encodes objects of declared kinds, decodes the responses, and passes them to the
caches, so that a cache includes the writes of this process before the watch reports them.

Source: controller-runtime pkg/client (Client, Patch, CreateOrPatch); client-go util/retry.
Differs: objects are frozen, so a patch gets the object before and after the change. An empty patch is not sent. A patch
contains the uid, so it never changes a new object of the same name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from kruise_probe.api.declared import KindRef, encode, resource_of, to_json
from kruise_probe.api.errors import AlreadyExists, Conflict, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.client.request import PatchType, Propagation
from kruise_probe.client.rest import RestClient

T = TypeVar("T", bound=KubeObject)
R = TypeVar("R")
CONFLICT_ATTEMPTS: Final = 5
CONFLICT_DELAY_SECONDS: Final = 0.01


class WriteObserver(Protocol):
    """A cache that returns our writes before their events arrive, such as `MutationCache`."""

    def record_write(self, obj: Any) -> None: ...
    def record_delete(self, obj: Any) -> None: ...


class Client:
    """Verbs for objects. Every method raises `KubeError` if its request failed."""

    def __init__(self, rest: RestClient) -> None:
        self.rest: Final = rest
        self._observers: dict[Resource[Any], WriteObserver] = {}

    def observe_writes(self, resource: Resource[T], observer: WriteObserver) -> None:
        """Pass the responses to writes of `resource` to a cache."""
        self._observers[resource] = observer

    async def get(
        self, kind: KindRef[T], name: str, namespace: str = "", *, subresource: str = ""
    ) -> T:
        """Get one object from the server. Raises NotFound."""
        key = NamespacedName(namespace, name)
        return await self.rest.get(resource_of(kind), key, subresource=subresource)

    async def list(
        self,
        kind: KindRef[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Sequence[T]:
        """List all pages from the server; an empty `namespace` is all namespaces.

        Raises:
            Expired: the list took so long that its continue token expired.
            ValueError: an object does not decode.
        """
        resource = resource_of(kind)
        items: list[T] = []
        token = ""
        while True:
            page = await self.rest.list_page(
                resource,
                namespace=namespace,
                continue_token=token,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            if page.undecodable:
                bad = page.undecodable[0]
                raise ValueError(f"{resource.plural} {bad.key} does not decode: {bad.error}")
            items += page.items
            token = page.continue_token
            if not token:
                return items

    async def create(self, obj: T) -> T:
        """Create the object. Raises AlreadyExists."""
        resource = resource_of(obj)
        body, namespace = encode(obj), obj.key.namespace
        return self._recorded(resource, await self.rest.create(resource, body, namespace=namespace))

    async def update(self, obj: T, *, subresource: str = "") -> T:
        """Replace the object. Fields that its struct lacks are removed; `patch` keeps them.

        Raises:
            Conflict: its resource version is not current.
        """
        resource = resource_of(obj)
        written = await self.rest.replace(resource, obj.key, encode(obj), subresource=subresource)
        return self._recorded(resource, written)

    async def patch(
        self, old: T, new: T, *, subresource: str = "", optimistic_lock: bool = False
    ) -> T:
        """Write the difference between two states of an object as a JSON merge patch. Lists are replaced whole.

        Return `new` without a request if nothing differs.

        Raises:
            Conflict: with `optimistic_lock`, if the resource version of `old` is not current.
            ApiError: the object was replaced by another one of its name (409 or 422).
        """
        if old.key != new.key:
            raise ValueError(f"a patch of {old.key} cannot rename it to {new.key}")
        changes = merge_diff(to_json(old), to_json(new))
        if not changes:
            return new
        metadata = {"uid": old.uid} if old.uid else {}
        if optimistic_lock:
            metadata["resourceVersion"] = old.resource_version
        changes["metadata"] = {**changes.get("metadata", {}), **metadata}
        resource = resource_of(new)
        written = await self.rest.patch(
            resource,
            new.key,
            msgspec.json.encode(changes),
            patch_type=PatchType.MERGE,
            subresource=subresource,
        )
        return self._recorded(resource, written)

    async def apply(self, obj: T, *, force: bool = True, subresource: str = "") -> T:
        """Server-side apply: own exactly the fields of `obj`, and create the object if it is missing.

        Raises:
            Conflict: without `force`, if another field manager owns a field with another value.
        """
        resource = resource_of(obj)
        written = await self.rest.patch(
            resource,
            obj.key,
            encode(obj),
            patch_type=PatchType.APPLY,
            subresource=subresource,
            force=force,
        )
        return self._recorded(resource, written)

    async def delete(
        self,
        obj: KubeObject,
        *,
        propagation: Propagation | None = None,
        optimistic_lock: bool = False,
    ) -> None:
        """Delete this object, but no other one of its name. Return normally if it does not exist.

        Args:
            obj: its uid is a precondition, if it has one.
            propagation: what happens to its dependents.
            optimistic_lock: its resource version is a precondition, too.

        Raises:
            Conflict: a precondition failed.
        """
        resource = resource_of(obj)
        try:
            left = await self.rest.delete(
                resource,
                obj.key,
                uid=obj.uid,
                resource_version=obj.resource_version if optimistic_lock else "",
                propagation=propagation,
            )
        except NotFound:
            left = None
        if left is not None:
            self._recorded(resource, left)
        elif resource in self._observers:
            self._observers[resource].record_delete(obj)

    async def create_or_patch(self, obj: T, mutate: Callable[[T], T]) -> T:
        """Get the object, and write the difference that `mutate` makes; create `mutate(obj)` if it is missing."""
        resource = resource_of(obj)
        for _ in range(CONFLICT_ATTEMPTS - 1):
            try:
                found = await self.rest.get(resource, obj.key)
                return await self.patch(found, mutate(found))
            except NotFound:
                try:
                    return await self.create(mutate(obj))
                except AlreadyExists:
                    continue
        return await self.create(mutate(obj))

    def _recorded(self, resource: Resource[T], obj: T) -> T:
        if resource in self._observers:
            self._observers[resource].record_write(obj)
        return obj


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[R]], *, attempts: int = CONFLICT_ATTEMPTS
) -> R:
    """Call `attempt` again after each Conflict. It must read the object from the server each time.

    Raises:
        Conflict: of the last attempt.
    """
    for _ in range(attempts - 1):
        try:
            return await attempt()
        except AlreadyExists:
            raise
        except Conflict:
            await asyncio.sleep(CONFLICT_DELAY_SECONDS)
    return await attempt()


def merge_diff(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) from `old` to `new`; empty if they are equal."""
    diff: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := merge_diff(before, cast(dict[str, Any], value)):
                diff[name] = inner
        elif name not in old or value != before:
            diff[name] = value
    return diff
