"""An arena for each test of faults."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.arena import Arena, running_arena


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    async with running_arena(tmp_path) as arena:
        yield arena
