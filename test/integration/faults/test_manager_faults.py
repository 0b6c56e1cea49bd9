"""A manager of its own process, and an API server that does not play along."""

import asyncio
import itertools
import sys

from integration.fault_steps import all_pods
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
from support.target import annotations, condition, labels, pod_path, status_of
from support.wire import Json

from kruise_probe.api.names import MARKER_FINALIZER


def probes_of(report: Json) -> int:
    entries = report["spec"].get("podProbes") or ()
    return sum(len(entry["probes"]) for entry in entries)


def is_good(pod: Json) -> bool:
    return status_of(pod, CONDITION) == "True" and labels(pod).get(LABEL) == "good"


def is_bare(pod: Json) -> bool:
    marks = {*labels(pod), *annotations(pod)}
    return not condition(pod, CONDITION) and not marks & {LABEL, ANNOTATION}


async def test_a2_a_node_whose_writes_fail_for_ever_delays_no_other_and_is_named(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.hollow.add_nodes(10)
    await cluster.hollow.add_pods(20, nodes=10)
    bad = node_name(3)
    cluster.proxy.fail(
        500,
        when=lambda seen: seen.writes and seen.path.endswith(f"/{bad}"),
    )
    reports = cluster.api.node_pod_probes
    async with cluster.manager(), background(cluster.daemons.follow()):
        await reports.wait(
            "every node has a report",
            lambda: len(reports.all()) == 10,
        )
        marker = await cluster.hollow.add_marker(probe())

        def is_good_or_of_the_bad_node(pod: Json) -> bool:
            return is_good(pod) or pod["spec"]["nodeName"] == bad

        def names_the_node(marker: Json) -> bool:
            status = marker.get("status", {})
            return bad in str(status.get("conditions")) and status.get("nodesBehind") == 1

        await all_pods(cluster, "the others are marked", is_good_or_of_the_bad_node)
        found = await cluster.api.markers.until(
            "its status names the node, and no other",
            names_the_node,
            name="marker",
            namespace="default",
        )
        assert found["status"]["observedGeneration"] == marker["metadata"]["generation"]
        cluster.proxy.heal()
        await all_pods(cluster, "all are marked", is_good)


async def test_a_webhook_that_holds_the_writes_of_one_namespace_delays_no_other(
    cluster: EmbeddedCluster,
) -> None:
    slow = Hollow(cluster.api, "slow")
    await cluster.api.create("/api/v1/namespaces", {"metadata": {"name": slow.namespace}})
    await cluster.hollow.add_nodes(2)
    await cluster.hollow.add_pods(10, nodes=1)
    numbers = range(1000, 1150)
    await run_concurrently(slow.add_pod(number, node=node_name(1)) for number in numbers)
    loop = asyncio.get_running_loop()
    failing = {pod_name(number) for number in numbers}

    def result_of(pod: str, _probe: str) -> tuple[str, str]:
        return "Failed" if pod in failing else "Succeeded", ""

    def is_bad_or_slow(pod: Json) -> bool:
        return pod["metadata"]["namespace"] == slow.namespace or labels(pod)[LABEL] == "bad"

    async with cluster.manager(), background(cluster.daemons.follow()):
        await slow.add_marker(probe())
        await cluster.hollow.add_marker(probe())
        await all_pods(cluster, "marked", is_good)
        cluster.proxy.hold(
            20,
            when=lambda seen: "/slow/pods/" in seen.path and seen.writes,
        )
        cluster.daemons.result_of = result_of
        held_from = loop.time()
        await cluster.daemons.write(node_name(1))
        await cluster.proxy.until(
            "writes are held",
            lambda: cluster.proxy.count(since=held_from)["patch pods/status"] >= 47,
        )
        failing |= {pod_name(number) for number in range(10)}
        changed_at = loop.time()
        await cluster.daemons.write(node_name(0))
        await all_pods(cluster, "the pods of the other namespace are marked", is_bad_or_slow)
        seconds = loop.time() - changed_at
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
    cluster.proxy.fail(
        500,
        when=lambda seen: seen.resource == "pods" and not seen.writes,
    )
    async with cluster.manager():
        began = asyncio.get_running_loop().time()

        def have_failed_twice() -> bool:
            failures = cluster.proxy.count(
                lambda seen: seen.code == 500,
                since=began,
            )
            return failures.total() >= 2

        await cluster.proxy.until("lists of pods have failed twice", have_failed_twice)
        marker = cluster.api.markers.current("marker", "default")
        assert marker["metadata"]["finalizers"] == [MARKER_FINALIZER]
        assert not cluster.proxy.writes(since=began), "nothing is written without a list"
        assert all(is_good(pod) for pod in cluster.api.pods.all())
        cluster.proxy.heal()
        await cluster.api.markers.until_gone("marker", "default")
    await all_pods(cluster, "bare", is_bare)
    assert [probes_of(report) for report in cluster.api.node_pod_probes.all()] == [0, 0]


async def test_a38_fifty_label_edits_a_second_by_another_client_are_kept_and_so_are_ours(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.hollow.add_nodes(1)
    await cluster.hollow.add_pods(1, nodes=1)
    node = node_name(0)
    pod = pod_name(0)
    enough = 100
    state = "Succeeded"
    cluster.daemons.result_of = lambda pod, name: (state, state)
    edits = 0
    written: dict[str, str] = {}
    editing = True

    async def keep_editing() -> None:
        # Stops only between edits: after a cancelled edit the test does not know whether it was stored.
        nonlocal edits
        while editing:
            label = {f"other/{edits % 40}": str(edits)}
            await cluster.api.merge(
                pod_path(pod), {"metadata": {"labels": {**label, "app": "web"}}}
            )
            written.update(label)
            edits += 1
            await asyncio.sleep(0.02)

    async def until_labelled(value: str) -> None:
        await cluster.api.pods.until(
            f"its label is {value}",
            lambda pod: labels(pod).get(LABEL) == value,
            name=pod,
            namespace="default",
        )

    async with cluster.manager():
        await cluster.hollow.add_marker(probe())
        reports = cluster.api.node_pod_probes
        await reports.until(
            "has the probe",
            lambda report: probes_of(report) == 1,
            name=node,
        )
        async with asyncio.TaskGroup() as clients:
            clients.create_task(keep_editing())
            results = itertools.cycle((("Succeeded", "good"), ("Failed", "bad")))
            while edits <= enough:
                state, value = next(results)
                await cluster.daemons.write(node)
                await until_labelled(value)
            editing = False
    stored = cluster.server.object("pods", pod, "default")
    assert stored is not None
    found = labels(stored)
    others = {key: value for key, value in found.items() if key.startswith("other/")}
    assert others == written
    assert found["app"] == "web"
    assert cluster.server.faults.count(code=409) == 0
