"""The API server in JSON, for tests and demonstrations that speak of objects as YAML does."""

from typing import Any

import msgspec

from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient

Json = dict[str, Any]


class RawApi:
    """Paths in, dictionaries out; refusals are `api.errors`."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def get(self, path: str) -> Json:
        return _object(await self._client.get_raw(path))

    async def create(self, path: str, body: Json) -> Json:
        """Creates in the collection at `path`."""
        return _object(await self._client.request_raw("POST", path, msgspec.json.encode(body)))

    async def merge(self, path: str, change: Json) -> Json:
        """A JSON merge patch of the object, or subresource, at `path`."""
        body = msgspec.json.encode(change)
        return _object(await self._client.request_raw("PATCH", path, body, PatchType.MERGE))

    async def delete(self, path: str, *, grace_seconds: int | None = None) -> Json:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return _object(await self._client.request_raw("DELETE", path, msgspec.json.encode(options)))


def pod_path(name: str, namespace: str = "default", subresource: str = "") -> str:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    return f"{path}/{subresource}" if subresource else path


def marker_path(name: str, namespace: str = "default") -> str:
    return f"/apis/apps.kruise.io/v1alpha1/namespaces/{namespace}/podprobemarkers/{name}"


def node_pod_probe_path(node: str = "node-0") -> str:
    return f"/apis/apps.kruise.io/v1alpha1/nodepodprobes/{node}"


def _object(body: bytes) -> Json:
    found: Json = msgspec.json.decode(body)
    return found
