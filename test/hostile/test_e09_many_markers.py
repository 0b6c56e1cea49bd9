"""E9: hundreds of markers that select one pod. The manager's memory stays linear, and the limit is reported."""

from collections import Counter
from collections.abc import Callable

from support.background import background
from support.embedded_cluster import EmbeddedCluster
from support.hollow import node_name, pod_name, probe
from support.output import print_line
from support.target import condition, status_of
from support.wire import Json

MARKERS = 300
PROBES = 2
CONSIDERED = 64
MOST_REPORTED = 256
GROWTH_MB = 80.0
"""The version before the limit grew by 400 MB."""


LAST = f"m{MARKERS - 1:03}"


def probes_of(number: int) -> list[Json]:
    probes: list[Json] = []
    for place in range(PROBES):
        label = f"example.com/l{number}-{place}"
        marking = probe(
            f"p{place}",
            probe={
                "exec": {"command": ["true"]},
                "periodSeconds": 60,
            },
            podConditionType=f"example.com/m{number}-p{place}",
            markerPolicy=[
                {"state": "Succeeded", "labels": {label: "1"}},
                {"state": "Failed", "labels": {label: "0"}},
            ],
        )
        probes.append(marking)
    return probes


def reasons(pod: Json) -> Counter[str]:
    return Counter(
        condition.get("reason", "")
        for condition in pod["status"]["conditions"]
        if condition["type"].startswith("example.com/")
    )


async def test_e9_the_managers_memory_is_linear_in_markers_and_the_limit_is_reported(
    cluster: EmbeddedCluster,
) -> None:
    """Markers come one by one while a daemon reports results, as every new set of markers used to be kept."""
    api = cluster.api
    hollow = cluster.hollow

    async def until_pod(what: str, holds: Callable[[Json], bool]) -> None:
        await api.pods.until(
            what,
            holds,
            name=pod_name(0),
            namespace="default",
            seconds=120,
        )

    async def until_last_marker(what: str, holds: Callable[[Json], bool]) -> None:
        await api.markers.until(
            what,
            holds,
            name=LAST,
            namespace="default",
        )

    def reports_the_limit(marker: Json) -> bool:
        degraded = condition(marker, "Degraded")
        return degraded.get("reason") == "TooManyMarkers" and "1 of 1 pods" in degraded["message"]

    await hollow.add_nodes(1)
    await hollow.add_pods(1, nodes=1)
    async with cluster.manager() as manager:

        async def counts_what_is_left_out() -> bool:
            return await manager.metric("kruise_probe_probes_left_out") == MOST_REPORTED

        await hollow.add_marker(name="first")
        await api.node_pod_probes.until(
            "is planned",
            lambda report: bool(report["spec"].get("podProbes")),
            name=node_name(0),
        )
        before_mb = manager.peak_mb
        async with background(cluster.daemons.follow()):
            for number in range(MARKERS):
                await hollow.add_marker(*probes_of(number), name=f"m{number:03}")
            await until_last_marker(
                "is counted", lambda marker: marker.get("status", {}).get("matchedPods") == 1
            )
            reported = (CONSIDERED - 1 + MOST_REPORTED // PROBES) * PROBES + 1
            wanted = {"": reported - MOST_REPORTED, "TooManyMarkers": MOST_REPORTED}
            await until_pod("shows results and the limit", lambda pod: reasons(pod) == wanted)
            await until_last_marker("reports the limit", reports_the_limit)
            await manager.until("counts what is left out", counts_what_is_left_out)
            print_line(f"peak {before_mb:.0f} -> {manager.peak_mb:.0f} MB")
            assert manager.peak_mb - before_mb < GROWTH_MB
            entry = api.node_pod_probes.current(node_name(0))["spec"]["podProbes"][0]
            assert len(entry["probes"]) == 1 + (CONSIDERED - 1) * PROBES

            await hollow.remove_marker("m000")
            await hollow.remove_marker("m001")
            newly = f"example.com/m{CONSIDERED}-p0"
            await until_pod(
                "follows when older markers are gone", lambda pod: status_of(pod, newly) == "True"
            )
