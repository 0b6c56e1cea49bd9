"""The servers that must judge markers alike: the playground's, and a real kube-apiserver with our CRDs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from contract.contract_api import Api, ServerAddress, Session
from support.api_server import ApiServer


@pytest.fixture(scope="session", params=["embedded", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def with_api(request: pytest.FixtureRequest, kind: str) -> Session:
    """Runs a coroutine with a server that has our CRDs; in a loop of its own, so that answers can be shared."""
    real = request.getfixturevalue("real_server") if kind == "real" else None

    async def scope(work: Callable[[Api], Awaitable[None]]) -> None:
        async with _server(real) as target, aiohttp.ClientSession() as session:
            api = Api(session, target)
            if target.real:
                await api.install_crds()
            await api.begin_namespace()
            try:
                await work(api)
            finally:
                await api.end_namespace()

    return lambda work: asyncio.run(scope(work))


@asynccontextmanager
async def _server(real: ServerAddress | None) -> AsyncIterator[ServerAddress]:
    if real:
        yield real
        return
    async with ApiServer() as server:
        yield ServerAddress(server.url, Path())
