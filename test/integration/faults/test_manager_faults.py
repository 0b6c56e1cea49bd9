"""A manager of its own process, and an API server that does not play along."""

import asyncio
import itertools
from collections import Counter
from typing import Any

from support.background import background
from support.hollow import ANNOTATION, CONDITION, LABEL, node_name, pod_name, probe
from support.world import annotations, condition, labels

from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.playground.raw_api import node_pod_probe_path, pod_path

Json = dict[str, Any]


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


async def all_pods(arena: Any, what: str, holds: Any, *, seconds: float = 30) -> None:
    pods = arena.world.pods
    await pods.wait(what, lambda: all(holds(each) for each in pods.all()), seconds=seconds)


async def all_reports(arena: Any, count: int) -> None:
    reports = arena.world.reports
    await reports.wait("every node has a report", lambda: len(reports.all()) == count)


async def test_a1_a_marker_edited_under_a_thousand_pods_whose_messages_change_meets_no_conflict(
    arena,
):
    nodes, pods = 250, 1_000
    await arena.hollow.add_nodes(nodes)
    await arena.hollow.add_pods(pods, nodes=nodes)
    ticks = iter(range(10**9))
    arena.daemons.verdict = lambda pod, name: ("Succeeded", f"tick {next(ticks)}")
    async with arena.manager():
        await arena.hollow.add_marker(probe())
        reports = arena.world.reports

        def all_ask(seconds: int) -> bool:
            asked = [
                each["probe"].get("periodSeconds")
                for report in reports.all()
                for entry in report["spec"].get("podProbes") or ()
                for each in entry["probes"]
            ]
            return asked == [seconds] * pods

        await reports.wait("250 nodes ask", lambda: all_ask(1))
        async with background(arena.daemons.talk()):
            await reports.wait("daemons write", lambda: arena.daemons.writes > nodes)
            edited = probe()
            edited["probe"]["periodSeconds"] = 2
            await arena.hollow.edit_marker(edited)
            await reports.wait("250 nodes are edited", lambda: all_ask(2))
    assert arena.server.faults.count(code=409) == 0
    assert arena.daemons.refused == []
    patched = Counter(
        each.path
        for each in arena.proxy.log
        if each.method == "PATCH" and each.resource == "nodepodprobes"
    )
    assert set(patched.values()) <= {1, 2}, "one write for each node and change"


async def test_a2_a_node_whose_writes_fail_for_ever_delays_no_other_and_is_named(arena):
    await arena.hollow.add_nodes(10)
    await arena.hollow.add_pods(20, nodes=10)
    bad = node_name(3)
    arena.proxy.fail(500, when=lambda seen: seen.writes and seen.path.endswith(f"/{bad}"))
    async with arena.manager(), background(arena.daemons.follow()):
        await all_reports(arena, 10)
        marker = await arena.hollow.add_marker(probe())
        good_pods = [pod_name(number) for number in range(20) if number % 10 != 3]

        def all_good() -> bool:
            found = [arena.world.pods.newest(each, "default") for each in good_pods]
            return all(pod is not None and is_good(pod) for pod in found)

        await arena.world.pods.wait("the others are marked", all_good)
        told = await arena.world.markers.until(
            "tells of the node, and of no other",
            lambda each: (
                bad in str(each.get("status", {}).get("conditions"))
                and each["status"].get("nodesBehind") == 1
            ),
            name="marker",
            namespace="default",
        )
        assert told["status"]["observedGeneration"] == marker["metadata"]["generation"]
        arena.proxy.heal()
        await all_pods(arena, "all are marked", is_good)


async def test_a6_a_list_that_fails_during_a_deletion_keeps_the_finalizer(arena):
    await arena.hollow.add_nodes(2)
    await arena.hollow.add_pods(4, nodes=2)
    async with arena.manager(), background(arena.daemons.follow()):
        await arena.hollow.add_marker(probe())
        await all_pods(arena, "marked", is_good)
    await arena.hollow.remove_marker()
    arena.proxy.fail(500, when=lambda seen: seen.resource == "pods" and not seen.writes)
    async with arena.manager():
        began = asyncio.get_running_loop().time()
        await arena.proxy.until(
            "pods were asked for",
            lambda: arena.proxy.count(lambda seen: seen.code == 500, since=began).total() >= 2,
        )
        marker = arena.world.markers.newest("marker", "default")
        assert marker["metadata"]["finalizers"] == [MARKER_FINALIZER]
        assert not arena.proxy.writes(since=began), "nothing is written on half the truth"
        assert all(is_good(each) for each in arena.world.pods.all())
        arena.proxy.heal()
        await arena.world.markers.until_gone("marker", "default")
    await all_pods(arena, "bare", is_bare)
    assert [probes_of(each) for each in arena.world.reports.all()] == [0, 0]


async def test_a38_a_client_that_edits_labels_fifty_times_a_second_loses_none_and_neither_do_we(
    arena,
):
    await arena.hollow.add_nodes(1)
    await arena.hollow.add_pods(1, nodes=1)
    enough = 100
    state = "Succeeded"
    arena.daemons.verdict = lambda pod, name: (state, state)
    edits = 0
    editing = True

    async def keep_editing() -> None:
        # Ended between two edits, never within one: whether that one arrived could not be told.
        nonlocal edits
        while editing:
            change = {"metadata": {"labels": {f"other/{edits % 40}": str(edits), "app": "web"}}}
            await arena.api.merge(pod_path(pod_name(0)), change)
            edits += 1
            await asyncio.sleep(0.02)

    async with arena.manager():
        await arena.hollow.add_marker(probe())
        await arena.world.reports.until(
            "asks", lambda each: probes_of(each) == 1, name=node_name(0)
        )
        async with asyncio.TaskGroup() as clients:
            clients.create_task(keep_editing())
            for number in itertools.count():
                if edits > enough:
                    break
                state = "Failed" if number % 2 else "Succeeded"
                await arena.daemons.write(node_name(0))
                mark = "bad" if number % 2 else "good"
                await arena.world.pods.until(
                    f"flip {number}",
                    lambda each, mark=mark: labels(each).get(LABEL) == mark,
                    name=pod_name(0),
                    namespace="default",
                )
            editing = False
    pod = arena.server.object("pods", pod_name(0), "default")
    others = {key: value for key, value in labels(pod).items() if key.startswith("other/")}
    assert others == {f"other/{each % 40}": str(each) for each in range(max(0, edits - 40), edits)}
    assert labels(pod)["app"] == "web"
    assert arena.server.faults.count(code=409) == 0


async def test_a7_a_deleted_marker_leaves_pods_as_they_were_before_it(arena):
    await arena.hollow.add_nodes(2)
    await arena.hollow.add_pods(6, nodes=2)
    before = {
        each["metadata"]["name"]: (labels(each), annotations(each), each["status"]["conditions"])
        for each in arena.world.pods.all()
    }
    async with arena.manager(), background(arena.daemons.follow()):
        await arena.hollow.add_marker(probe())
        await all_pods(arena, "marked", is_good)
        await arena.hollow.remove_marker()
        await arena.world.markers.until_gone("marker", "default")
        await all_pods(arena, "bare", is_bare)
    after = {
        each["metadata"]["name"]: (labels(each), annotations(each), each["status"]["conditions"])
        for each in arena.server.objects("pods")
    }
    assert after == before


async def test_a31_a_node_deleted_while_its_key_waits_stays_without_a_report(arena):
    await arena.hollow.add_nodes(3)
    await arena.hollow.add_pods(3, nodes=3)
    doomed = node_name(1)
    arena.proxy.fail(500, when=lambda seen: seen.writes and seen.path.endswith(f"/{doomed}"))
    async with arena.manager():
        await all_reports(arena, 3)
        await arena.hollow.add_marker(probe())
        await arena.proxy.until(
            "a write of its key has failed",
            lambda: bool(arena.proxy.count(lambda seen: seen.code == 500)),
        )
        await arena.api.delete(f"/api/v1/nodes/{doomed}")
        await arena.world.reports.until_gone(doomed)
        arena.proxy.heal()
        healed = asyncio.get_running_loop().time()
        await arena.hollow.edit_marker(probe(), probe("second", podConditionType="example.com/two"))
        for name in (node_name(0), node_name(2)):
            await arena.world.reports.until(
                "has both", lambda each: probes_of(each) == 2, name=name
            )
        made = [
            each
            for each in arena.proxy.log
            if each.at > healed and each.path == node_pod_probe_path(doomed)
        ]
        assert arena.world.reports.newest(doomed) is None, made


async def test_a37_an_agent_that_falls_silent_makes_results_unknown_and_its_return_brings_them_back(
    arena,
):
    await arena.hollow.add_nodes(2)
    await arena.hollow.add_pods(4, nodes=2)
    for number in range(2):
        await arena.daemons.renew_lease(node_name(number), seconds=3600)
    async with arena.manager(), background(arena.daemons.follow()):
        await arena.hollow.add_marker(probe())
        await all_pods(arena, "marked", is_good)
        silent = node_name(0)
        await arena.daemons.renew_lease(silent, seconds=2)
        stale = await arena.world.pods.until(
            "is unknown",
            lambda each: condition(each, CONDITION).get("status") == "Unknown",
            name=pod_name(0),
            namespace="default",
        )
        assert condition(stale, CONDITION)["reason"] == "ProbeAgentStale"
        assert labels(stale)[LABEL] == "good", "marks are kept"
        assert is_good(arena.world.pods.newest(pod_name(1), "default")), "the other is well"
        await arena.daemons.renew_lease(silent, seconds=3600)
        await all_pods(arena, "good again", is_good)


async def test_c14_whatever_was_missed_while_watches_broke_is_made_good(arena):
    await arena.hollow.add_nodes(4)
    await arena.hollow.add_pods(12, nodes=4)
    async with arena.manager() as manager, background(arena.daemons.follow()):
        await manager.ready()
        arena.proxy.black_hole()
        arena.proxy.reset()
        await arena.hollow.add_marker(probe())
        await arena.hollow.remove_pod(pod_name(5))
        await arena.api.merge(pod_path(pod_name(6)), {"metadata": {"labels": {"app": "other"}}})
        arena.server.expire()
        arena.proxy.heal()
        arena.proxy.reset()

        def as_it_should_be() -> bool:
            pods = {each["metadata"]["name"]: each for each in arena.world.pods.all()}
            other = pods.pop(pod_name(6))
            return (
                is_bare(other) and len(pods) == 10 and all(is_good(each) for each in pods.values())
            )

        await arena.world.pods.wait("the truth", as_it_should_be)
        assert manager.running


async def test_c12_a_server_that_asks_to_wait_is_obeyed_and_nothing_is_lost(arena):
    await arena.hollow.add_nodes(2)
    await arena.hollow.add_pods(4, nodes=2)
    arena.proxy.fail(
        429,
        reason="TooManyRequests",
        times=4,
        retry_after_seconds=1,
        when=lambda seen: seen.resource == "pods/status",
    )
    async with arena.manager(), background(arena.daemons.follow()):
        await arena.hollow.add_marker(probe())
        await all_pods(arena, "marked", is_good)
    tries: dict[str, list[float]] = {}
    for each in arena.proxy.log:
        if each.resource == "pods/status":
            tries.setdefault(each.path, []).append(each.at)
    assert [len(times) for times in tries.values()] == [2] * 4
    assert all(again - first >= 1.0 for first, again in tries.values())
