"""Who writes while the leadership changes hands, however the old leader goes."""

import asyncio
import signal

from support.embedded_cluster import EmbeddedCluster
from support.managers import (
    LEASE_SECONDS,
    assert_one_after_the_other,
    first_work,
    two_managers,
)
from support.patience import PATIENCE_SECONDS


async def test_d5_a_leader_that_was_paused_writes_nothing_when_it_wakes_up_and_ends(
    cluster: EmbeddedCluster,
) -> None:
    async with two_managers(cluster, cluster.folder) as (old, new):
        old.program.send(signal.SIGSTOP)
        await first_work(new, seconds=LEASE_SECONDS + PATIENCE_SECONDS)
        old.program.send(signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await old.program.process.wait()
        assert code == 1
        assert_one_after_the_other(old, new)


async def test_d5_a_leader_that_loses_the_api_server_stops_before_another_begins(
    cluster: EmbeddedCluster,
) -> None:
    async with two_managers(cluster, cluster.folder) as (old, new):
        old.proxy.black_hole()
        await first_work(new, seconds=LEASE_SECONDS + PATIENCE_SECONDS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await old.program.process.wait()
        assert code == 1
        assert_one_after_the_other(old, new)


async def test_d5_a_lease_that_cannot_be_renewed_costs_the_leadership_and_the_process(
    cluster: EmbeddedCluster,
) -> None:
    async with two_managers(cluster, cluster.folder) as (old, new):
        old.proxy.fail(
            500, reason="InternalError", when=lambda seen: seen.writes and seen.about_leases
        )
        await first_work(new, seconds=LEASE_SECONDS + PATIENCE_SECONDS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await old.program.process.wait()
        assert code == 1
        assert_one_after_the_other(old, new)
