"""E12: a marker that writes what others decide by: refused at admission, and ignored by the manager where no rule is installed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import programs
from support.arena import Arena
from support.hollow import CONDITION, Daemons, Hollow, node_name, pod_name, probe
from support.kruise_crds import kruise_crds
from support.programs import ALONE
from support.world import World, condition, following, labels

from kruise_probe.api.errors import ApiError
from kruise_probe.api.names import MANAGER_FIELD_MANAGER, SYSTEM_NAMESPACE
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.playground.apiserver.server import EmbeddedApiServer
from kruise_probe.playground.apiserver.users import NO_TOKENS
from kruise_probe.playground.raw_api import RawApi, pod_path

Json = dict[str, Any]
LABELS = (
    "pod-template-hash",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "topology.kubernetes.io/zone",
    "security.istio.io/tlsMode",
)
ANNOTATIONS = ("kubernetes.io/config.source", "apps.kruise.io/inplace-update-grace")
HEADLINE = {
    "controller.kubernetes.io/pod-deletion-cost": "-10",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
FREE = {"app.kubernetes.io/component": "lobby"}


def writing(labels: Json, annotations: Json | None = None) -> Json:
    policy: Json = {"state": "Succeeded", "labels": labels, "annotations": annotations or {}}
    return probe(markerPolicy=[policy])


@pytest.mark.parametrize(
    "wanted",
    [
        *(pytest.param(writing({each: "x"}), id=each) for each in LABELS),
        *(pytest.param(writing({}, {each: "x"}), id=each) for each in ANNOTATIONS),
        pytest.param(probe(podConditionType="InPlaceUpdateReady"), id="InPlaceUpdateReady"),
        pytest.param(
            probe(probe={"exec": {"command": ["true"]}, "timeoutSeconds": 100_000}), id="timeout"
        ),
        pytest.param(probe(probe={"exec": {"command": ["x" * 9000]}}), id="command"),
    ],
)
async def test_the_api_server_refuses_the_marker(arena: Arena, wanted: Json) -> None:
    with pytest.raises(ApiError) as refused:
        await arena.hollow.add_marker(wanted)

    assert refused.value.code == 422
    assert "spec.probes[0]" in str(refused.value)


async def test_the_api_server_takes_the_headline_annotations(arena: Arena) -> None:
    await arena.hollow.add_marker(writing(FREE, HEADLINE))


class Lawless(NamedTuple):
    """One pod on an API server with Kruise's definitions, which have no rules; no webhook runs."""

    api: RawApi
    world: World
    hollow: Hollow
    kubeconfig: Path
    folder: Path

    @asynccontextmanager
    async def manager(self, *flags: str) -> AsyncIterator[None]:
        async with programs.running("manager", self.kubeconfig, self.folder, ALONE, *flags):
            yield

    async def result(self) -> None:
        """The daemon publishes a success."""
        await self.world.reports.until(
            "has the pod", lambda report: report["spec"].get("podProbes"), name=node_name(0)
        )
        await Daemons(self.api, self.world).write(node_name(0))

    async def warned(self) -> bool:
        """Whether an event names the reserved keys."""
        events = await self.api.get("/api/v1/namespaces/default/events")
        said = [each["message"] for each in events["items"] if each["reason"] == "InvalidSpec"]
        return any(
            "key 'pod-template-hash' is reserved: controllers identify" in each for each in said
        )

    async def pod(self, what: str, holds: Any) -> Json:
        return await self.world.pods.until(what, holds, name=pod_name(0), namespace="default")


@pytest.fixture
async def lawless(tmp_path: Path) -> AsyncIterator[Lawless]:
    async with EmbeddedApiServer(crds=kruise_crds(), tokens=NO_TOKENS, validators={}) as server:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        config = ClusterConfig.plain(server.url)
        client = RestClient(config=config, field_manager="kubectl", user_agent="test")
        async with client, following(client) as world:
            api = RawApi(client)
            await api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
            hollow = Hollow(api)
            await hollow.add_node(node_name(0))
            await hollow.add_pod(0, node=node_name(0))
            yield Lawless(api, world, hollow, kubeconfig, tmp_path)


async def test_the_manager_writes_no_reserved_key_without_rules(lawless: Lawless) -> None:
    reserved = dict.fromkeys(LABELS, "x")
    await lawless.hollow.add_marker(
        writing(reserved | FREE, dict.fromkeys(ANNOTATIONS, "x") | HEADLINE),
        {**probe("gate"), "podConditionType": "InPlaceUpdateReady", "markerPolicy": None},
    )
    async with lawless.manager():
        await lawless.result()
        pod = await lawless.pod("is marked", lambda pod: FREE.items() <= labels(pod).items())
        await programs.until("the marker has its event", lawless.warned)

    assert labels(pod) == {"app": "web"} | FREE
    assert pod["metadata"]["annotations"] == HEADLINE
    assert condition(pod, CONDITION)["status"] == "True"
    assert not condition(pod, "InPlaceUpdateReady")


async def test_reserved_keys_of_an_older_manager_are_removed(lawless: Lawless) -> None:
    """What the old manager wrote has this manager's name in the pod's managed fields."""
    written = {"pod-template-hash": "x", "app.kubernetes.io/component": "old"}
    path = f"{pod_path(pod_name(0), subresource='status')}?fieldManager={MANAGER_FIELD_MANAGER}"
    await lawless.api.merge(path, {"metadata": {"labels": written}})
    await lawless.hollow.add_marker(writing({"pod-template-hash": "x"} | FREE))
    async with lawless.manager():
        await lawless.result()
        pod = await lawless.pod("is marked", lambda pod: FREE.items() <= labels(pod).items())
        pod = await lawless.pod("is clean", lambda pod: "pod-template-hash" not in labels(pod))

    assert labels(pod) == {"app": "web"} | FREE


async def test_an_allowed_label_key_is_written(lawless: Lawless) -> None:
    wanted = {"topology.kubernetes.io/zone": "a", "pod-template-hash": "x"}
    await lawless.hollow.add_marker(writing(wanted))
    async with lawless.manager("--allowed-label-keys=topology.kubernetes.io/zone"):
        await lawless.result()
        pod = await lawless.pod(
            "is marked", lambda pod: "topology.kubernetes.io/zone" in labels(pod)
        )

    assert "pod-template-hash" not in labels(pod)


async def test_an_endless_timeout_reaches_no_node(lawless: Lawless) -> None:
    endless = {"exec": {"command": ["sleep", "100000"]}, "timeoutSeconds": 100_000}
    large = {"exec": {"command": ["x" * 9000]}}
    await lawless.hollow.add_marker(
        probe(probe=endless),
        probe("large", podConditionType="example.com/large", probe=large, markerPolicy=None),
    )
    async with lawless.manager():
        report = await lawless.world.reports.until(
            "has the pod", lambda report: report["spec"].get("podProbes"), name=node_name(0)
        )

    (planned,) = report["spec"]["podProbes"][0]["probes"]
    assert planned["name"] == "marker#healthy"
    assert planned["probe"]["timeoutSeconds"] == 3600
