"""A thousand histories of two markers, in random order: each ends as if nothing had ever been otherwise."""

import asyncio
from random import Random

import pytest
from support.edited_cluster import EditedCluster, assert_as_from_scratch
from support.output import print_line
from support.running_manager import running_manager

EDITS = 12


@pytest.mark.looptime
async def test_a20_a_thousand_orders_of_edits_end_as_from_scratch(
    random: Random, short: bool
) -> None:
    count = 20 if short else 1_000
    for _ in range(count):
        seed = random.randrange(2**32)
        try:
            await one_order(Random(seed))
        except AssertionError:
            print_line(f"the order that failed: Random({seed})")
            raise
    print_line(
        f"{count} orders of {EDITS} edits of two markers, their pods and results: as from scratch"
    )


async def one_order(random: Random) -> None:
    """Every third manager is restarted in the middle."""
    cluster = EditedCluster(random)
    restarts = random.random() < 1 / 3
    async with running_manager(cluster.api):
        await edits(cluster, EDITS // 2)
        if not restarts:
            await edits(cluster, EDITS // 2)
            await assert_as_from_scratch(cluster)
    if restarts:
        await edits(cluster, 2)
        async with running_manager(cluster.api):
            await edits(cluster, EDITS // 2 - 2)
            await assert_as_from_scratch(cluster)


async def edits(cluster: EditedCluster, count: int) -> None:
    for _ in range(count):
        cluster.edit()
        await asyncio.sleep(cluster.random.choice([0.0, 0.001, 0.003, 0.1, 1.5]))
