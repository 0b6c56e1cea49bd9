"""The manager's controllers on a fake API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import REGISTRY
from support.fake_api import FakeApi

from kruise_probe.api.names import MANAGER_FIELD_MANAGER
from kruise_probe.client.config import ClusterConfig
from kruise_probe.controllers.product import build
from kruise_probe.controllers.state import ManagerOptions
from kruise_probe.manager.leader_election import LeaderElection
from kruise_probe.manager.manager import Manager
from kruise_probe.serving.endpoints import Checks

START = datetime(2026, 1, 1, tzinfo=UTC)


def loop_clock() -> datetime:
    """The wall clock of virtual time."""
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def manager_over(
    api: FakeApi,
    *,
    namespace: str = "",
    resync_seconds: float = 0.0,
    leads: bool = True,
    now: Callable[[], datetime] = loop_clock,
) -> Manager:
    """A manager whose informers and clients use the fake API server."""
    client: Any = api
    return Manager(
        ClusterConfig(server="http://127.0.0.1:1"),
        name=MANAGER_FIELD_MANAGER,
        ready=Checks(),
        namespace=namespace,
        resync_seconds=resync_seconds,
        source=lambda resource, namespace: api.sources[resource.plural],
        new_client=lambda **_: client,
        now=now,
        leader_election=None
        if leads
        else LeaderElection("kruise-system", "kruise-probe", "standby"),
    )


@asynccontextmanager
async def running_manager(
    api: FakeApi,
    *,
    serverless: bool = False,
    **options: Any,
) -> AsyncIterator[None]:
    """Runs the controllers on the fake API server. No reconcile may fail unexpectedly."""
    manager = manager_over(api, **options)
    build(manager, ManagerOptions("kruise-system", serverless=serverless))
    before = _panics()
    async with running(manager):
        yield
    assert _panics() == before, "a reconcile failed with an error that a retry cannot fix"


def _panics() -> float:
    name = "controller_runtime_reconcile_panics_total"
    found = REGISTRY.restricted_registry([name]).collect()
    return sum(sample.value for metric in found for sample in metric.samples)


@asynccontextmanager
async def running(manager: Manager) -> AsyncIterator[None]:
    """Caches first, then controllers; all cancelled at the end."""
    ended = asyncio.Event()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in manager.informers]
            for cache in manager.informers:
                await cache.wait_for_sync()
            tasks += [group.create_task(each.run()) for each in manager.controllers]
            started.set()
            await ended.wait()
            for each in tasks:
                each.cancel()

    started = asyncio.Event()
    task = asyncio.create_task(run())
    await started.wait()
    try:
        yield
    finally:
        ended.set()
        await task


async def settle(seconds: float = 4.0) -> None:
    """Lets virtual time pass, long enough for throttled status writes."""
    await asyncio.sleep(seconds)
