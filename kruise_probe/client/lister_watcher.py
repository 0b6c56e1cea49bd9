"""The ListerWatcher of informers, for one resource.

Source: client-go tools/cache/listwatch.go.
"""

from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

from kruise_probe.api.resources import KubeObject, ListPage, Resource
from kruise_probe.client.rest import RestClient
from kruise_probe.client.watch import WatchStream

T = TypeVar("T", bound=KubeObject)


class ResourceListerWatcher(Generic[T]):
    """Lists and watches one resource with a namespace and selectors. Has no state."""

    def __init__(
        self,
        client: RestClient,
        resource: Resource[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector

    async def list_page(
        self, *, limit: int, continue_token: str, resource_version: str
    ) -> ListPage[T]:
        return await self._client.list_page(
            self._resource,
            namespace=self._namespace,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )

    def watch(
        self, *, resource_version: str, timeout_seconds: float, send_initial_events: bool
    ) -> AbstractAsyncContextManager[WatchStream[T]]:
        return self._client.watch(
            self._resource,
            namespace=self._namespace,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            send_initial_events=send_initial_events,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )
