"""Experiments on one long-lived world, with Acto's oracles: edits of one marker, and a daemon that dies.

| Oracle | Rule |
|---|---|
| `DIFFERENTIAL` | an edit leads to the state of a new cluster with the same objects |
| `RECOVERY` | when an edit is reverted, the state is the one before it |
| `VALIDATION` | the API server accepts valid values, and refuses invalid ones |
| `STALENESS` | the results of a dead daemon are Unknown, and only these |

Each function raises `Failed` with the oracle that does not hold.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from simulation.acto import BASE, Property, edited
from simulation.edits import create_marker, populate
from simulation.looks import differences, looks
from simulation.loop import SimulatedLoop
from simulation.runner import STEP_SECONDS, Failed, expect_none, from_scratch, simulated
from simulation.world import NAMESPACE, World
from support.wire import Json

from kruise_probe.api.resources import MARKERS

DIFFERENTIAL = "an edit ends as on a new cluster"
RECOVERY = "a revert restores the state"
VALIDATION = "valid values are accepted and invalid ones refused"
STALENESS = "results of a dead daemon are Unknown"

BLOCKED_SECONDS = 45.0
"""Until a probe that cannot run is Unknown: 30 s, and the start."""

STALE_SECONDS = 80.0
"""Until the pods of a dead daemon are marked: its Lease of 60 s, and the check of its expiry."""


class Experiment:
    """A world at rest with the marker `BASE`; `before` is its state."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.world = loop.run_until_complete(self._begin())
        self.put(BASE)
        self.before = self._at_rest()
        self._expect_new_cluster(self.before)

    async def _begin(self) -> World:
        world = await World(0).__aenter__()
        populate(world)
        world.start()
        return world

    def put(self, spec: Json, *, valid: bool = True) -> None:
        """Send the marker with this spec."""
        world = self.world
        stored = world.get(MARKERS, "base")
        if stored is None:
            answer = create_marker(world, "base", spec)
        else:
            path = MARKERS.path(NAMESPACE, "base")
            answer = world.request("PUT", path, {**stored, "spec": spec})
        if (answer is not None) is not valid:
            outcome = "refused" if valid else "accepted"
            raise Failed(VALIDATION, [f"{outcome}: {spec}"])

    def expect_new_cluster(self) -> None:
        self._expect_new_cluster(self._at_rest())

    def expect_state_before(self) -> None:
        found = self._at_rest()
        expect_none(RECOVERY, differences(found, self.before))
        self._expect_new_cluster(found)

    def _at_rest(self) -> Json:
        """The state once nothing is written any more."""
        count = -1
        while count != len(self.world.commits):
            count = len(self.world.commits)
            self.loop.run_until_complete(asyncio.sleep(2 * STEP_SECONDS))
        return looks(self.world)

    def _expect_new_cluster(self, found: Json) -> None:
        expected = from_scratch(self.world, BLOCKED_SECONDS)
        spec = self.world.objects(MARKERS)["base"]["spec"]
        if any("exclusive" in probe for probe in spec["probes"]):
            found = _of_any_holder(found)
            expected = _of_any_holder(expected)
        expect_none(DIFFERENTIAL, differences(found, expected))


def _of_any_holder(found: Json) -> Json:
    """The pods by their looks instead of their names: which of them takes a role first is chance."""
    pods = sorted((look for name, look in found.items() if name.startswith("pod ")), key=str)
    others = {name: look for name, look in found.items() if not name.startswith("pod ")}
    return others | {f"pod {place}": look for place, look in enumerate(pods)}


@contextmanager
def experimenting(seed: int) -> Iterator[Experiment]:
    with simulated(seed) as loop:
        yield Experiment(loop)


def change_and_revert(change: Property) -> None:
    """Set the property to its valid value and back, then to its invalid one."""
    with experimenting(1) as experiment:
        experiment.put(edited(change, change.valid))
        experiment.expect_new_cluster()
        experiment.put(BASE)
        experiment.expect_state_before()
        if change.invalid is not None:
            experiment.put(edited(change, change.invalid), valid=False)
            experiment.expect_state_before()


def kill_a_daemon() -> None:
    """Kill the daemon of one node until its results are stale, then start it again."""
    with experimenting(3) as experiment:
        daemon = experiment.world.processes["daemon-node-1"]
        daemon.kill()
        experiment.loop.run_until_complete(asyncio.sleep(STALE_SECONDS))
        expect_none(STALENESS, _wrong_staleness(looks(experiment.world), experiment.before))
        experiment.loop.call_soon(daemon.start)
        experiment.expect_state_before()


def _wrong_staleness(found: Json, before: Json) -> list[str]:
    """The policy for Unknown is applied to the pod of the dead daemon, and to no other."""
    problems = []
    for name, expected, mark in (
        ("pod web-0", ("Unknown", "ProbeDaemonStale"), "z"),
        ("pod web-1", ("True", ""), "x"),
    ):
        pod = found[name]
        status, reason, _ = pod["conditions"]["c/one"]
        if (status, reason) != expected:
            problems.append(f"{name}: is {(status, reason)}, should be {expected}")
        if pod["labels"] != before[name]["labels"] | {"l1": mark}:
            problems.append(f"{name}: other labels")
    return problems
