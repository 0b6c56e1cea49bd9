"""Who writes while the leadership changes hands, however the old leader goes."""

import asyncio
import signal

from support.embedded_cluster import EmbeddedCluster
from support.managers import (
    LEASE_SECONDS,
    LONG_LEASE_SECONDS,
    assert_one_after_the_other,
    first_work,
    two_managers,
)
from support.patience import PATIENCE_SECONDS


async def test_c11_a_leader_that_is_stopped_hands_over_at_once(cluster: EmbeddedCluster) -> None:
    """The time it takes is measured by `hack/soak`; here, that it is not the lease's."""
    async with two_managers(cluster, cluster.folder, lease_seconds=LONG_LEASE_SECONDS) as (
        old,
        new,
    ):
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(old.program.terminate())
            at = await first_work(new, seconds=LONG_LEASE_SECONDS)
        assert at - began < LONG_LEASE_SECONDS / 2
        assert ending.result()[0] == 0
        assert_one_after_the_other(old, new)


async def test_c11_a_leader_that_is_killed_is_followed_after_its_lease(
    cluster: EmbeddedCluster,
) -> None:
    async with two_managers(cluster, cluster.folder) as (old, new):
        await old.program.kill()
        await first_work(new, seconds=LEASE_SECONDS + PATIENCE_SECONDS)
        assert_one_after_the_other(old, new)


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
