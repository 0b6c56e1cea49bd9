"""The time without a leader: one leader after the other is stopped or killed while a standby has warm caches.

The API server is real. Each manager has a proxy of its own, which logs its requests.
"""

import asyncio
import signal
from pathlib import Path

from soak.conftest import Limits
from soak.forms import forms
from support.control_plane import ControlPlane, staged
from support.managers import (
    ProxiedManager,
    all_marked,
    assert_one_after_the_other,
    first_work,
    managers,
)
from support.output import print_line
from support.patience import PATIENCE_SECONDS

LEASE_SECONDS = 15.0
MOST_SECONDS = {signal.SIGTERM: 2.0, signal.SIGKILL: LEASE_SECONDS + 2.0}
"""From the signal to the next leader's first write."""

NODES = 200
PODS = 10_000
SHORT_NODES = 4
SHORT_PODS = 40


@forms(short="40-pods-one-of-each-signal", long="10000-pods-ten-of-each-signal")
async def test_c11_and_d7_the_next_leader_works_in_time_and_the_old_one_is_silent(
    control_plane: ControlPlane, short: bool, limits: Limits, tmp_path: Path
) -> None:
    nodes = SHORT_NODES if short else NODES
    pods = SHORT_PODS if short else PODS
    times = 1 if short else 10
    took: dict[signal.Signals, list[float]] = {signal.SIGTERM: [], signal.SIGKILL: []}
    async with (
        staged(control_plane, "handover") as stage,
        managers(
            stage,
            tmp_path,
            nodes=nodes,
            count=pods,
        ) as start,
    ):
        leader = await start("leader")
        await all_marked(stage, seconds=600)
        signals = [signal.SIGTERM] * times + [signal.SIGKILL] * times
        for number, how in enumerate(signals):
            standby = await start(f"standby-{number}")
            assert not standby.work(), "a standby writes nothing"
            began = asyncio.get_running_loop().time()
            leader.program.send(how)
            first_write = await first_work(standby, seconds=MOST_SECONDS[how] + 60)
            seconds = first_write - began
            took[how].append(seconds)
            print_line(f"{how.name} to {standby.program.name}: {seconds:.2f} s")
            await assert_ended(leader, how)
            assert_one_after_the_other(leader, standby)
            assert_silent(leader, since=first_write)
            leader = standby
    for how, measured in took.items():
        limit = MOST_SECONDS[how]
        listed = ", ".join(f"{seconds:.2f}" for seconds in measured)
        print_line(
            f"{how.name}, {pods} pods, lease of {LEASE_SECONDS:g} s: taken over after {listed} s"
        )
        limits.check(
            f"after {how.name} the next leader writes within {limit:g} s",
            max(measured) <= limit,
        )
    longest_after_stop = max(took[signal.SIGTERM])
    # A killed leader is the control: its Lease must expire first.
    shortest_after_kill = min(took[signal.SIGKILL])
    assert longest_after_stop < shortest_after_kill / 4


async def assert_ended(leader: ProxiedManager, how: signal.Signals) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        code = await leader.program.process.wait()
    expected = 0 if how == signal.SIGTERM else -how
    assert code == expected


def assert_silent(leader: ProxiedManager, *, since: float) -> None:
    """It sends no request at all, also no read and no Lease."""
    late = [request for request in leader.proxy.log if request.at >= since]
    assert not late, (
        f"the old leader sent requests after the first write of the new one: {late[:5]}"
    )
