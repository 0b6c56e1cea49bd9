"""One playground per module, one namespace per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A playground lives as long as its module, so its loop must, too."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def playground() -> AsyncIterator[ControlledPlayground]:
    async with ControlledPlayground() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def ns(playground: ControlledPlayground) -> AsyncIterator[PlaygroundNamespace]:
    async with new_namespace(playground) as ns:
        yield ns
