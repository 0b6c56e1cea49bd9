"""The methods of `RestClient`, one protocol per verb. A caller combines the verbs that it uses, so a fake has no others.

Every method raises `KubeError` if the request failed.

Source: controller-runtime pkg/client/interfaces.go (Reader, Writer).
Differs: callers encode the bodies, as each kind of write has its own patch.
"""

from typing import Any, Protocol, TypeVar

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.client.request import PatchType

T = TypeVar("T", bound=KubeObject)


class Getter(Protocol):
    async def get(self, resource: Resource[T], key: NamespacedName) -> T: ...


class Creator(Protocol):
    async def create(self, resource: Resource[T], body: bytes, *, namespace: str = "") -> T: ...


class Replacer(Protocol):
    async def replace_for_metadata(
        self, resource: Resource[Any], key: NamespacedName, body: bytes, *, subresource: str = ""
    ) -> ObjectMeta: ...


class Patcher(Protocol):
    async def patch(
        self,
        resource: Resource[T],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> T: ...


class Deleter(Protocol):
    async def delete(
        self, resource: Resource[Any], key: NamespacedName, *, uid: str = ""
    ) -> object: ...
