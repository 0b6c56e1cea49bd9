"""One playground per module, one namespace per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.space import Space, space_on
from support.world import World, following

from kruise_probe.playground.session import Playground


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A playground lives as long as its module, so its loop must, too."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def playground() -> AsyncIterator[Playground]:
    async with Playground() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(playground: Playground) -> AsyncIterator[World]:
    async with following(playground.client) as followed:
        yield followed


@pytest_asyncio.fixture(loop_scope="module")
async def space(playground: Playground, world: World) -> AsyncIterator[Space]:
    async with space_on(playground, world) as space:
        yield space
