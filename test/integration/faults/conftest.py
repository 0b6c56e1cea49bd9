"""A cluster for each test of faults."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.embedded_cluster import EmbeddedCluster, embedded_cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster(tmp_path) as cluster:
        yield cluster
