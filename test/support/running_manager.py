"""The manager's controllers on a fake API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import REGISTRY
from support.background import background
from support.fake_api import FakeApi

from kruise_probe.api.names import MANAGER_FIELD_MANAGER
from kruise_probe.api.times import loop_time
from kruise_probe.client.config import ClusterConfig
from kruise_probe.controllers.product import build
from kruise_probe.controllers.state import ManagerOptions
from kruise_probe.manager.manager import Manager
from kruise_probe.serving.health import Checks

START = datetime(2026, 1, 1, tzinfo=UTC)


def loop_clock() -> datetime:
    """The wall clock of virtual time."""
    return START + timedelta(seconds=loop_time())


@asynccontextmanager
async def running_manager(
    api: FakeApi,
    *,
    namespace: str = "",
    resync_seconds: float = 0.0,
    now: Callable[[], datetime] = loop_clock,
    system_namespace: str = "kruise-system",
    follows_seconds: float = 0.0,
    **options: Any,
) -> AsyncIterator[None]:
    """Runs informers, then controllers, over the fake API server. No reconcile may fail unexpectedly.

    It is a standby for the first `follows_seconds`.
    """
    client: Any = api
    manager = Manager(
        ClusterConfig(server="http://127.0.0.1:1"),
        name=MANAGER_FIELD_MANAGER,
        ready=Checks(),
        namespace=namespace,
        resync_seconds=resync_seconds,
        source=api.source,
        new_client=lambda **_: client,
        now=now,
    )
    build(manager, ManagerOptions(system_namespace, **options))
    before = _panics()
    for prepare in manager.preparations:
        await prepare()
    async with leading(manager, follows_seconds):
        yield
    assert _panics() == before, "a reconcile failed with an error that a retry cannot fix"


@asynccontextmanager
async def leading(manager: Manager, after_seconds: float = 0.0) -> AsyncIterator[None]:
    """Runs the services and the informers of a manager, then its controllers."""
    async with AsyncExitStack() as stack:
        for runs in (*manager.services, *manager.informers):
            _ = await stack.enter_async_context(background(runs.run()))
        for informer in manager.informers:
            await informer.wait_for_sync()
        _ = await stack.enter_async_context(background(_lead(manager, after_seconds)))
        yield


async def _lead(manager: Manager, after_seconds: float) -> None:
    await asyncio.sleep(after_seconds)
    await manager.lead()


def _panics() -> float:
    name = "controller_runtime_reconcile_panics_total"
    found = REGISTRY.restricted_registry([name]).collect()
    return sum(sample.value for metric in found for sample in metric.samples)


async def settle(seconds: float = 4.0) -> None:
    """Lets virtual time pass, long enough for throttled status writes."""
    await asyncio.sleep(seconds)
