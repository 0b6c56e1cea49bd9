"""Copies of the marker's definition in groups of their own, so that the markers of the cluster keep theirs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from contract.contract_api import DEFINITIONS, Api, ApiResponse, named
from support import programs
from support.wire import Json

PLURAL = "copies"
"""Differs from the markers' plural, so that `kubectl get podprobemarkers` lists no copies."""


class MarkerCopy:
    """A definition of markers in a group of its own, and the markers of the test's namespace."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.group = f"{api.unique}.example.com"
        self.path = f"{DEFINITIONS}/{PLURAL}.{self.group}"
        self.objects = f"/apis/{self.group}/v1alpha1/namespaces/{api.namespace}/{PLURAL}"

    def renamed(self, crd: Json) -> Json:
        """The same definition, under the group and the name of the copy."""
        crd["metadata"]["name"] = f"{PLURAL}.{self.group}"
        crd["spec"]["group"] = self.group
        crd["spec"]["names"] |= {
            "plural": PLURAL,
            "singular": "copy",
            "shortNames": [],
            "categories": [],
        }
        return crd

    @asynccontextmanager
    async def installed(self, crd: Json) -> AsyncIterator[None]:
        """The copy of this definition, until the end of the block."""
        try:
            created = await self.api.post(DEFINITIONS, self.renamed(crd))
            assert created.code == 201, created
            yield
        finally:
            await self.api.delete(self.path)

    async def create(self, spec: Json, **query: str) -> ApiResponse:
        body = {
            **named("PodProbeMarker", "m"),
            "apiVersion": f"{self.group}/v1alpha1",
            "spec": spec,
        }
        return await self.api.post(self.objects, body, **query)

    async def until(self, spec: Json, code: int, **query: str) -> None:
        """Creates a marker until the response has this code: definitions and webhooks take effect some time after they are written."""

        async def has_code() -> bool:
            return (await self.create(spec, **query)).code == code

        await programs.until(f"the response to a marker is {code}", has_code)
