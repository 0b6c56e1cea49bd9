"""E5: markers whose labels select pods for each other cause few writes of their own pods and report it. Other pods are not affected."""

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.namespaces import PlaygroundNamespace, new_namespace
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground
from support.raw_api import marker_path
from support.shell import run
from support.watched import WatchedObjects, condition, labels

from kruise_probe.api.keys import NamespacedName

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


async def put_marker(ns: PlaygroundNamespace, name: str, writes: str, *selects: Json) -> None:
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
    await ns.playground.api.create(marker_path("", ns.namespace).rstrip("/"), body)


async def entangle(ns: PlaygroundNamespace) -> None:
    """A writes `x` on pods without `y`, B writes `y` on pods with `x`."""
    await put_marker(ns, "a", "x", without("y"))
    await put_marker(ns, "b", "y", having("x"))


def versions(ns: PlaygroundNamespace, pod: str) -> int:
    """How often the pod was written, by whomever."""
    return len(ns.watched.pods.history[NamespacedName(ns.namespace, pod)])


def flips(ns: PlaygroundNamespace, pod: str) -> int:
    """How often label `x` came or went."""
    history = ns.watched.pods.history[NamespacedName(ns.namespace, pod)]
    there = ["x" in labels(each) for each in history]
    return sum(before != after for before, after in pairwise(there))


def in_cycle(marker: Json) -> bool:
    conditions = (marker.get("status") or {}).get("conditions") or ()
    return any(
        (each["type"], each["status"], each["reason"]) == ("Conflict", "True", "SelectorCycle")
        for each in conditions
    )


async def test_pods_of_a_cycle_are_written_at_a_bounded_rate_and_victims_flip_meanwhile(
    ns: PlaygroundNamespace, playground: ControlledPlayground, watched: WatchedObjects
) -> None:
    async with new_namespace(playground, watched) as victim:
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
            await ns.pod(name)
        before = {name: versions(ns, name) for name in names}
        begun = time.monotonic()
        await entangle(ns)
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
        assert flips(ns, name) > 1, "the markers do not select for each other"
        written = versions(ns, name) - before[name]
        assert written <= BURST + PROBES + spent / INTERVAL_SECONDS + OTHER_VERSIONS
    assert slowest < ATTACK_SECONDS


def _alternating() -> Iterator[str]:
    while True:
        yield "True"
        yield "False"


async def test_both_markers_of_a_cycle_name_each_other_and_the_labels(
    ns: PlaygroundNamespace,
) -> None:
    await ns.pod()
    await entangle(ns)
    for name, other in (("a", "b"), ("b", "a")):
        marker = await ns.watched.markers.until(
            "reports the cycle", in_cycle, name=name, namespace=ns.namespace
        )
        (found,) = [each for each in marker["status"]["conditions"] if each["type"] == "Conflict"]
        assert "a writes label 'x', by which b selects pods" in found["message"]
        assert "b writes label 'y', by which a selects pods" in found["message"]
        event = await _event(ns, name)
        assert other in event["message"]


async def _event(ns: PlaygroundNamespace, marker: str) -> Json:
    def found() -> list[Json]:
        return [
            each
            for each in ns.watched.events.all()
            if each["involvedObject"]["name"] == marker
            and each["involvedObject"]["namespace"] == ns.namespace
            and each["reason"] == "SelectorCycle"
        ]

    await ns.watched.events.wait(f"a warning about {marker}", lambda: bool(found()))
    (event,) = found()
    assert event["type"] == "Warning"
    return event


@pytest.mark.parametrize(
    ("command", "text"),
    [
        pytest.param("status", '"reason": "SelectorCycle"', id="status"),
        pytest.param("explain web", "select and deselect the pod repeatedly", id="explain"),
    ],
)
async def test_status_and_explain_report_a_cycle_whichever_marker_selects_the_pod(
    ns: PlaygroundNamespace, tmp_path: Path, command: str, text: str
) -> None:
    await ns.pod()
    await entangle(ns)
    ran = await run(
        f"kruise-probe {command} -n {ns.namespace} -o json",
        kubeconfig=ns.playground.kubeconfig,
        folder=tmp_path,
    )
    assert text in ran.out
    assert "a writes label 'x', by which b selects pods" in ran.out


async def test_a_cycle_of_three_markers_is_reported_on_each(ns: PlaygroundNamespace) -> None:
    await put_marker(ns, "a", "x", having("z"))
    await put_marker(ns, "b", "y", having("x"))
    await put_marker(ns, "c", "z", having("y"))
    for name in "abc":
        await ns.watched.markers.until(
            "reports the cycle", in_cycle, name=name, namespace=ns.namespace
        )


@pytest.mark.parametrize("first", ["a", "b"])
async def test_deleting_a_marker_of_a_cycle_ends_it_and_its_marks_within_an_interval(
    ns: PlaygroundNamespace, first: str
) -> None:
    await ns.pod()
    await entangle(ns)
    await asyncio.sleep(5)
    await ns.playground.api.delete(ns.marker_path(first))
    await ns.watched.markers.until_gone(
        first, ns.namespace, seconds=INTERVAL_SECONDS + PATIENCE_SECONDS
    )
    other = "b" if first == "a" else "a"
    await ns.watched.markers.until(
        "reports no cycle",
        lambda marker: not in_cycle(marker),
        name=other,
        namespace=ns.namespace,
    )
    gone = "x" if first == "a" else "y"
    await ns.until("has no mark of it", lambda pod: gone not in labels(pod))
