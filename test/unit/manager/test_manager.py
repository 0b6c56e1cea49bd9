"""What a manager accepts before and after its start."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.fake_source import FakeSource

from kruise_probe.api.core import LEASES
from kruise_probe.runtime import Builder, ClusterConfig, Manager, NamespacedName, Node


class Service:
    async def run(self) -> None:
        await asyncio.Event().wait()


async def ignore(key: NamespacedName) -> None:
    pass


@pytest.fixture
async def started() -> AsyncIterator[Manager]:
    manager = Manager(
        ClusterConfig.plain("http://127.0.0.1:1"),
        name="test",
        source=lambda resource, namespace: FakeSource[Any](),
    )
    manager.cache(Node)
    running = asyncio.create_task(manager.start())
    await asyncio.sleep(1)
    yield manager
    running.cancel()
    await asyncio.wait({running})


async def test_kinds_that_were_added_before_the_start_can_be_read_after_it(
    started: Manager,
) -> None:
    assert started.cache(Node).list() == []
    assert started.informer(Node) in started.informers


async def test_what_would_never_run_is_refused_after_the_start(started: Manager) -> None:
    with pytest.raises(RuntimeError, match="informer of leases: the manager has started"):
        started.cache(LEASES)
    with pytest.raises(RuntimeError, match="controller: the manager has started"):
        Builder(started).named("late").complete(ignore)
    with pytest.raises(RuntimeError, match="service: the manager has started"):
        started.add_service(Service())
