"""How long nobody leads: leader after leader is stopped, or killed, while a standby with warm caches waits.

Managers run as they are shipped, on a real API server, and each has its own way there, which knows what it asked for.
"""

import asyncio
import signal
from pathlib import Path

from support.candidates import (
    Candidate,
    all_marked,
    assert_one_after_the_other,
    candidates,
    first_work,
)
from support.control_plane import ControlPlane, staged
from support.patience import PATIENCE_SECONDS
from support.saying import say

LEASE_SECONDS = 15.0
MOST_SECONDS = {signal.SIGTERM: 2.0, signal.SIGKILL: LEASE_SECONDS + 2.0}
"""From the signal to the next leader's first write."""

NODES, PODS = 200, 10_000
SHORT_NODES, SHORT_PODS = 4, 40


async def test_c11_and_d7_the_next_leader_works_in_time_and_the_old_one_is_silent(
    control_plane: ControlPlane, short: bool, tmp_path: Path
) -> None:
    nodes, pods = (SHORT_NODES, SHORT_PODS) if short else (NODES, PODS)
    times = 1 if short else 10
    took: dict[signal.Signals, list[float]] = {signal.SIGTERM: [], signal.SIGKILL: []}
    async with (
        staged(control_plane, "handover") as stage,
        candidates(stage, tmp_path, nodes=nodes, count=pods) as start,
    ):
        leader = await start("leader")
        await all_marked(stage, seconds=600)
        for number, how in enumerate([signal.SIGTERM] * times + [signal.SIGKILL] * times):
            standby = await start(f"standby-{number}")
            assert not standby.work(), "a standby writes nothing"
            began = asyncio.get_running_loop().time()
            leader.program.send(how)
            at = await first_work(standby, seconds=MOST_SECONDS[how] + 60)
            took[how].append(at - began)
            say(f"{how.name} to {standby.program.name}: {at - began:.2f} s")
            await ended(leader, how)
            assert_one_after_the_other(leader, standby)
            assert_silent(leader, since=at)
            leader = standby
    for how, seconds in took.items():
        told = ", ".join(f"{each:.2f}" for each in seconds)
        say(f"{how.name}, {pods} pods, lease of {LEASE_SECONDS:g} s: taken over after {told} s")
        assert short or max(seconds) <= MOST_SECONDS[how]


async def ended(leader: Candidate, how: signal.Signals) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        code = await leader.program.process.wait()
    assert code == (0 if how == signal.SIGTERM else -how)


def assert_silent(leader: Candidate, *, since: float) -> None:
    """Reads and Leases too."""
    late = [each for each in leader.proxy.log if each.at >= since]
    assert not late, f"the old leader asked after the new one had begun: {late[:5]}"
