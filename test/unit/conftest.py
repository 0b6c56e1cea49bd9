"""Unit tests run on virtual time, and leave no task behind. Those with the marker `sockets` run on real time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
IDLE_CYCLES = 2
"""Idle cycles of the loop before virtual time moves; with looptime's default of 42, the lane takes two thirds longer."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turns `looptime` on and adds the leak check, for asynchronous tests of this folder only."""
    for item in items:
        if not item.path.is_relative_to(HERE) or item.get_closest_marker("sockets"):
            continue
        if item.get_closest_marker("asyncio") is None or not isinstance(item, pytest.Function):
            continue
        if item.get_closest_marker("looptime") is None:
            item.add_marker(pytest.mark.looptime(noop_cycles=IDLE_CYCLES))
        item.fixturenames.insert(0, no_leaked_tasks.__name__)


@pytest.fixture
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Fails a test that leaves a running task behind, and names it."""
    before = asyncio.all_tasks()
    yield
    leaked = asyncio.all_tasks() - before - {asyncio.current_task()}
    for task in leaked:
        task.cancel()
    assert not leaked, f"leaked: {sorted(task.get_name() for task in leaked)}"
