"""E4: one namespace's markers want more than a NodePodProbe can hold. Other namespaces keep their probes."""

from collections.abc import AsyncIterator

import pytest
from support.hollow import CONDITION, LABEL, probe
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace
from support.shell import run
from support.target import condition, labels, status_of
from support.wire import Json

NODE = "node-0"
MARKERS = 16
PROBES = 8
COMMAND_BYTES = 7_900
IDLE_SECONDS = 3600


def check(path: str = "/") -> Json:
    """A probe that runs each second, with a condition and a label."""
    return probe(
        probe={
            "exec": {"command": ["test", "-e", path]},
            "periodSeconds": 1,
        }
    )


def large_probes(number: int, size: int = COMMAND_BYTES) -> list[Json]:
    """Large commands that never run: their initial delay is an hour."""
    never = {
        "exec": {"command": ["true", "x" * size]},
        "initialDelaySeconds": IDLE_SECONDS,
        "periodSeconds": IDLE_SECONDS,
    }
    return [
        probe(
            f"p{index}",
            podConditionType=f"example.com/m{number}-p{index}",
            probe=never,
            markerPolicy=None,
        )
        for index in range(PROBES)
    ]


@pytest.fixture
async def victim(playground: ControlledPlayground) -> AsyncIterator[PlaygroundNamespace]:
    async with new_namespace(playground) as ns:
        yield ns


def listed_probes(report: Json, namespace: str) -> int:
    """How many probes of a namespace the node has."""
    entries = report["spec"].get("podProbes") or ()
    return sum(len(entry["probes"]) for entry in entries if entry["namespace"] == namespace)


def probes_without_room(pod: Json) -> int:
    conditions = pod["status"]["conditions"]
    reasons = [found.get("reason") for found in conditions if found["status"] == "Unknown"]
    return reasons.count("NoRoom")


async def explain(ns: PlaygroundNamespace) -> str:
    command = f"kruise-probe explain web -n {ns.namespace}"
    ran = await run(command, kubeconfig=ns.playground.kubeconfig, folder=ns.playground.folder)
    return ran.out


async def test_e4_old_markers_that_grow_displace_no_probe_of_another_namespace(
    ns: PlaygroundNamespace, victim: PlaygroundNamespace
) -> None:
    names = [f"m{number:02}" for number in range(MARKERS)]
    await ns.pod()
    for number, name in enumerate(names):
        await ns.marker(*large_probes(number, size=1), name=name)
    await victim.pod()
    await victim.marker(check())
    await victim.until("succeeds", lambda pod: status_of(pod, CONDITION) == "True")

    for number, name in enumerate(names):
        await ns.api.merge(ns.marker_path(name), {"spec": {"probes": large_probes(number)}})
    await ns.api.node_pod_probes.until(
        "is full",
        lambda report: listed_probes(report, ns.namespace) < MARKERS * PROBES,
        name=NODE,
    )

    await victim.api.merge(victim.marker_path(), {"spec": {"probes": [check("/missing")]}})
    pod = await victim.until("is still probed", lambda pod: status_of(pod, CONDITION) == "False")
    assert labels(pod)[LABEL] == "bad"

    def unreported() -> int:
        attacker = ns.api.pods.current("web", ns.namespace)
        listed = listed_probes(ns.api.node_pod_probes.current(NODE), ns.namespace)
        return MARKERS * PROBES - listed - probes_without_room(attacker)

    await ns.api.wait_while("each probe runs or says that it does not", unreported)
    await ns.api.markers.until(
        "reports it",
        lambda marker: condition(marker, "Degraded").get("reason") == "NoRoom",
        name=names[-1],
        namespace=ns.namespace,
    )
    assert "NoRoom" not in await explain(victim)
    assert "1 MiB" in await explain(ns)
