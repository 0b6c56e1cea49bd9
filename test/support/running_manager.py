"""The manager's controllers on a fake API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from support.fake_api import FakeApi

from kruise_probe.client.event_series import ObjectReference
from kruise_probe.controllers.caches import BY_NODE, Informers
from kruise_probe.controllers.product import ManagerOptions, Product, build_over
from kruise_probe.informers.shared_informer import SharedInformer

START = datetime(2026, 1, 1, tzinfo=UTC)


class RecordedEvent(NamedTuple):
    about: str
    type: str
    reason: str
    message: str


class RecordingRecorder:
    """Records events."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []

    def event(self, involved: ObjectReference, type: str, reason: str, message: str) -> None:
        self.events.append(RecordedEvent(f"{involved.kind}/{involved.name}", type, reason, message))


def loop_clock() -> datetime:
    """The wall clock of virtual time."""
    return START + timedelta(seconds=asyncio.get_running_loop().time())


def informers_over(api: FakeApi) -> Informers:
    sources = api.sources
    return Informers(
        markers=SharedInformer(sources["podprobemarkers"], name="podprobemarkers"),
        pods=SharedInformer(
            sources["pods"],
            name="pods",
            indexers={BY_NODE: lambda pod: (pod.node,) if pod.node else ()},
        ),
        nodes=SharedInformer(sources["nodes"], name="nodes"),
        node_pod_probes=SharedInformer(sources["nodepodprobes"], name="nodepodprobes"),
        leases=SharedInformer(sources["leases"], name="leases"),
    )


@asynccontextmanager
async def running_manager(
    api: FakeApi,
    *,
    namespace: str = "",
    serverless: bool = False,
    now: Callable[[], datetime] = loop_clock,
) -> AsyncIterator[RecordingRecorder]:
    """Runs the controllers on the fake API server; yields the recorded events."""
    recorder = RecordingRecorder()
    options = ManagerOptions("kruise-system", namespace=namespace, serverless=serverless)
    async with running(build_over(informers_over(api), api, recorder, options, now=now)):
        yield recorder


@asynccontextmanager
async def running(product: Product) -> AsyncIterator[None]:
    """Caches first, then controllers; all cancelled at the end."""
    ended = asyncio.Event()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in product.caches]
            for cache in product.caches:
                await cache.wait_for_sync()
            tasks += [group.create_task(each.run()) for each in product.controllers]
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
