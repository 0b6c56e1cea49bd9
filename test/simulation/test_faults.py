"""Faults that overlap."""

import asyncio
from functools import partial

from simulation.runner import simulated
from simulation.world import World


def ends(*faults: tuple[str, float], heal: bool = False) -> list[tuple[str, float]]:
    """The names of faults that begin at each second, and when they end; `heal` after the last one has begun."""

    ended: list[tuple[str, float]] = []

    async def run() -> None:
        async with World(0) as world:
            for name, seconds in faults:
                world.begin_fault(name, seconds, partial(end, name))
                await asyncio.sleep(1.0)
            if heal:
                world.heal()
            await asyncio.sleep(10.0)

    with simulated(0) as loop:

        def end(name: str) -> None:
            ended.append((name, loop.time()))

        loop.run_until_complete(run())
    return ended


def test_faults_of_one_name_end_together_with_the_last_one() -> None:
    assert ends(("stop", 2.0), ("stop", 5.0)) == [("stop", 6.0)]
    assert ends(("stop", 6.0), ("stop", 1.0)) == [("stop", 6.0)]


def test_healing_ends_every_fault_once() -> None:
    assert ends(("stop", 4.0), ("lag", 4.0), heal=True) == [("stop", 2.0), ("lag", 2.0)]
