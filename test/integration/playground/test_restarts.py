"""Kills at any point, and a runtime that goes away: the short form of what hack/soak does for longer."""

import secrets
from random import Random

from support.playground import ControlledPlayground
from support.restarts import SteadyProbes, history_with_a_kill
from support.watched import WatchedObjects

KILLS = 5
RESTARTS = 2


async def test_a_kill_at_any_point_comes_to_the_same_end(
    playground: ControlledPlayground, watched: WatchedObjects
) -> None:
    seed = secrets.randbelow(2**32)
    random = Random(seed)
    for number in range(KILLS):
        namespace = f"kill-{seed}-{number}"
        await history_with_a_kill(playground, watched, namespace, random)


async def test_a21_a_daemon_killed_under_steady_probes_and_a_runtime_away_change_nothing(
    playground: ControlledPlayground, watched: WatchedObjects
) -> None:
    steady = SteadyProbes(playground, watched, pods=3)
    async with steady.standing():
        written = await steady.restart_the_daemon(RESTARTS)
        assert written == {}, "no condition, no label, no event"
        assert await steady.take_the_runtime_away(3.0) == {}
        assert steady.flaps() == []
