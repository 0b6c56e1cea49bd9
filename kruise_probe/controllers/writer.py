"""What reconcilers need of a client.

Source: controller-runtime pkg/client (Writer).
Differs: bodies are encoded by the caller, as every write is a patch made for its purpose.
"""

from typing import Any, Protocol, TypeVar

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import KubeObject, Resource
from kruise_probe.client.request import PatchType

T = TypeVar("T", bound=KubeObject)


class Writer(Protocol):
    """`RestClient` is one. Every method raises `KubeError` when the API server did not do it."""

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
