"""The servers that must judge markers alike: the playground's, and a real kube-apiserver with our CRDs.

The real one is the cluster of the kubeconfig that KRUISE_PROBE_CONTRACT_KUBECONFIG names.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from support.api_server import ApiServer
from support.contract_api import Api, ServerAddress, target_of
from support.programs import until

from kruise_probe.manifests.crds import all_crds

KUBECONFIG_VARIABLE = "KRUISE_PROBE_CONTRACT_KUBECONFIG"

Session = Callable[[Callable[[Api], Awaitable[None]]], None]


@pytest.fixture(scope="session", params=["embedded", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "real" and not os.environ.get(KUBECONFIG_VARIABLE):
        pytest.skip(f"no real API server: {KUBECONFIG_VARIABLE} is not set")
    return name


@pytest.fixture(scope="session")
def with_api(kind: str) -> Session:
    """Runs a coroutine with a server that has our CRDs; in a loop of its own, so that answers can be shared."""

    def run(work: Callable[[Api], Awaitable[None]]) -> None:
        async def scope() -> None:
            async with _server(kind) as target, aiohttp.ClientSession() as session:
                api = Api(session, target)
                if target.real:
                    await _install(api)
                await api.post(api.path("namespaces"), {"metadata": {"name": api.namespace}})
                try:
                    await work(api)
                finally:
                    await api.end_namespace()

        asyncio.run(scope())

    return run


@asynccontextmanager
async def _server(kind: str) -> AsyncIterator[ServerAddress]:
    if kind == "real":
        yield target_of(Path(os.environ[KUBECONFIG_VARIABLE]))
        return
    async with ApiServer() as server:
        yield ServerAddress(server.url, Path())


async def _install(api: Api) -> None:
    """Makes the CRDs of the real server ours, and waits until it judges by them."""
    for crd in all_crds():
        await api.install_crd(crd)
    marker = {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "PodProbeMarker",
        "metadata": {"name": "x"},
        "spec": {"selector": {}, "probes": [{"name": "#", "containerName": "c", "probe": {}}]},
    }
    path = api.path("podprobemarkers", namespace="default")

    async def judges() -> bool:
        return "separates marker" in (await api.post(path, marker, dryRun="All")).text

    # A changed schema is served some moments later.
    await until("the API server judges by our CRDs", judges)
