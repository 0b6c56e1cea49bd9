"""Objects that fit their schema and nothing else: no process ends, and no other object waits for them.

The CRDs here are ours without their rules and bounds, which is about what Kruise's are.
"""

import secrets
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from support import programs
from support.absurd import absurd_entry, absurd_marker, absurd_results, without_rules
from support.fake_runtime import ScriptedRuntime, served, succeed
from support.hollow import CONDITION, Daemons, Hollow, node_name, pod_name, probe
from support.programs import ALONE
from support.world import World, condition, following

from kruise_probe.api.errors import ApiError
from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.manifests.crds import all_crds
from kruise_probe.playground.apiserver.server import EmbeddedApiServer
from kruise_probe.playground.apiserver.users import NO_TOKENS
from kruise_probe.playground.raw_api import RawApi, node_pod_probe_path

Json = dict[str, Any]

BATCHES = 5
EACH = 15
LATE_SECONDS = 30.0


class Lawless(NamedTuple):
    """An API server that knows types and no rules."""

    api: RawApi
    world: World
    hollow: Hollow
    kubeconfig: Path


@pytest.fixture
async def lawless(tmp_path: Path) -> AsyncIterator[Lawless]:
    async with EmbeddedApiServer(
        crds=[without_rules(each) for each in all_crds()], tokens=NO_TOKENS, validators={}
    ) as server:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        config = ClusterConfig.plain(server.url)
        client = RestClient(config=config, field_manager="kubectl", user_agent="test")
        async with client, following(client) as world:
            api = RawApi(client)
            await api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
            yield Lawless(api, world, Hollow(api), kubeconfig)


@pytest.fixture
def random() -> Random:
    seed = secrets.randbelow(2**32)
    sys.stdout.write(f"seed {seed}\n")
    return Random(seed)


async def test_d12_absurd_markers_and_results_end_no_manager_and_delay_no_other(
    lawless: Lawless, random: Random, tmp_path: Path
) -> None:
    api, world, hollow = lawless.api, lawless.world, lawless.hollow
    await hollow.add_nodes(2)
    await hollow.add_pods(4, nodes=2)
    uid = world.pods.newest(pod_name(0), "default")["metadata"]["uid"]
    accepted = []
    async with programs.running("manager", lawless.kubeconfig, tmp_path, ALONE) as manager:
        await hollow.add_marker(probe(), name="good")
        daemons = Daemons(api, world)
        for batch in range(BATCHES):
            for number in range(EACH):
                marker = absurd_marker(f"odd-{batch}-{number}", random, app="web")
                try:
                    await api.create(_markers(), marker)
                    accepted.append(marker["metadata"]["name"])
                except ApiError:
                    continue
            status = ("True", "Succeeded") if batch % 2 else ("False", "Failed")
            daemons.verdict = lambda pod, name, state=status[1]: (state, "")
            for number in range(2):
                report = await world.reports.until(
                    "asks for the good one", _asks_for_good, name=node_name(number)
                )
                told = daemons.status_of(report)["podProbeStatuses"]
                odd = [absurd_results(random, uid=uid, marker="good") for _ in range(EACH)]
                change = {"status": {"podProbeStatuses": [*odd, *told]}}
                await api.merge(f"{node_pod_probe_path(node_name(number))}/status", change)
            await world.pods.wait(
                f"batch {batch}: the good marker works",
                lambda status=status: all(
                    condition(each, CONDITION).get("status") == status[0]
                    for each in world.pods.all()
                ),
                seconds=LATE_SECONDS,
            )
        assert manager.running, manager.tail()
        sys.stdout.write(f"{len(accepted)} accepted\n")
        assert len(accepted) > EACH, "absurd, but of the right types"
        for name in [*accepted, "good"]:
            await hollow.remove_marker(name)
        for name in [*accepted, "good"]:
            await world.markers.until_gone(name, "default")
        assert manager.running, manager.tail()
        assert not manager.says("Traceback"), manager.tail()


def _markers() -> str:
    return "/apis/apps.kruise.io/v1alpha1/namespaces/default/podprobemarkers"


def _asks_for_good(report: Json) -> bool:
    entries = report["spec"].get("podProbes") or ()
    return any(each["name"] == "good#healthy" for entry in entries for each in entry["probes"])


async def test_d12_absurd_orders_end_no_daemon_and_delay_no_other_probe(
    lawless: Lawless, random: Random, tmp_path: Path
) -> None:
    api, world = lawless.api, lawless.world
    node = node_name(0)
    scripted = ScriptedRuntime()
    scripted.start("uid-1", "main", ip="127.99.0.1")
    path = node_pod_probe_path(node)
    await lawless.hollow.add_node(node)
    body = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "NodePodProbe"}
    await api.create(path.rpartition("/")[0], {**body, "metadata": {"name": node}, "spec": {}})
    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        async with served(scripted, Path(folder) / "cri.sock") as endpoint:
            flags = (f"--node-name={node}", f"--cri-endpoint={endpoint}")
            running = programs.running("daemon", lawless.kubeconfig, tmp_path, *flags)
            async with running as daemon:
                await daemon.ready()
                for batch in range(BATCHES):
                    word = f"batch {batch}"
                    scripted.on_exec("say", word, script=succeed(word.encode()))
                    good = {
                        **{"name": "pod", "namespace": "default", "uid": "uid-1", "IP": ""},
                        "probes": [_saying(word)],
                    }
                    odd = [absurd_entry(random, uid="uid-1") for _ in range(EACH)]
                    await api.merge(path, {"spec": {"podProbes": [*odd, good]}})
                    await world.reports.until(
                        word,
                        lambda report, word=word: _message(report) == word,
                        name=node,
                        seconds=LATE_SECONDS,
                    )
                assert daemon.running, daemon.tail()
                assert not daemon.says("Traceback"), daemon.tail()


def _saying(word: str) -> Json:
    return {
        "name": "good#word",
        "containerName": "main",
        "probe": {"exec": {"command": ["say", word]}},
    }


def _message(report: Json) -> str:
    for entry in (report.get("status") or {}).get("podProbeStatuses") or ():
        for each in entry.get("probeStates") or ():
            if (entry["uid"], each["name"]) == ("uid-1", "good#word"):
                return str(each.get("message", ""))
    return ""
