"""An API client without a server, as a base of fakes."""

from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.kinds import Resource
from kruise_probe.client.request import PatchType


class RefusingClient:
    """Satisfies `ApiClient`: a fake overrides the requests that it answers, and any other one fails the test."""

    async def get(self, resource: Resource[Any], key: NamespacedName) -> Any:
        _refuse("get", resource)

    def watch(
        self,
        resource: Resource[Any],
        *,
        timeout_seconds: float,
        namespace: str = "",
        field_selector: str = "",
    ) -> AbstractAsyncContextManager[Any]:
        _refuse("watch", resource)

    async def create(self, resource: Resource[Any], body: bytes, *, namespace: str = "") -> Any:
        _refuse("create", resource)

    async def replace_for_metadata(
        self, resource: Resource[Any], key: NamespacedName, body: bytes, *, subresource: str = ""
    ) -> Any:
        _refuse("replace", resource)

    async def patch(
        self,
        resource: Resource[Any],
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
        subresource: str = "",
    ) -> Any:
        _refuse("patch", resource)

    async def delete(self, resource: Resource[Any], key: NamespacedName, *, uid: str = "") -> None:
        _refuse("delete", resource)


def _refuse(verb: str, resource: Resource[Any]) -> NoReturn:
    raise AssertionError(f"unexpected {verb} of {resource.plural}")
