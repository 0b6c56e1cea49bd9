"""A manager of its own process, and an API server that does not play along."""

import asyncio
import itertools
import sys
from typing import Any

from support.background import background
from support.embedded_cluster import EmbeddedCluster
from support.hollow import (
    ANNOTATION,
    CONDITION,
    LABEL,
    Hollow,
    node_name,
    pod_name,
    probe,
    run_concurrently,
)
from support.patience import PATIENCE_SECONDS
from support.target import annotations, condition, labels, pod_path
from support.wire import Json

from kruise_probe.api.names import MARKER_FINALIZER


def probes_of(report: Json | None) -> int:
    entries = (report or {"spec": {}})["spec"].get("podProbes") or ()
    return sum(len(each["probes"]) for each in entries)


def is_good(pod: Json) -> bool:
    return condition(pod, CONDITION).get("status") == "True" and labels(pod).get(LABEL) == "good"


def is_bare(pod: Json) -> bool:
    return (
        not condition(pod, CONDITION)
        and LABEL not in labels(pod)
        and ANNOTATION not in annotations(pod)
    )


async def all_pods(
    cluster: Any, what: str, holds: Any, *, seconds: float = PATIENCE_SECONDS
) -> None:
    pods = cluster.api.pods
    await pods.wait(what, lambda: all(holds(each) for each in pods.all()), seconds=seconds)


async def all_reports(cluster: Any, count: int) -> None:
    reports = cluster.api.node_pod_probes
    await reports.wait("every node has a report", lambda: len(reports.all()) == count)


async def test_a2_a_node_whose_writes_fail_for_ever_delays_no_other_and_is_named(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.hollow.add_nodes(10)
    await cluster.hollow.add_pods(20, nodes=10)
    bad = node_name(3)
    cluster.proxy.fail(500, when=lambda seen: seen.writes and seen.path.endswith(f"/{bad}"))
    async with cluster.manager(), background(cluster.daemons.follow()):
        await all_reports(cluster, 10)
        marker = await cluster.hollow.add_marker(probe())
        good_pods = [pod_name(number) for number in range(20) if number % 10 != 3]

        def all_good() -> bool:
            found = [cluster.api.pods.newest(each, "default") for each in good_pods]
            return all(pod is not None and is_good(pod) for pod in found)

        await cluster.api.pods.wait("the others are marked", all_good)
        told = await cluster.api.markers.until(
            "tells of the node, and of no other",
            lambda each: (
                bad in str(each.get("status", {}).get("conditions"))
                and each["status"].get("nodesBehind") == 1
            ),
            name="marker",
            namespace="default",
        )
        assert told["status"]["observedGeneration"] == marker["metadata"]["generation"]
        cluster.proxy.heal()
        await all_pods(cluster, "all are marked", is_good)


async def test_a_webhook_that_holds_the_writes_of_one_namespace_delays_no_other(
    cluster: EmbeddedCluster,
) -> None:
    slow = Hollow(cluster.api, "slow")
    await cluster.api.create("/api/v1/namespaces", {"metadata": {"name": slow.namespace}})
    await cluster.hollow.add_nodes(2)
    await cluster.hollow.add_pods(10, nodes=1)
    await run_concurrently(slow.add_pod(1000 + n, node=node_name(1)) for n in range(150))
    async with cluster.manager(), background(cluster.daemons.follow()):
        await slow.add_marker(probe())
        await cluster.hollow.add_marker(probe())
        await all_pods(cluster, "marked", is_good)
        cluster.proxy.hold(20, when=lambda seen: "/slow/pods/" in seen.path and seen.writes)
        cluster.daemons.result_of = lambda pod, _: (
            "Failed" if len(pod) > len(pod_name(0)) else "Succeeded",
            "",
        )
        held_from = asyncio.get_running_loop().time()
        await cluster.daemons.write(node_name(1))
        await cluster.proxy.until(
            "writes are held",
            lambda: cluster.proxy.count(since=held_from)["patch pods/status"] >= 47,
        )
        cluster.daemons.result_of = lambda pod, name: ("Failed", "")
        changed_at = asyncio.get_running_loop().time()
        await cluster.daemons.write(node_name(0))
        await cluster.api.pods.wait(
            "the pods of the other namespace are marked",
            lambda: all(
                labels(pod)[LABEL] == "bad"
                for pod in cluster.api.pods.all()
                if pod["metadata"]["namespace"] != slow.namespace
            ),
        )
        seconds = asyncio.get_running_loop().time() - changed_at
        sys.stdout.write(f"marked after {seconds:.2f} s\n")
        assert seconds < 5, "1 s on a quiet machine, 20 s if it waits for the others' writes"


async def test_a6_a_list_that_fails_during_a_deletion_keeps_the_finalizer(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.hollow.add_nodes(2)
    await cluster.hollow.add_pods(4, nodes=2)
    async with cluster.manager(), background(cluster.daemons.follow()):
        await cluster.hollow.add_marker(probe())
        await all_pods(cluster, "marked", is_good)
    await cluster.hollow.remove_marker()
    cluster.proxy.fail(500, when=lambda seen: seen.resource == "pods" and not seen.writes)
    async with cluster.manager():
        began = asyncio.get_running_loop().time()
        await cluster.proxy.until(
            "pods were asked for",
            lambda: cluster.proxy.count(lambda seen: seen.code == 500, since=began).total() >= 2,
        )
        marker = cluster.api.markers.current("marker", "default")
        assert marker["metadata"]["finalizers"] == [MARKER_FINALIZER]
        assert not cluster.proxy.writes(since=began), "nothing is written on half the truth"
        assert all(is_good(each) for each in cluster.api.pods.all())
        cluster.proxy.heal()
        await cluster.api.markers.until_gone("marker", "default")
    await all_pods(cluster, "bare", is_bare)
    assert [probes_of(each) for each in cluster.api.node_pod_probes.all()] == [0, 0]


async def test_a38_fifty_label_edits_a_second_by_another_client_are_kept_and_so_are_ours(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.hollow.add_nodes(1)
    await cluster.hollow.add_pods(1, nodes=1)
    enough = 100
    state = "Succeeded"
    cluster.daemons.result_of = lambda pod, name: (state, state)
    edits = 0
    editing = True

    async def keep_editing() -> None:
        # Ended between two edits, never within one: whether that one arrived could not be told.
        nonlocal edits
        while editing:
            change = {"metadata": {"labels": {f"other/{edits % 40}": str(edits), "app": "web"}}}
            await cluster.api.merge(pod_path(pod_name(0)), change)
            edits += 1
            await asyncio.sleep(0.02)

    async with cluster.manager():
        await cluster.hollow.add_marker(probe())
        await cluster.api.node_pod_probes.until(
            "asks", lambda each: probes_of(each) == 1, name=node_name(0)
        )
        async with asyncio.TaskGroup() as clients:
            clients.create_task(keep_editing())
            for number in itertools.count():
                if edits > enough:
                    break
                state = "Failed" if number % 2 else "Succeeded"
                await cluster.daemons.write(node_name(0))
                mark = "bad" if number % 2 else "good"
                await cluster.api.pods.until(
                    f"flip {number}",
                    lambda each, mark=mark: labels(each).get(LABEL) == mark,
                    name=pod_name(0),
                    namespace="default",
                )
            editing = False
    pod = cluster.server.object("pods", pod_name(0), "default")
    assert pod is not None
    others = {key: value for key, value in labels(pod).items() if key.startswith("other/")}
    assert others == {f"other/{each % 40}": str(each) for each in range(max(0, edits - 40), edits)}
    assert labels(pod)["app"] == "web"
    assert cluster.server.faults.count(code=409) == 0
