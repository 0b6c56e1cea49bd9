"""Acto's oracles: what an edit does is what its object says, and a revert brings back the state before."""

import asyncio
from typing import Any

import pytest
from support.builders import Json
from support.simulation.acto import BASE, PROPERTIES, Property, edited, schema_paths
from support.simulation.looks import differences, looks
from support.simulation.runner import STEP_SECONDS, from_scratch, simulated
from support.simulation.world import World

from kruise_probe.api.resources import MARKERS

BLOCKED_SECONDS = 45.0
"""Until a probe that cannot run is Unknown: 30 s, and the start."""


def put(world: World, spec: Json) -> bool:
    """Whether the API server accepts the spec, in place of the stored one."""
    stored = world.get(MARKERS, "base")
    body: Json = {"apiVersion": MARKERS.api_version, "kind": MARKERS.kind, "spec": spec}
    if stored is None:
        return bool(
            world.request("POST", MARKERS.path("default"), body | {"metadata": {"name": "base"}})
        )
    version = stored["metadata"]["resourceVersion"]
    body["metadata"] = {
        "name": "base",
        "resourceVersion": version,
        "finalizers": stored["metadata"].get("finalizers") or [],
    }
    return world.request("PUT", MARKERS.path("default", "base"), body) is not None


class Experiment:
    """A world at rest, in which one marker is edited."""

    def __init__(self, seed: int) -> None:
        self._simulated = simulated(seed)

    def __enter__(self) -> "Experiment":
        self.loop = self._simulated.__enter__()
        self.world = self.loop.run_until_complete(self._begin())
        assert put(self.world, BASE)
        self.before = self.settled()
        return self

    def __exit__(self, *error: Any) -> None:
        self._simulated.__exit__(*error)

    async def _begin(self) -> World:
        world = await World(0).__aenter__()
        world.populate()
        world.start()
        return world

    def settled(self) -> Json:
        """The state once nothing is written any more; it is that of a new cluster."""
        count = -1
        while count != len(self.world.commits):
            count = len(self.world.commits)
            self.loop.run_until_complete(asyncio.sleep(2 * STEP_SECONDS))
        found = looks(self.world)
        assert not differences(found, from_scratch(self.world, BLOCKED_SECONDS))
        return found


def test_every_property_of_the_schema_is_changed() -> None:
    assert sorted(schema_paths()) == sorted(each.path for each in PROPERTIES)


@pytest.mark.parametrize("change", PROPERTIES, ids=[each.path for each in PROPERTIES])
def test_a_changed_property_takes_effect_and_reverts(change: Property) -> None:
    with Experiment(1) as experiment:
        assert put(experiment.world, edited(change, change.valid))
        experiment.settled()
        assert put(experiment.world, BASE)
        assert not differences(experiment.settled(), experiment.before)
        if change.invalid is not None:
            assert not put(experiment.world, edited(change, change.invalid))
            assert not differences(experiment.settled(), experiment.before)


def test_a_sequence_of_edits_ends_as_its_last_one() -> None:
    with Experiment(2) as experiment:
        for change in PROPERTIES:
            assert put(experiment.world, edited(change, change.valid))
            experiment.loop.run_until_complete(asyncio.sleep(1.3))
        assert put(experiment.world, BASE)
        assert not differences(experiment.settled(), experiment.before)


def test_results_of_a_dead_daemon_are_unknown_and_come_back() -> None:
    with Experiment(3) as experiment:
        daemon = experiment.world.processes["daemon-node-1"]
        daemon.kill()
        experiment.loop.run_until_complete(asyncio.sleep(80))
        stale = looks(experiment.world)
        for name, node in (("web-0", "node-1"), ("web-1", "node-2")):
            status, reason, _ = stale[f"pod {name}"]["conditions"]["c/one"]
            expected = ("Unknown", "ProbeAgentStale") if node == "node-1" else ("True", "")
            assert (status, reason) == expected, name
            assert stale[f"pod {name}"]["labels"] == experiment.before[f"pod {name}"]["labels"]
        experiment.loop.call_soon(daemon.start)
        assert not differences(experiment.settled(), experiment.before)
