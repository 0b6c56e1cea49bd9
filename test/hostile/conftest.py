"""Black-box attacks through the API, the wire and the command line, on an embedded API server or a playground."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """An embedded API server behind a faulty proxy; `cluster.manager()` starts a manager as a process."""
    async with embedded_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def playground() -> AsyncIterator[ControlledPlayground]:
    """API server and node in this process; manager and daemon are processes."""
    async with ControlledPlayground() as running:
        yield running


@pytest.fixture
async def ns(playground: ControlledPlayground) -> AsyncIterator[PlaygroundNamespace]:
    """A namespace on the playground, with helpers that create pods and markers."""
    async with new_namespace(playground) as ns:
        yield ns
