"""One playground per module, one namespace per test."""

from collections.abc import AsyncIterator

import pytest_asyncio
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def playground() -> AsyncIterator[ControlledPlayground]:
    async with ControlledPlayground() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def ns(playground: ControlledPlayground) -> AsyncIterator[PlaygroundNamespace]:
    async with new_namespace(playground) as ns:
        yield ns
