"""What a manager serves and refuses."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.api_server import ApiServer
from support.programs import until

from kruise_probe.api.core import NODES
from kruise_probe.runtime import (
    Builder,
    ClusterConfig,
    Manager,
    NamespacedName,
    Node,
    NotLeader,
    ObjectMeta,
)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


async def page(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_health_and_metrics_are_served_and_writes_wait_for_the_lease(
    server: ApiServer,
) -> None:
    seen = asyncio.Event()

    async def reconcile(key: NamespacedName) -> None:
        seen.set()

    manager = Manager(
        ClusterConfig.plain(server.url),
        name="served",
        leader_election=True,
        health_addr="127.0.0.1:0",
        metrics_addr="127.0.0.1:0",
    )
    Builder(manager).for_(Node).named("served-nodes").workers(2).complete(reconcile)
    async with manager.unfenced:
        await manager.unfenced.create(NODES, b'{"metadata":{"name":"n"}}')
    async with manager.rest:
        with pytest.raises(NotLeader):
            await manager.client.create(Node(ObjectMeta("other")))

    running = asyncio.create_task(manager.start())
    try:
        await seen.wait()
        ports = {each.name: each.port for each in manager.servers}
        health, metrics = ports["HTTP server of health_addr"], ports["HTTP server of metrics_addr"]

        async def ready() -> bool:
            return "200 OK" in await page(health, "/readyz")

        await until("ready", ready)
        assert "[+]cache nodes ok" in await page(health, "/readyz?verbose")
        assert "[+]loop ok" in await page(health, "/healthz?verbose")
        found = await page(metrics, "/metrics")
        assert 'leader_election_master_status{name="served"} 1.0' in found
        assert (
            'controller_runtime_max_concurrent_reconciles{controller="served-nodes"} 2.0' in found
        )
    finally:
        running.cancel()
        await asyncio.wait([running])
