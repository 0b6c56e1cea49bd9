"""Many groups fail over at once: the API server is real, nodes and pods are hollow."""

import asyncio
from pathlib import Path

from soak.conftest import Limits
from soak.forms import forms
from support import programs
from support.background import background
from support.control_plane import ControlPlane, staged
from support.hollow import HollowCluster, node_name, pod_name, probe
from support.output import print_line
from support.programs import ALONE
from support.target import labels

NODES = 10
SIZE = 3
"""Pods of a group."""
SHORT_GROUPS = 10
GROUPS = 100
MOST_SECONDS = 5.0
MOST_WRITES = 2
"""More for each group than without `exclusive`."""
ROLE = "role"
POLICIES = [
    {
        "state": "Succeeded",
        "labels": {ROLE: "primary"},
    }
]


class Groups:
    """Groups of pods of which one is Succeeded."""

    def __init__(self, ground: HollowCluster, count: int) -> None:
        self.api = ground.api
        self.daemons = ground.daemons
        self.count = count
        self.turn = 0
        self.daemons.result_of = self.result_of

    def result_of(self, pod: str, _probe: str) -> tuple[str, str]:
        number = int(pod.removeprefix("pod-"))
        holds = number // self.count == self.turn
        return ("Succeeded" if holds else "Failed"), "fine"

    def has_holders_of_the_turn(self) -> bool:
        holders = {
            pod["metadata"]["name"]
            for pod in self.api.pods.all()
            if labels(pod).get(ROLE) == "primary"
        }
        first = self.turn * self.count
        return holders == set(map(pod_name, range(first, first + self.count)))

    def is_edit_observed(self) -> bool:
        (marker,) = self.api.markers.all()
        status = marker.get("status") or {}
        return status.get("observedGeneration") == 2

    async def fail_over(self, how: str) -> tuple[float, int]:
        """The seconds that it took, and the writes of pods; both are printed."""
        loop = asyncio.get_running_loop()
        before = self._versions()
        self.turn = (self.turn + 1) % SIZE
        began = loop.time()
        await self.daemons.write_all()
        await self.api.pods.wait("all have moved", self.has_holders_of_the_turn)
        took = loop.time() - began
        await asyncio.sleep(2)  # for writes that come later
        writes = self._versions() - before
        print_line(f"{self.count} groups {how}: {took:.2f} s, {writes} writes of pods")
        return took, writes

    def _versions(self) -> int:
        histories = self.api.pods.history.values()
        return sum(map(len, histories))


@forms(short="10-groups", long="100-groups")
async def test_all_groups_fail_over_in_time_with_two_writes_more(
    control_plane: ControlPlane, short: bool, limits: Limits, tmp_path: Path
) -> None:
    count = SHORT_GROUPS if short else GROUPS
    async with staged(control_plane, "failovers") as ground:
        groups = Groups(ground, count)
        hollow = ground.hollow
        await hollow.add_nodes(NODES)
        for number in range(count * SIZE):
            node = node_name(number % NODES)
            group = {"app": "web", "shard": str(number % count)}
            await hollow.add_pod(number, node=node, labels=group)
        await hollow.add_marker(probe(markerPolicy=POLICIES))
        async with programs.running("manager", control_plane.kubeconfig, tmp_path, ALONE):
            async with background(ground.daemons.follow()):
                await ground.api.pods.wait("all have a holder", groups.has_holders_of_the_turn)
            _, usual_writes = await groups.fail_over("without exclusive")
            exclusive = probe(markerPolicy=POLICIES, exclusive={"groupByLabel": "shard"})
            await hollow.edit_marker(exclusive)
            await ground.api.markers.wait("the edit is observed", groups.is_edit_observed)
            for _ in range(SIZE):
                took, writes = await groups.fail_over("with exclusive")
                assert writes <= usual_writes + MOST_WRITES * count
                limits.check(f"all move within {MOST_SECONDS} s", took <= MOST_SECONDS)
