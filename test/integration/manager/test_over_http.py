"""The manager's product over a real HTTP API server: what only that has are managed fields, uids and schemas.

Nodes are hollow: nobody probes, the tests publish results as a daemon would.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import (
    Json,
    marker_wire,
    pod_status_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.kruise_crds import kruise_crds
from support.programs import until
from support.running_manager import RecordingRecorder, running
from support.world import World, annotations, condition, following, labels

from kruise_probe.api.errors import Conflict
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import MANAGER_FIELD_MANAGER, MARKER_FINALIZER
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS, Resource
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import load_config
from kruise_probe.client.rest import PatchType, RestClient
from kruise_probe.controllers.product import Options, build
from kruise_probe.manifests.crds import marker_crd, node_pod_probe_crd
from kruise_probe.playground.apiserver.server import EmbeddedApiServer
from kruise_probe.playground.apiserver.users import NO_TOKENS

C = "example.com/healthy"
BOTH = [
    policy_wire("Succeeded", {"healthy": "true"}, {"cost": "10"}),
    policy_wire("Failed", {"sick": "true"}),
]


class Cluster:
    """A user, a kubelet and a daemon."""

    def __init__(self, server: EmbeddedApiServer, client: RestClient, world: World) -> None:
        self.server = server
        self.client = client
        self.world = world

    async def create(self, resource: Resource[Any], wire: Json) -> None:
        body = {**wire, "metadata": dict(wire["metadata"])}
        for field in ("uid", "resourceVersion", "creationTimestamp", "generation"):
            body["metadata"].pop(field, None)
        namespace = wire["metadata"].get("namespace", "")
        await self.client.create(resource, msgspec.json.encode(body), namespace=namespace)

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Json,
        subresource: str = "",
        *,
        namespace: str = "default",
    ) -> None:
        key = NamespacedName(namespace if resource.namespaced else "", name)
        await self.client.patch(
            resource,
            key,
            msgspec.json.encode(patch),
            patch_type=PatchType.STRATEGIC_MERGE if resource is PODS else PatchType.MERGE,
            subresource=subresource,
        )

    async def pod(
        self,
        name: str,
        *,
        gates: tuple[str, ...] = (),
        node: str = "node-1",
        namespace: str = "default",
    ) -> None:
        wire = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "none"}],
                "readinessGates": [{"conditionType": each} for each in gates],
            },
        }
        await self.create(PODS, wire)
        ready = {"type": "Initialized", "status": "True"}
        status = {"phase": "Running", "podIP": "127.1.0.1", "conditions": [ready]}
        await self.patch(PODS, name, {"status": status}, "status", namespace=namespace)

    async def planned(self, *pods: str) -> None:
        """Until the node is asked to probe exactly these."""

        def holds(npp: Json) -> bool:
            return {each["name"] for each in npp["spec"].get("podProbes", ())} == set(pods)

        await self.world.reports.until(f"asks for {pods}", holds, name="node-1")

    async def report(self, name: str, *states: Json) -> None:
        """The daemon of `node-1` publishes results of one pod."""
        pod = self.world.pods.newest(name, "default")
        assert pod is not None
        body = {"status": {"podProbeStatuses": [pod_status_wire(pod, *states)]}}
        await self.patch(NODE_POD_PROBES, "node-1", body, "status")

    async def shows(self, name: str, status: str) -> Json:
        return await self.world.pods.until(
            f"{C} is {status}",
            lambda pod: condition(pod, C).get("status") == status,
            name=name,
            namespace="default",
        )

    def versions(self) -> dict[str, str]:
        """The resource version of everything that a manager writes to."""
        return {
            f"{resource} {each['metadata']['name']}": each["metadata"]["resourceVersion"]
            for resource in (
                "pods",
                "podprobemarkers.apps.kruise.io",
                "nodepodprobes.apps.kruise.io",
            )
            for each in self.server.objects(resource)
        }


@pytest.fixture
def crds() -> list[Json]:
    return [marker_crd(), node_pod_probe_crd()]


@pytest.fixture
async def cluster(crds: list[Json], tmp_path: Path) -> AsyncIterator[Cluster]:
    async with EmbeddedApiServer(crds=crds, tokens=NO_TOKENS) as server:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        config = load_config(str(tmp_path / "kubeconfig"))
        async with (
            RestClient(config=config, field_manager="kubectl", user_agent="test") as client,
            following(client) as world,
        ):
            cluster = Cluster(server, client, world)
            await cluster.create(NODES, {"metadata": {"name": "node-1"}})
            yield cluster


@asynccontextmanager
async def manager(cluster: Cluster, *, namespace: str = "") -> AsyncIterator[None]:
    async with RestClient(
        config=cluster.client.config, field_manager=MANAGER_FIELD_MANAGER, user_agent="test"
    ) as client:
        options = Options("kruise-system", namespace=namespace)
        async with running(build(client, RecordingRecorder(), options, now=utc_now)):
            yield


async def test_a_marker_from_its_birth_to_its_end(cluster: Cluster) -> None:
    await cluster.pod("web-0")
    await cluster.create(MARKERS, marker_wire(probes=[probe_wire(policies=BOTH)]))
    async with manager(cluster):
        await cluster.planned("web-0")
        await cluster.report("web-0", state_wire(message="fine"))
        pod = await cluster.shows("web-0", "True")
        assert labels(pod) == {"app": "web", "healthy": "true"}
        assert annotations(pod) == {"cost": "10"}
        assert condition(pod, C)["message"] == "fine"

        await cluster.report("web-0", state_wire(state="Failed", moved="2026-01-01T00:02:00Z"))
        pod = await cluster.shows("web-0", "False")
        assert labels(pod) == {"app": "web", "sick": "true"}
        assert annotations(pod) == {}
        assert "message" not in condition(pod, C)
        assert condition(pod, C)["lastTransitionTime"] == "2026-01-01T00:02:00Z"
        await cluster.world.markers.until(
            "counts the failure",
            lambda marker: marker["status"].get("failed") == 1,
            name="web",
            namespace="default",
        )

        await cluster.client.delete(MARKERS, NamespacedName("default", "web"))
        await cluster.world.markers.until_gone("web", "default")
        assert cluster.server.object("nodepodprobes.apps.kruise.io", "node-1")["spec"] == {}  # type: ignore[index]
        pod = await cluster.world.pods.until(
            "carries nothing of ours",
            lambda pod: labels(pod) == {"app": "web"} and not condition(pod, C),
            name="web-0",
            namespace="default",
        )
        managers = {each["manager"] for each in pod["metadata"]["managedFields"]}
        assert MANAGER_FIELD_MANAGER not in managers


async def test_what_happened_while_the_manager_was_down_is_made_good(cluster: Cluster) -> None:
    await cluster.pod("web-0")
    await cluster.pod("gate-0", gates=(C,))
    await cluster.create(MARKERS, marker_wire(probes=[probe_wire(policies=BOTH)]))
    async with manager(cluster):
        await cluster.planned("web-0", "gate-0")
        pods = [cluster.world.pods.newest(each, "default") for each in ("web-0", "gate-0")]
        statuses = [pod_status_wire(each, state_wire()) for each in pods if each is not None]
        body = {"status": {"podProbeStatuses": statuses}}
        await cluster.patch(NODE_POD_PROBES, "node-1", body, "status")
        await cluster.shows("web-0", "True")
        await cluster.shows("gate-0", "True")
    for name in ("web-0", "gate-0"):
        await cluster.patch(PODS, name, {"metadata": {"labels": {"app": "other", "mine": "1"}}})
    async with manager(cluster):
        await cluster.planned()
        await cluster.world.pods.until(
            "lost what was ours",
            lambda pod: labels(pod) == {"app": "other", "mine": "1"} and not condition(pod, C),
            name="web-0",
            namespace="default",
        )
        gate = await cluster.world.pods.until(
            "keeps its gate",
            lambda pod: condition(pod, C).get("reason") == "ProbeRemoved",
            name="gate-0",
            namespace="default",
        )
        assert condition(gate, C)["status"] == "True"
        assert labels(gate) == {"app": "other", "mine": "1"}


@pytest.mark.parametrize(
    "crds",
    [
        pytest.param([marker_crd(), node_pod_probe_crd()], id="our-crds"),
        pytest.param(kruise_crds(), id="status-fields-pruned"),
    ],
)
async def test_a_restart_changes_nothing(cluster: Cluster) -> None:
    await cluster.pod("web-0")
    handlers: list[Json] = [
        {"httpGet": {"port": 80}},
        {"tcpSocket": {"port": "http"}},
        {"grpc": {"port": 80}},
        {"exec": {"command": ["true"]}},
    ]
    probes = [
        probe_wire(f"p{number}", condition=f"c{number}", handler=each)
        for number, each in enumerate(handlers)
    ]
    await cluster.create(MARKERS, marker_wire(probes=probes))
    async with manager(cluster):
        await cluster.planned("web-0")
        await cluster.report("web-0", *(state_wire(f"web#p{number}") for number in range(4)))
        await cluster.world.pods.until(
            "shows the last condition",
            lambda pod: bool(condition(pod, "c3")),
            name="web-0",
            namespace="default",
        )

        async def settled() -> bool:
            before = cluster.versions()
            await asyncio.sleep(2.5)
            return cluster.versions() == before

        await until("nothing is written any more", settled)
    before = cluster.versions()
    async with manager(cluster):
        await asyncio.sleep(1.5)
    assert cluster.versions() == before


async def test_other_writers_of_the_same_pod_lose_nothing(cluster: Cluster) -> None:
    await cluster.pod("web-0")
    await cluster.create(MARKERS, marker_wire(probes=[probe_wire(policies=BOTH)]))
    async with manager(cluster):
        await cluster.planned("web-0")
        for number in range(50):
            await cluster.patch(PODS, "web-0", {"metadata": {"labels": {f"l{number}": "1"}}})
            if number % 10 == 0:
                state = "Failed" if number % 20 else "Succeeded"
                await cluster.report("web-0", state_wire(state=state, message=f"{number}"))
        pod = await cluster.world.pods.until(
            "shows both",
            lambda pod: condition(pod, C).get("message") == "40" and "l49" in labels(pod),
            name="web-0",
            namespace="default",
        )
    theirs = {f"l{number}": "1" for number in range(50)}
    assert labels(pod) == {"app": "web", "healthy": "true", **theirs}


async def test_the_finalizer_is_added_without_losing_a_concurrent_one(cluster: Cluster) -> None:
    await cluster.create(MARKERS, marker_wire())
    async with manager(cluster):
        added: list[str] = []
        while len(added) < 5:
            marker = cluster.server.object("podprobemarkers.apps.kruise.io", "web", "default")
            assert marker is not None
            present = marker["metadata"].get("finalizers", [])
            patch = {
                "metadata": {
                    "resourceVersion": marker["metadata"]["resourceVersion"],
                    "finalizers": [*present, f"example.com/{len(added)}"],
                }
            }
            try:
                await cluster.patch(MARKERS, "web", patch)
            except Conflict:
                continue
            added.append(f"example.com/{len(added)}")
        await cluster.world.markers.until(
            "holds ours",
            lambda marker: MARKER_FINALIZER in marker["metadata"].get("finalizers", ()),
            name="web",
            namespace="default",
        )
    marker = cluster.server.object("podprobemarkers.apps.kruise.io", "web", "default")
    assert marker is not None
    assert set(added) | {MARKER_FINALIZER} == set(marker["metadata"]["finalizers"])


async def test_managers_of_two_namespaces_leave_each_others_entries(cluster: Cluster) -> None:
    names: set[str] = set()
    await cluster.client.request_raw(
        "POST", "/api/v1/namespaces", msgspec.json.encode({"metadata": {"name": "other"}})
    )
    for namespace in ("default", "other"):
        await cluster.create(MARKERS, marker_wire(namespace=namespace))
    async with manager(cluster, namespace="default"), manager(cluster, namespace="other"):
        for number in range(10):
            async with asyncio.TaskGroup() as group:
                for namespace in ("default", "other"):
                    name = f"{namespace}-{number}"
                    names.add(name)
                    group.create_task(cluster.pod(name, namespace=namespace))
        await cluster.planned(*names)
    seen: set[str] = set()
    for each in cluster.world.reports.history[NamespacedName("", "node-1")]:
        asked = {entry["name"] for entry in each["spec"].get("podProbes", ())}
        assert asked >= seen, "no pod was deleted"
        seen = asked
