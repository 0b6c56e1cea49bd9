"""The recipes do what they say, with the YAML of the docs."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from integration.usage_namespace import UsageNamespace
from support import programs, target
from support.pages import ROOT, Block, block, blocks_of
from support.playground import ControlledPlayground, stopped
from support.programs import ALONE
from support.tables import load_table
from support.target import annotations, condition, status_of
from support.wire import Json, typed

from kruise_probe_playground.documents import objects_for

COST = "controller.kubernetes.io/pod-deletion-cost"
Marks = Mapping[str, str | None]
NO_MARKS: Marks = {}


async def apply(ns: UsageNamespace, recipe: Block) -> None:
    for document in recipe.documents:
        await ns.apply_objects(objects_for(document))


async def gets(
    ns: UsageNamespace,
    pod: str,
    *,
    labels: Marks = NO_MARKS,
    annotations: Marks = NO_MARKS,
) -> Json:
    """The pod, once it has these marks. None means that the mark is absent."""
    wanted = (labels, annotations)

    def found(it: Json) -> tuple[Marks, Marks]:
        of_labels, of_annotations = target.labels(it), target.annotations(it)
        return (
            {key: of_labels.get(key) for key in labels},
            {key: of_annotations.get(key) for key in annotations},
        )

    return await ns.shows(pod, lambda it: found(it) == wanted)


def write_at_once(path: Path, text: str) -> None:
    """Write the file by a rename, so that no probe finds it empty."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def recipe(heading: str) -> Block:
    return block("recipes.md", heading)


async def test_a_scale_in_deletes_the_idle_game_server_first(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    await apply(ns, recipe("Idle game servers: scale in the empty ones first"))
    first, second = await ns.pod_names(2)
    for name in (first, second):
        await gets(ns, name, labels={"gameserver-idle": "true"})

    write_at_once(
        ns.folder(first, "game-server") / "players",
        "4\n",
    )

    playing = await gets(ns, first, labels={"gameserver-idle": "false"})
    idle = await ns.shows(
        second,
        lambda pod: annotations(pod).get(COST),
    )
    assert condition(playing, "game.io/idle")["message"] == "4 players"
    idle_cost = int(annotations(idle)[COST])
    assert idle_cost < int(annotations(playing)[COST])

    path = f"/apis/apps/v1/namespaces/{ns.namespace}/replicasets/game-server/scale"
    await playground.api.merge(path, {"spec": {"replicas": 1}})
    assert await ns.pod_names(1) == [first]


RECIPES = load_table(ROOT / "test" / "data" / "recipes.yaml", {})


@pytest.mark.parametrize("name", RECIPES)
async def test_the_marks_follow_the_file_of_the_pod(ns: UsageNamespace, name: str) -> None:
    row = RECIPES[name]

    await apply(ns, recipe(row["heading"]))
    for pod, wanted in row["first"].items():
        await gets(ns, pod, **wanted)
    for step in row["steps"]:
        path = ns.folder(step["pod"], row["container"]) / row["file"]
        if step["text"] is None:
            path.unlink()
        else:
            write_at_once(path, step["text"])
        await gets(ns, step["pod"], **step["marks"])


async def test_the_first_example_writes_the_marks_that_it_shows(ns: UsageNamespace) -> None:
    await apply(ns, block("get-started.md", "Scale in without losing a match"))

    first, second = await ns.pod_names(2)
    idle = await gets(ns, first, annotations={COST: "-10"})
    shown = condition(idle, "game.example.com/idle")
    assert (shown["status"], shown["message"]) == ("True", "0 players")

    await gets(ns, second, annotations={COST: "-10"})
    write_at_once(ns.folder(second, "server") / "players", "4\n")

    await gets(ns, second, annotations={COST: "10"})


async def test_a_pod_is_ready_once_its_cache_is_warm_and_stays_so_without_the_marker(
    ns: UsageNamespace,
) -> None:
    await apply(ns, recipe("Readiness gate: traffic when the cache is warm"))
    gate = "shop.example.com/cache-warm"
    pod = await ns.shows(
        "shop",
        lambda pod: status_of(pod, "Ready") == "True",
    )
    assert status_of(pod, gate) == "True"

    await ns.api.delete(ns.marker_path("cache"))

    pod = await ns.shows(
        "shop",
        lambda pod: condition(pod, gate).get("reason") == "ProbeRemoved",
    )
    assert status_of(pod, "Ready") == "True"


async def test_what_a_provider_reports_is_marked_as_the_policies_say(
    ns: UsageNamespace, playground: ControlledPlayground, tmp_path: Path
) -> None:
    (marker,) = recipe("Serverless pods").documents
    node = f"{ns.namespace}-virtual"
    virtual = {"name": node, "labels": {"type": "virtual-kubelet"}}
    await ns.api.create("/api/v1/nodes", typed("Node", metadata=virtual))
    pod = typed(
        "Pod",
        metadata={
            "name": "minecraft",
            "labels": {"app": "minecraft"},
            "annotations": annotations_shown(),
        },
        spec={
            "nodeName": node,
            "containers": [{"name": "minecraft", "image": "none"}],
        },
    )
    flags = (ALONE, "--feature-gates=EnablePodProbeMarkerOnServerless=true")

    async def report(status: str) -> None:
        reported = {"type": "game.kruise.io/healthy", "status": status}
        change = {"status": {"phase": "Running", "conditions": [reported]}}
        await ns.api.merge(ns.pod_path("minecraft", "status"), change)

    with stopped(playground.manager):
        async with programs.running("manager", playground.kubeconfig, tmp_path, *flags):
            await ns.apply_objects([marker, pod])
            for status, label in (("True", "true"), ("False", None), ("True", "true")):
                await report(status)
                await gets(ns, "minecraft", labels={"healthy": label})


def annotations_shown() -> Json:
    """The annotations that the page shows as the manager's work."""
    for shown in blocks_of(ROOT / "docs" / "recipes.md"):
        if "kruise.io/podprobemarker-list" in shown.text:
            found: Json = yaml.safe_load(shown.text)["metadata"]["annotations"]
            return found
    raise AssertionError("recipes.md shows no list of probes")
