"""A manager on a real API server: its watches are paused during a compaction, or fall into a black hole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from soak.conftest import Limits
from soak.forms import forms
from support import programs
from support.background import background
from support.control_plane import ControlPlane, staged
from support.hollow import CONDITION, Daemons, HollowCluster, pod_name, probe
from support.output import print_line
from support.patience import PATIENCE_SECONDS
from support.programs import ALONE
from support.proxy import FaultyProxy, SeenRequest, faulty_proxy
from support.target import Target, condition, pod_path, status_of

NODES = 5
PODS = 40
RECONNECTED_SECONDS = 75.0
RENAMED = "example.com/renamed"


@asynccontextmanager
async def managed(stage: HollowCluster, folder: Path, proxy: FaultyProxy) -> AsyncIterator[None]:
    await stage.hollow.add_nodes(NODES)
    await stage.hollow.add_pods(PODS, nodes=NODES)
    async with programs.running(
        "manager",
        proxy.write_kubeconfig(folder),
        folder,
        ALONE,
    ):
        yield


async def all_have(
    api: Target, kind: str, *, seconds: float = PATIENCE_SECONDS, count: int = PODS
) -> None:
    def holds() -> bool:
        statuses = [status_of(pod, kind) for pod in api.pods.all()]
        return statuses == ["True"] * count

    await api.pods.wait(f"all pods have {kind}", holds, seconds=seconds)


def lists_pods(seen: SeenRequest) -> bool:
    """Whether it returned a list of pods: in pages, or as the beginning of a watch."""
    if seen.resource != "pods" or seen.writes or seen.code != 200:
        return False
    return not seen.watch or seen.initial_events


async def test_c4_compaction_under_paused_watches_causes_at_most_two_lists(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The API server serves old versions from its cache, so the test restarts it after the compaction of etcd."""
    async with (
        staged(control_plane, "compacted") as stage,
        faulty_proxy(control_plane.config()) as proxy,
        managed(stage, tmp_path, proxy),
    ):
        hollow = stage.hollow
        async with background(stage.daemons.follow()):
            await hollow.add_marker(probe())
            await all_have(stage.api, CONDITION)
            began = asyncio.get_running_loop().time()
            proxy.pause()
            proxy.reset()
            for number in range(5):
                await hollow.remove_pod(pod_name(number))
            await hollow.add_pods(5, nodes=NODES, first=100)
            await hollow.edit_marker(probe(podConditionType=RENAMED))
            unselected = pod_path(pod_name(7), "compacted")
            await stage.api.merge(unselected, {"metadata": {"labels": {"app": "no"}}})
            await control_plane.compact()
        await control_plane.kill("kube-apiserver")
        await control_plane.do("start", "kube-apiserver")
        proxy.heal()
        async with (
            Target(stage.api.client).watched() as fresh,
            background(Daemons(fresh).follow()),
        ):

            def is_exact() -> bool:
                pods = fresh.pods.all()
                statuses = {pod["metadata"]["name"]: status_of(pod, RENAMED) for pod in pods}
                return (
                    statuses.pop(pod_name(7)) is None
                    and list(statuses.values()) == ["True"] * (PODS - 1)
                    and not any(condition(pod, CONDITION) for pod in pods)
                )

            await fresh.pods.wait("the exact state", is_exact)
    lists = proxy.count(lists_pods, since=began)
    gone = proxy.count(lambda seen: seen.code == 410, since=began)
    print_line(
        f"lists of pods after the compaction: {dict(lists)}, refused as too old: {dict(gone)}"
    )
    assert 1 <= lists.total() <= 2, "the compaction removed the version of the paused watch"


@forms(short="connections-are-reset", long="nobody-resets-a-connection")
async def test_c1_a_black_hole_ends_and_no_event_is_lost(
    control_plane: ControlPlane, short: bool, limits: Limits, tmp_path: Path
) -> None:
    """The short form resets the connections, so that it does not wait for the read deadline."""
    async with (
        staged(control_plane, "hole") as stage,
        faulty_proxy(control_plane.config()) as proxy,
        managed(stage, tmp_path, proxy),
        background(stage.daemons.follow()),
    ):
        await stage.hollow.add_marker(probe())
        await all_have(stage.api, CONDITION)
        proxy.black_hole()
        proxy.heal()
        began = asyncio.get_running_loop().time()
        await stage.hollow.edit_marker(probe(podConditionType=RENAMED))
        await stage.hollow.remove_pod(pod_name(3))
        if short:
            proxy.reset()
            limits.skip("a black hole ends without a reset of its connections")
        await all_have(
            stage.api,
            RENAMED,
            seconds=RECONNECTED_SECONDS,
            count=PODS - 1,
        )
        took = asyncio.get_running_loop().time() - began
        print_line(f"out of the black hole after {took:.1f} s")
