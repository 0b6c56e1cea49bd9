"""E5: markers whose labels select pods for each other cause few writes of their own pods and report it. Other pods are not affected."""

import time
from collections.abc import Iterator
from itertools import pairwise

from support.hollow import CONDITION, marker_object, probe
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace
from support.target import condition, labels, marker_path
from support.wire import Json

from kruise_probe.api.meta import NamespacedName

PODS = 4
ATTACK_SECONDS = 15
BURST = 10
PROBES = 2
INTERVAL_SECONDS = 10
OTHER_VERSIONS = 10
"""Of a pod's start: what node and scheduler write."""


async def put_marker(ns: PlaygroundNamespace, name: str, writes: str, selects: Json) -> None:
    policy = {"state": "Succeeded", "labels": {writes: "1"}}
    one = probe(podConditionType=f"example.com/{name}", markerPolicy=[policy])
    body = marker_object(one, name=name, selector={"matchExpressions": [selects]})
    await ns.api.create(marker_path("", ns.namespace).rstrip("/"), body)


async def entangle(ns: PlaygroundNamespace) -> None:
    """A writes `x` on pods without `y`, B writes `y` on pods with `x`."""
    await put_marker(ns, "a", "x", {"key": "y", "operator": "DoesNotExist"})
    await put_marker(ns, "b", "y", {"key": "x", "operator": "Exists"})


def versions(ns: PlaygroundNamespace, pod: str) -> int:
    """How often the pod was written, by whomever."""
    return len(ns.api.pods.history[NamespacedName(ns.namespace, pod)])


def flips(ns: PlaygroundNamespace, pod: str) -> int:
    """How often label `x` came or went."""
    history = ns.api.pods.history[NamespacedName(ns.namespace, pod)]
    there = ["x" in labels(each) for each in history]
    return sum(before != after for before, after in pairwise(there))


async def test_pods_of_a_cycle_are_written_at_a_bounded_rate_and_victims_flip_meanwhile(
    ns: PlaygroundNamespace, playground: ControlledPlayground
) -> None:
    async with new_namespace(playground) as victim:
        await victim.pod()
        exists = {"exec": {"command": ["test", "-e", "up"]}, "periodSeconds": 1}
        await victim.marker(probe(probe=exists))
        await victim.until(
            "is down", lambda pod: condition(pod, CONDITION).get("status") == "False"
        )
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
                f"is {status}", lambda pod, to=status: condition(pod, CONDITION).get("status") == to
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
