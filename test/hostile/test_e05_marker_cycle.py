"""E5: markers whose labels select pods for each other cause few writes of their own pods and report it. Other pods are not affected."""

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.shell import run
from support.space import Space, space_on
from support.world import World, condition, labels

from kruise_probe.api.keys import NamespacedName
from kruise_probe.playground.raw_api import marker_path
from kruise_probe.playground.session import Playground

Json = dict[str, Any]

KIND = "example.com/victim"
PODS = 4
ATTACK_SECONDS = 15
BURST, PROBES, INTERVAL_SECONDS = 10, 2, 10
OTHER_VERSIONS = 10
"""Of a pod's start: what node and scheduler write."""


def without(key: str) -> Json:
    return {"key": key, "operator": "DoesNotExist"}


def having(key: str) -> Json:
    return {"key": key, "operator": "Exists"}


async def put_marker(space: Space, name: str, writes: str, *selects: Json) -> None:
    probe = {
        "name": "p",
        "containerName": "main",
        "probe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
        "podConditionType": f"example.com/{name}",
        "markerPolicy": [{"state": "Succeeded", "labels": {writes: "1"}}],
    }
    body = {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "PodProbeMarker",
        "metadata": {"name": name},
        "spec": {"selector": {"matchExpressions": list(selects)}, "probes": [probe]},
    }
    await space.playground.api.create(marker_path("", space.namespace).rstrip("/"), body)


async def entangle(space: Space) -> None:
    """A writes `x` on pods without `y`, B writes `y` on pods with `x`."""
    await put_marker(space, "a", "x", without("y"))
    await put_marker(space, "b", "y", having("x"))


def versions(space: Space, pod: str) -> int:
    """How often the pod was written, by whomever."""
    return len(space.world.pods.history[NamespacedName(space.namespace, pod)])


def flips(space: Space, pod: str) -> int:
    """How often label `x` came or went."""
    history = space.world.pods.history[NamespacedName(space.namespace, pod)]
    there = ["x" in labels(each) for each in history]
    return sum(before != after for before, after in pairwise(there))


def in_cycle(marker: Json) -> bool:
    conditions = (marker.get("status") or {}).get("conditions") or ()
    return any(
        (each["type"], each["status"], each["reason"]) == ("Conflict", "True", "SelectorCycle")
        for each in conditions
    )


async def test_pods_of_a_cycle_are_written_at_a_bounded_rate_and_victims_flips_stay_quick(
    space: Space, playground: Playground, world: World
) -> None:
    async with space_on(playground, world) as victim:
        await victim.pod()
        probe = {
            "name": "p",
            "containerName": "main",
            "podConditionType": KIND,
            "probe": {"exec": {"command": ["test", "-e", "up"]}, "periodSeconds": 1},
        }
        await victim.marker(probe)
        await victim.until("is down", lambda pod: condition(pod, KIND).get("status") == "False")
        names = [f"web-{number}" for number in range(PODS)]
        for name in names:
            await space.pod(name)
        before = {name: versions(space, name) for name in names}
        begun = time.monotonic()
        await entangle(space)
        slowest = 0.0
        for status in _alternating():
            at = time.monotonic()
            if at - begun > ATTACK_SECONDS:
                break
            file = victim.folder() / "up"
            file.touch() if status == "True" else file.unlink()
            await victim.until(
                f"is {status}", lambda pod, to=status: condition(pod, KIND).get("status") == to
            )
            slowest = max(slowest, time.monotonic() - at)
        spent = time.monotonic() - begun
    for name in names:
        assert flips(space, name) > 1, "the markers do not select for each other"
        written = versions(space, name) - before[name]
        assert written <= BURST + PROBES + spent / INTERVAL_SECONDS + OTHER_VERSIONS
    assert slowest < 5


def _alternating() -> Iterator[str]:
    while True:
        yield "True"
        yield "False"


async def test_both_markers_of_a_cycle_name_each_other_and_the_labels(space: Space) -> None:
    await space.pod()
    await entangle(space)
    for name, other in (("a", "b"), ("b", "a")):
        marker = await space.world.markers.until(
            "reports the cycle", in_cycle, name=name, namespace=space.namespace
        )
        (found,) = [each for each in marker["status"]["conditions"] if each["type"] == "Conflict"]
        assert "a writes label 'x', by which b selects pods" in found["message"]
        assert "b writes label 'y', by which a selects pods" in found["message"]
        event = await _event(space, name)
        assert other in event["message"]


async def _event(space: Space, marker: str) -> Json:
    def found() -> list[Json]:
        return [
            each
            for each in space.world.events.all()
            if each["involvedObject"]["name"] == marker
            and each["involvedObject"]["namespace"] == space.namespace
            and each["reason"] == "SelectorCycle"
        ]

    await space.world.events.wait(f"a warning about {marker}", lambda: bool(found()))
    (event,) = found()
    assert event["type"] == "Warning"
    return event


async def test_status_and_explain_report_a_cycle(space: Space, tmp_path: Path) -> None:
    await space.pod()
    await entangle(space)
    for command in ("status", "explain web"):
        ran = await run(
            f"kruise-probe {command} -n {space.namespace} -o json",
            kubeconfig=space.playground.kubeconfig,
            folder=tmp_path,
        )
        assert '"SelectorCycle"' in ran.out or "may select the pod and leave it" in ran.out, ran
        assert "a writes label 'x', by which b selects pods" in ran.out


async def test_a_cycle_of_three_markers_is_reported_on_each(space: Space) -> None:
    await put_marker(space, "a", "x", having("z"))
    await put_marker(space, "b", "y", having("x"))
    await put_marker(space, "c", "z", having("y"))
    for name in "abc":
        await space.world.markers.until(
            "reports the cycle", in_cycle, name=name, namespace=space.namespace
        )


@pytest.mark.parametrize("first", ["a", "b"])
async def test_deleting_a_marker_of_a_cycle_ends_it_and_its_marks_within_an_interval(
    space: Space, first: str
) -> None:
    await space.pod()
    await entangle(space)
    await asyncio.sleep(5)
    await space.playground.api.delete(space.marker_path(first))
    await space.world.markers.until_gone(first, space.namespace, seconds=3 * INTERVAL_SECONDS)
    other = "b" if first == "a" else "a"
    await space.world.markers.until(
        "reports no cycle",
        lambda marker: not in_cycle(marker),
        name=other,
        namespace=space.namespace,
    )
    gone = "x" if first == "a" else "y"
    await space.until("has no mark of it", lambda pod: gone not in labels(pod))
