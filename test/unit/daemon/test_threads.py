"""Threads for steps that need much CPU: shares of tenants, and the end of an attempt whose step runs on."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from support.patience import PATIENCE_SECONDS
from support.scripted_node import loop_time

from kruise_probe.daemon.places import Tenant
from kruise_probe.daemon.probers.prober import CouldNotProbe
from kruise_probe.daemon.threads import Threads

pytestmark = pytest.mark.sockets
"""Real time, because the steps run in real threads."""


class Steps:
    """Steps that run until `end` is set."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.threads = Threads()
        self.deadline = loop_time() + PATIENCE_SECONDS

    def begin(self, namespace: str) -> asyncio.Task[bool]:
        step = self.threads.run(
            Tenant(namespace, "uid"),
            self._wait,
            self.deadline,
        )
        return asyncio.create_task(step)

    def _wait(self) -> bool:
        return self.end.wait(PATIENCE_SECONDS)

    async def run_at_once(self, namespace: str, seconds: float) -> bool:
        deadline = loop_time() + seconds
        return await self.threads.run(
            Tenant(namespace, "uid"),
            lambda: True,
            deadline,
        )


@pytest.fixture
async def steps() -> AsyncIterator[Steps]:
    steps = Steps()
    yield steps
    steps.end.set()


async def test_slow_steps_of_two_namespaces_leave_a_thread_to_others(steps: Steps) -> None:
    slow = [steps.begin(namespace) for namespace in ("a", "a", "a", "b", "b")]
    await asyncio.sleep(0)
    assert await steps.run_at_once("quiet", PATIENCE_SECONDS)
    steps.end.set()
    await asyncio.wait(slow)
    assert all(task.result() for task in slow)


async def test_cancelled_step_keeps_its_thread_and_an_attempt_without_one_has_no_result(
    steps: Steps,
) -> None:
    slow = [steps.begin(namespace) for namespace in ("a", "a", "b", "c")]
    await asyncio.sleep(0)
    for task in slow:
        task.cancel()
    await asyncio.wait(slow)
    with pytest.raises(
        CouldNotProbe, match=r"^AttemptQueued: no thread to run the search or TLS handshake"
    ):
        await steps.run_at_once("quiet", 0.05)
    steps.end.set()
    assert await steps.run_at_once("quiet", PATIENCE_SECONDS)
