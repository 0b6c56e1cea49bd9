"""Kills at fifty points; a daemon killed twenty times under a hundred probes; a runtime that is away for a minute."""

from random import Random

from support.output import print_line
from support.playground import ControlledPlayground
from support.restarts import SteadyProbes, history_with_a_kill
from support.watched import watching


async def test_kills_at_random_points_come_to_the_same_end(random: Random, short: bool) -> None:
    async with ControlledPlayground() as playground, watching(playground.client) as watched:
        for number in range(1 if short else 50):
            kill = await history_with_a_kill(playground, watched, f"kill-{number}", random)
            print_line(f"{number}: {kill}")


async def test_a21_steady_probes_change_nothing_whatever_restarts(short: bool) -> None:
    async with ControlledPlayground() as playground, watching(playground.client) as watched:
        steady = SteadyProbes(playground, watched, pods=1 if short else 10)
        async with steady.standing():
            times = 1 if short else 20
            written = await steady.restart_the_daemon(times)
            print_line(f"{times} restarts of the daemon: {written or 'no writes'}")
            assert not written
            written = await steady.take_the_runtime_away(1.0 if short else 60.0)
            print_line(f"runtime away: {written or 'no writes'}")
            assert not written
            assert steady.flaps() == []
