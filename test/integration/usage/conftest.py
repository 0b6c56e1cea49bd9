"""One playground for all tests of this folder, and one namespace for each test."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from support.playground import ControlledPlayground
from support.target import marker_path, pod_path
from support.usage_namespace import UsageNamespace

from kruise_probe.api.errors import NotFound
from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.reading import Following, Reader


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def playground() -> AsyncIterator[ControlledPlayground]:
    async with ControlledPlayground(nodes=2) as running:
        yield running


@asynccontextmanager
async def _following(playground: ControlledPlayground) -> AsyncIterator[Following]:
    reader = Reader(playground.client, namespace="", system_namespace=SYSTEM_NAMESPACE)
    async with reader.follow(await reader.read()) as following:
        yield following


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def following(playground: ControlledPlayground) -> AsyncIterator[Following]:
    async with _following(playground) as followed:
        yield followed


@pytest_asyncio.fixture(loop_scope="session")
async def ns(
    playground: ControlledPlayground, following: Following
) -> AsyncIterator[UsageNamespace]:
    namespace = f"people-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await playground.api.create("/api/v1/namespaces", body)
    yield UsageNamespace(playground, following, namespace)
    sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    for each in (await playground.api.get(sets))["items"]:
        await playground.api.delete(f"{sets}/{each['metadata']['name']}")
    now = following.snapshot()
    for marker in now.markers:
        if marker.key.namespace == namespace:
            with suppress(NotFound):  # deleted by the test; the watch event has not arrived
                await playground.api.delete(marker_path(marker.key.name, namespace))
    for seen in now.pods:
        if seen.pod.namespace == namespace:
            with suppress(NotFound):
                await playground.api.delete(pod_path(seen.pod.name, namespace), grace_seconds=0)
