"""One playground for all tests of this folder, and one namespace for each test."""

from collections.abc import AsyncIterator

import pytest_asyncio
from integration.usage_namespace import UsageNamespace
from support.playground import ControlledPlayground, new_namespace

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.reading import Following, Reader


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def playground() -> AsyncIterator[ControlledPlayground]:
    async with ControlledPlayground(nodes=2) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def following(playground: ControlledPlayground) -> AsyncIterator[Following]:
    reader = Reader(playground.client, namespace="", system_namespace=SYSTEM_NAMESPACE)
    async with reader.follow(await reader.read()) as followed:
        yield followed


@pytest_asyncio.fixture(loop_scope="session")
async def ns(
    playground: ControlledPlayground, following: Following
) -> AsyncIterator[UsageNamespace]:
    async with new_namespace(playground) as made:
        yield UsageNamespace(playground, made.namespace, following)
