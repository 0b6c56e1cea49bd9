"""E5: markers whose labels select pods for each other cause few writes of their own pods and report it. Other pods are not affected."""

import time
from itertools import cycle, pairwise

from support.hollow import CONDITION, marker_object, probe
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace
from support.target import labels, marker_path, status_of
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
    cycling = probe(
        podConditionType=f"example.com/{name}",
        markerPolicy=[{"state": "Succeeded", "labels": {writes: "1"}}],
    )
    body = marker_object(cycling, name=name, selector={"matchExpressions": [selects]})
    await ns.api.create(marker_path("", ns.namespace).rstrip("/"), body)


def versions(ns: PlaygroundNamespace, pod: str) -> list[Json]:
    """All versions of the pod, from all clients."""
    return ns.api.pods.history[NamespacedName(ns.namespace, pod)]


def flips(ns: PlaygroundNamespace, pod: str) -> int:
    """How often label `x` came or went."""
    has_label = ["x" in labels(version) for version in versions(ns, pod)]
    return sum(before != after for before, after in pairwise(has_label))


async def test_pods_of_a_cycle_are_written_at_a_bounded_rate_and_victims_flip_meanwhile(
    ns: PlaygroundNamespace, playground: ControlledPlayground
) -> None:
    async with new_namespace(playground) as victim:

        async def victim_is(status: str) -> None:
            await victim.until(f"is {status}", lambda pod: status_of(pod, CONDITION) == status)

        await victim.pod()
        exists = {
            "exec": {"command": ["test", "-e", "up"]},
            "periodSeconds": 1,
        }
        await victim.marker(probe(probe=exists))
        await victim_is("False")
        names = [f"web-{number}" for number in range(PODS)]
        for name in names:
            await ns.pod(name)
        before = {name: len(versions(ns, name)) for name in names}
        begun = time.monotonic()
        # The first writes `x` on pods without `y`, the second writes `y` on pods with `x`.
        await put_marker(
            ns,
            "a",
            "x",
            {"key": "y", "operator": "DoesNotExist"},
        )
        await put_marker(
            ns,
            "b",
            "y",
            {"key": "x", "operator": "Exists"},
        )
        slowest = 0.0
        for status in cycle(("True", "False")):
            at = time.monotonic()
            if at - begun > ATTACK_SECONDS:
                break
            file = victim.folder() / "up"
            file.touch() if status == "True" else file.unlink()
            await victim_is(status)
            slowest = max(slowest, time.monotonic() - at)
        spent = time.monotonic() - begun
    for name, count in before.items():
        assert flips(ns, name) > 1, "the markers do not select for each other"
        written = len(versions(ns, name)) - count
        assert written <= BURST + PROBES + spent / INTERVAL_SECONDS + OTHER_VERSIONS
    assert slowest < ATTACK_SECONDS
