"""A manager of its own process, and watches that do not stay."""

import asyncio
from typing import Any

import pytest
from support.background import background
from support.embedded_cluster import EmbeddedCluster
from support.hollow import CONDITION, node_name, probe
from support.proxy import SeenRequest
from support.target import condition


def is_good(pod: Any) -> bool:
    return condition(pod, CONDITION).get("status") == "True"


async def all_good(cluster: Any) -> None:
    pods = cluster.api.pods
    await pods.wait("all pods are good", lambda: all(map(is_good, pods.all())))


def is_list_of_pods(seen: SeenRequest) -> bool:
    return seen.resource == "pods" and not seen.writes and not seen.watch


@pytest.mark.parametrize("trouble", ["reset", "expired", "errors", "paused"])
async def test_changes_during_an_outage_are_made_good_exactly(
    cluster: EmbeddedCluster, trouble: str
) -> None:
    await cluster.hollow.add_nodes(3)
    await cluster.hollow.add_pods(9, nodes=3)
    async with cluster.manager() as manager, background(cluster.daemons.follow()):
        await cluster.hollow.add_marker(probe())
        await all_good(cluster)
        began = asyncio.get_running_loop().time()
        match trouble:
            case "paused" | "expired":
                cluster.proxy.pause()
            case "errors":
                cluster.proxy.fail(500)
            case _:
                pass
        cluster.proxy.reset()
        await cluster.hollow.remove_pod("pod-4")
        await cluster.hollow.add_pods(3, nodes=3, first=20)
        await cluster.hollow.edit_marker(probe(podConditionType="example.com/renamed"))
        if trouble == "expired":
            cluster.server.expire()
        cluster.proxy.heal()

        def exact() -> bool:
            return len(cluster.api.pods.all()) == 11 and all(
                condition(each, "example.com/renamed").get("status") == "True"
                and not condition(each, CONDITION)
                for each in cluster.api.pods.all()
            )

        await cluster.api.pods.wait("the new condition is on all pods", exact)
        lists = cluster.proxy.count(is_list_of_pods, since=began)
        streamed = cluster.proxy.count(
            lambda seen: seen.resource == "pods" and seen.watch and seen.code == 200, since=began
        )
        assert lists.total() <= 2, "a version that is too old costs one list, two at most"
        assert streamed.total() <= 3
        entries = {
            entry["name"]
            for number in range(3)
            for entry in cluster.api.node_pod_probes.current(node_name(number))["spec"]["podProbes"]
        }
        assert "pod-4" not in entries
        assert manager.running
