"""How long nobody leads: leader after leader is stopped, or killed, while a standby with warm caches waits.

Managers run as they are shipped, on a real API server, and each has its own way there, which knows what it asked for.
"""

import asyncio
import signal
from pathlib import Path

import pytest
from support.candidates import (
    Candidate,
    all_marked,
    assert_one_after_the_other,
    candidates,
    first_work,
)
from support.control_plane import ControlPlane, staged
from support.saying import say

LEASE_SECONDS = 15.0
MOST_SECONDS = 2.0
"""From the order to end to the next leader's first write; after a kill, the lease comes on top."""

NODES, PODS = 200, 10_000
SHORT_NODES, SHORT_PODS = 4, 40


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
async def test_c11_and_d7_the_next_leader_works_in_time_and_the_old_one_is_silent(
    control_plane: ControlPlane, short: bool, tmp_path: Path, how: signal.Signals
) -> None:
    nodes, pods = (SHORT_NODES, SHORT_PODS) if short else (NODES, PODS)
    most = MOST_SECONDS + (LEASE_SECONDS if how == signal.SIGKILL else 0)
    took = []
    async with (
        staged(control_plane, "handover") as stage,
        candidates(stage, tmp_path, nodes=nodes, count=pods) as start,
    ):
        leader = await start("leader-0")
        await all_marked(stage, seconds=600)
        for number in range(1, 2 if short else 11):
            standby = await start(f"leader-{number}")
            assert not standby.work(), "a standby writes nothing"
            began = asyncio.get_running_loop().time()
            leader.program.send(how)
            took.append(await first_work(standby, seconds=most + 30) - began)
            await ended(leader, how)
            assert_one_after_the_other(leader, standby)
            assert_silent(leader, since=standby.work()[0].at)
            leader = standby
    times = ", ".join(f"{each:.2f}" for each in took)
    say(f"{how.name}, {pods} pods, lease of {LEASE_SECONDS:g} s: taken over after {times} s")
    assert short or max(took) <= most


async def ended(leader: Candidate, how: signal.Signals) -> None:
    async with asyncio.timeout(10):
        code = await leader.program.process.wait()
    assert code == (0 if how == signal.SIGTERM else -how)


def assert_silent(leader: Candidate, *, since: float) -> None:
    """Reads and Leases too."""
    late = [each for each in leader.proxy.log if each.at >= since]
    assert not late, f"the old leader asked after the new one had begun: {late[:5]}"
