"""E9: hundreds of markers that select one pod. The manager's memory stays linear, and the limit is reported."""

import asyncio
import sys
from collections import Counter
from typing import Any

from support.embedded_cluster import EmbeddedCluster
from support.hollow import node_name, pod_name, probe
from support.target import condition
from support.wire import Json

MARKERS = 300
PROBES = 2
CONSIDERED = 64
MOST_REPORTED = 256
GROWTH_MB = 80.0
"""The version before the limit grew by 400 MB."""


def probes_of(number: int) -> list[Json]:
    return [
        probe(
            f"p{index}",
            probe={"exec": {"command": ["true"]}, "periodSeconds": 60},
            podConditionType=f"example.com/m{number}-p{index}",
            markerPolicy=[
                {"state": state, "labels": {f"example.com/l{number}-{index}": value}}
                for state, value in (("Succeeded", "1"), ("Failed", "0"))
            ],
        )
        for index in range(PROBES)
    ]


def reasons(pod: Json) -> Counter[str]:
    return Counter(
        each.get("reason", "")
        for each in pod["status"]["conditions"]
        if each["type"].startswith("example.com/")
    )


def degraded(marker: Json) -> Json:
    conditions = (marker.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Degraded"), {})


async def test_e9_the_managers_memory_is_linear_in_markers_and_the_limit_is_reported(
    cluster: EmbeddedCluster,
) -> None:
    """Markers come one by one while a daemon reports results, as every new set of markers used to be kept."""
    api = cluster.api
    hollow = cluster.hollow
    await hollow.add_nodes(1)
    await hollow.add_pods(1, nodes=1)
    async with cluster.manager() as manager:
        await hollow.add_marker(name="first")
        await api.node_pod_probes.until(
            "is planned", lambda report: bool(report["spec"].get("podProbes")), name=node_name(0)
        )
        before_mb = manager.peak_mb
        daemon = asyncio.create_task(cluster.daemons.follow())
        try:
            for number in range(MARKERS):
                await hollow.add_marker(*probes_of(number), name=f"m{number:03}")
            await api.markers.until(
                "is counted",
                lambda marker: (marker.get("status") or {}).get("matchedPods") == 1,
                name=f"m{MARKERS - 1:03}",
                namespace="default",
                seconds=60,
            )
            assert manager.peak_mb - before_mb < GROWTH_MB
            reported = (CONSIDERED - 1 + MOST_REPORTED // PROBES) * PROBES + 1
            await api.pods.until(
                "shows results and the limit",
                lambda pod: (
                    reasons(pod) == {"": reported - MOST_REPORTED, "TooManyMarkers": MOST_REPORTED}
                ),
                name=pod_name(0),
                namespace="default",
                seconds=120,
            )
            await api.markers.until(
                "reports the limit",
                lambda marker: (
                    degraded(marker).get("reason") == "TooManyMarkers"
                    and "1 of 1 pods" in degraded(marker)["message"]
                ),
                name=f"m{MARKERS - 1:03}",
                namespace="default",
                seconds=60,
            )
            await manager.until("counts what is left out", _counts(manager))
            sys.stdout.write(f"peak {before_mb:.0f} -> {manager.peak_mb:.0f} MB\n")
            assert manager.peak_mb - before_mb < GROWTH_MB
            entry = api.node_pod_probes.current(node_name(0))["spec"]["podProbes"][0]
            assert len(entry["probes"]) == 1 + (CONSIDERED - 1) * PROBES

            for number in range(2):
                await hollow.remove_marker(f"m{number:03}")
            newly = f"example.com/m{CONSIDERED}-p0"
            await api.pods.until(
                "follows when older markers are gone",
                lambda pod: condition(pod, newly).get("status") == "True",
                name=pod_name(0),
                namespace="default",
                seconds=60,
            )
        finally:
            daemon.cancel()


def _counts(manager: Any) -> Any:
    async def counts() -> bool:
        return bool(await manager.metric("kruise_probe_probes_left_out") == MOST_REPORTED)

    return counts
