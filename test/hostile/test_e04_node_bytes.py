"""E4: one namespace's markers want more than a NodePodProbe can hold. Other namespaces keep their probes."""

from collections.abc import AsyncIterator

import pytest
from support.hollow import CONDITION, LABEL, probe
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace
from support.shell import run
from support.target import condition, labels
from support.wire import Json

NODE = "node-0"
MARKERS = 16
PROBES = 8
COMMAND_BYTES = 7_900
IDLE_SECONDS = 3600


def check(path: str = "/") -> Json:
    """A probe that runs each second, with a condition and a label."""
    return probe(probe={"exec": {"command": ["test", "-e", path]}, "periodSeconds": 1})


def large_probes(number: int, size: int = COMMAND_BYTES) -> list[Json]:
    """Large commands that never run: their initial delay is an hour."""
    never = {"initialDelaySeconds": IDLE_SECONDS, "periodSeconds": IDLE_SECONDS}
    return [
        probe(
            f"p{index}",
            podConditionType=f"example.com/m{number}-p{index}",
            probe={"exec": {"command": ["true", "x" * size]}, **never},
            markerPolicy=None,
        )
        for index in range(PROBES)
    ]


@pytest.fixture
async def victim(playground: ControlledPlayground) -> AsyncIterator[PlaygroundNamespace]:
    async with new_namespace(playground) as ns:
        yield ns


def held(report: Json, namespace: str) -> list[str]:
    """The probes that the node is to run for a namespace."""
    return [
        each["name"]
        for entry in report["spec"].get("podProbes") or ()
        if entry["namespace"] == namespace
        for each in entry["probes"]
    ]


def unknown(pod: Json, reason: str) -> int:
    return sum(
        (each["status"], each.get("reason")) == ("Unknown", reason)
        for each in pod["status"]["conditions"]
    )


def is_degraded(marker: Json, reason: str) -> bool:
    conditions = (marker.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["reason"]) == ("Degraded", reason) for each in conditions)


async def explain(ns: PlaygroundNamespace) -> str:
    command = f"kruise-probe explain web -n {ns.namespace}"
    ran = await run(command, kubeconfig=ns.playground.kubeconfig, folder=ns.playground.folder)
    return ran.out


async def test_e4_old_markers_that_grow_displace_no_probe_of_another_namespace(
    ns: PlaygroundNamespace, victim: PlaygroundNamespace
) -> None:
    await ns.pod()
    for number in range(MARKERS):
        await ns.marker(*large_probes(number, size=1), name=f"m{number:02}")
    await victim.pod()
    await victim.marker(check("/"))
    await victim.until("succeeds", lambda pod: condition(pod, CONDITION).get("status") == "True")

    for number in range(MARKERS):
        change = {"spec": {"probes": large_probes(number)}}
        await ns.playground.api.merge(ns.marker_path(f"m{number:02}"), change)
    await ns.api.node_pod_probes.until(
        "is full", lambda report: len(held(report, ns.namespace)) < MARKERS * PROBES, name=NODE
    )

    change = {"spec": {"probes": [check("/missing")]}}
    await victim.playground.api.merge(victim.marker_path(), change)
    pod = await victim.until(
        "is still probed", lambda pod: condition(pod, CONDITION).get("status") == "False"
    )
    assert labels(pod)[LABEL] == "bad"

    def uncounted() -> int:
        attacker, report = (
            ns.api.pods.current("web", ns.namespace),
            ns.api.node_pod_probes.current(NODE),
        )
        return MARKERS * PROBES - len(held(report, ns.namespace)) - unknown(attacker, "NoRoom")

    await ns.api.wait_while("each probe runs or says that it does not", uncounted)
    youngest = f"m{MARKERS - 1:02}"
    await ns.api.markers.until(
        "reports it",
        lambda marker: is_degraded(marker, "NoRoom"),
        name=youngest,
        namespace=ns.namespace,
    )
    assert "NoRoom" not in await explain(victim)
    assert "1 MiB" in await explain(ns)
