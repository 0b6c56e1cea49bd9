"""The recipes do what they say, on the YAML that stands in the docs."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import yaml
from support.files import write_at_once
from support.pages import ROOT, Block, block, blocks_of
from support.playground import ControlledPlayground
from support.shell import environment
from support.target import annotations, condition, labels, marker_path, pod_path
from support.usage_namespace import UsageNamespace

from kruise_probe_playground.documents import objects_for

Json = dict[str, Any]

COST = "controller.kubernetes.io/pod-deletion-cost"


async def apply(ns: Any, recipe: Block) -> None:
    for document in recipe.documents:
        await ns.apply_objects(objects_for(document))


def recipe(heading: str) -> Block:
    return block("recipes.md", heading)


async def test_a_scale_in_deletes_the_idle_game_server_first(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    await apply(ns, recipe("Idle game servers: scale in the empty ones first"))
    first, second = await ns.pod_names(2)
    for name in (first, second):
        await ns.shows(name, lambda pod: labels(pod).get("gameserver-idle") == "true")

    write_at_once(ns.folder(first, "game-server") / "players", "4\n")

    playing = await ns.shows(first, lambda pod: labels(pod).get("gameserver-idle") == "false")
    idle = await ns.shows(second, lambda pod: annotations(pod).get(COST))
    assert condition(playing, "game.io/idle")["message"] == "4 players"
    assert int(annotations(idle)[COST]) < int(annotations(playing)[COST])

    path = f"/apis/apps/v1/namespaces/{ns.namespace}/replicasets/game-server/scale"
    await playground.api.merge(path, {"spec": {"replicas": 1}})
    assert await ns.pod_names(1) == [first]


async def test_the_first_example_writes_the_marks_that_it_shows(ns: UsageNamespace) -> None:
    await apply(ns, block("get-started.md", "Scale in without losing a match"))

    first, second = await ns.pod_names(2)
    idle = await ns.shows(first, lambda pod: annotations(pod).get(COST) == "-10")
    shown = condition(idle, "game.example.com/idle")
    assert (shown["status"], shown["message"]) == ("True", "0 players")

    await ns.shows(second, lambda pod: annotations(pod).get(COST) == "-10")
    write_at_once(ns.folder(second, "server") / "players", "4\n")

    await ns.shows(second, lambda pod: annotations(pod).get(COST) == "10")


async def test_the_role_label_follows_the_primary(ns: UsageNamespace) -> None:
    await apply(ns, recipe("Primary and secondary: route writes, update the primary last"))
    role = "db.example.com/role"
    await ns.shows("db-0", lambda pod: labels(pod).get(role) == "secondary")
    write_at_once(ns.folder("db-0", "db") / "role", "primary\n")
    await ns.shows("db-0", lambda pod: labels(pod).get(role) == "primary")
    await ns.shows("db-1", lambda pod: labels(pod).get(role) == "secondary")

    write_at_once(ns.folder("db-0", "db") / "role", "secondary\n")
    write_at_once(ns.folder("db-1", "db") / "role", "primary\n")

    await ns.shows("db-0", lambda pod: labels(pod).get(role) == "secondary")
    await ns.shows("db-1", lambda pod: labels(pod).get(role) == "primary")


async def test_the_number_of_players_is_the_deletion_cost(ns: UsageNamespace) -> None:
    await apply(ns, recipe("Players: the number itself as deletion cost"))
    await ns.shows("lobby", lambda pod: annotations(pod).get(COST) == "0")

    players = ns.folder("lobby", "server") / "players"
    for text, cost in (
        ("7\n", "7"),
        ("starting\n", "1000"),
        ("99999999999\n", "1000"),
        ("3\n", "3"),
    ):
        write_at_once(players, text)
        await ns.shows("lobby", lambda pod, wanted=cost: annotations(pod).get(COST) == wanted)


async def test_the_role_comes_from_the_output(ns: UsageNamespace) -> None:
    await apply(ns, recipe("Role from the output, with a policy for Unknown"))
    role = "store.example.com/role"
    await ns.shows("store", lambda pod: labels(pod).get(role) == "replica")

    status = ns.folder("store", "store") / "status"
    write_at_once(status, "role: primary\n")
    await ns.shows("store", lambda pod: labels(pod).get(role) == "primary")
    status.unlink()
    await ns.shows("store", lambda pod: labels(pod).get(role) == "none")


async def test_the_loaded_model_is_a_label_and_an_annotation(ns: UsageNamespace) -> None:
    await apply(ns, recipe("Loaded model: route requests to it"))
    model = "inference.example.com/model"
    pod = await ns.shows("inference", lambda pod: labels(pod).get(model) == "small-8b")
    assert annotations(pod)[model] == "example/small-8b"

    (ns.folder("inference", "server") / "model").unlink()

    pod = await ns.shows("inference", lambda pod: model not in labels(pod))
    assert model not in annotations(pod)


async def test_the_licence_has_three_states(ns: UsageNamespace) -> None:
    await apply(ns, recipe("Licence: three states on one label"))
    state = "licence.example.com/state"
    await ns.shows("app", lambda pod: labels(pod).get(state) == "valid")
    licence = ns.folder("app", "app") / "licence"
    for each in ("grace", "expired", "none"):
        write_at_once(licence, f"licence={each} days=3\n")
        wanted = None if each == "none" else each
        pod = await ns.shows("app", lambda pod, wanted=wanted: labels(pod).get(state) == wanted)
        assert annotations(pod)["licence.example.com/days"] == "3"


async def test_a_busy_pod_blocks_eviction_until_it_is_done(ns: UsageNamespace) -> None:
    await apply(ns, recipe("Busy pods: no eviction by autoscalers"))
    keys = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt")

    def blocked(pod: Json) -> tuple[str | None, ...]:
        return tuple(annotations(pod).get(each) for each in keys)

    await ns.shows("worker", lambda pod: blocked(pod) == ("false", "true"))

    (ns.folder("worker", "worker") / "job").unlink()

    await ns.shows("worker", lambda pod: blocked(pod) == (None, None))


async def test_a_pod_is_ready_once_its_cache_is_warm_and_stays_so_without_the_marker(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    await apply(ns, recipe("Readiness gate: traffic when the cache is warm"))
    gate = "shop.example.com/cache-warm"
    pod = await ns.shows("shop", lambda pod: condition(pod, "Ready").get("status") == "True")
    assert condition(pod, gate)["status"] == "True"

    await playground.api.delete(marker_path("cache", ns.namespace))

    pod = await ns.shows("shop", lambda pod: condition(pod, gate).get("reason") == "ProbeRemoved")
    assert condition(pod, "Ready")["status"] == "True"


@asynccontextmanager
async def serverless_manager(playground: Any) -> AsyncIterator[None]:
    """The manager with the gate on, in place of the playground's own."""
    await playground.kill_manager()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kruise_probe", "manager",
        "--feature-gates=EnablePodProbeMarkerOnServerless=true",
        "--enable-leader-election=false", "--metrics-addr=0", "--health-probe-addr=0",
        env=environment(playground.kubeconfig),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        await process.wait()
        playground.start_manager()


async def test_what_a_provider_reports_is_marked_as_the_policies_say(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    heading = "Serverless pods"
    (marker,) = recipe(heading).documents
    node = f"{ns.namespace}-virtual"
    virtual = {"name": node, "labels": {"type": "virtual-kubelet"}}
    await playground.api.create(
        "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": virtual}
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "minecraft",
            "labels": {"app": "minecraft"},
            "annotations": annotations_shown(),
        },
        "spec": {"nodeName": node, "containers": [{"name": "minecraft", "image": "none"}]},
    }
    async with serverless_manager(playground):
        await ns.apply_objects([marker, pod])
        for status, label in (("True", "true"), ("False", None), ("True", "true")):
            reported = {"type": "game.kruise.io/healthy", "status": status}
            await playground.api.merge(
                pod_path("minecraft", ns.namespace, "status"),
                {"status": {"phase": "Running", "conditions": [reported]}},
            )
            await ns.shows(
                "minecraft", lambda pod, wanted=label: labels(pod).get("healthy") == wanted
            )


def annotations_shown() -> Json:
    """The metadata that the page shows as the manager's work."""
    shown = next(
        each
        for each in blocks_of(ROOT / "docs" / "recipes.md")
        if "kruise.io/podprobemarker-list" in each.text
    )
    found: Json = yaml.safe_load(shown.text)["metadata"]["annotations"]
    return found
