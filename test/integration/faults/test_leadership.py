"""Who writes while the leadership changes hands, however the old leader goes."""

import asyncio
import signal

import pytest
from support.embedded_cluster import EmbeddedCluster
from support.managers import (
    LEASE_SECONDS,
    assert_one_after_the_other,
    first_work,
    two_managers,
)
from support.patience import PATIENCE_SECONDS


@pytest.mark.parametrize("trouble", ["paused", "no-api-server", "lease-not-renewed"])
async def test_d5_the_old_leader_ends_and_writes_nothing_after_the_new_one(
    cluster: EmbeddedCluster, trouble: str
) -> None:
    async with two_managers(cluster, cluster.folder) as (old, new):
        match trouble:
            case "paused":
                old.program.send(signal.SIGSTOP)
            case "no-api-server":
                old.proxy.black_hole()
            case _:
                old.proxy.fail(
                    500,
                    when=lambda seen: seen.writes and seen.about_leases,
                )
        await first_work(new, seconds=LEASE_SECONDS + PATIENCE_SECONDS)
        if trouble == "paused":
            old.program.send(signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await old.program.process.wait()
        assert code == 1
        assert_one_after_the_other(old, new)
