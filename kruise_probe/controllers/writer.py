"""The writing part of the client that reconcilers use.

Source: controller-runtime pkg/client (Writer).
Differs: callers encode the bodies, as each kind of write has its own patch.
"""

from typing import Any, Protocol, TypeVar

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import KubeObject, Resource
from kruise_probe.client.request import PatchType

T = TypeVar("T", bound=KubeObject)


class Writer(Protocol):
    """Implemented by `RestClient`. Every method raises `KubeError` if the write failed."""

    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T: ...

    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> T: ...

    async def delete(
        self, resource: Resource[Any], key: NamespacedName, *, uid: str = ""
    ) -> None: ...
