"""Faults that overlap."""

import asyncio

import pytest
from simulation.runner import simulated
from simulation.world import World


@pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param(2.0, 5.0, id="second-ends-last"), pytest.param(6.0, 1.0, id="first-ends-last")],
)
def test_faults_of_one_name_end_together_with_the_last_one(first: float, second: float) -> None:
    async def ended_at() -> list[float]:
        ended: list[float] = []
        async with World(0) as world:
            for seconds in (first, second):
                world.begin_fault("stop", seconds, lambda: ended.append(world.loop.time()))
                await asyncio.sleep(1.0)
            await asyncio.sleep(10.0)
        return ended

    with simulated(0) as loop:
        assert loop.run_until_complete(ended_at()) == [6.0]


def test_healing_ends_every_fault_once() -> None:
    async def ended() -> list[str]:
        names: list[str] = []
        async with World(0) as world:
            world.begin_fault("stop", 2.0, lambda: names.append("stop"))
            world.begin_fault("lag", 3.0, lambda: names.append("lag"))
            world.heal()
            await asyncio.sleep(10.0)
        return names

    with simulated(0) as loop:
        assert loop.run_until_complete(ended()) == ["stop", "lag"]
