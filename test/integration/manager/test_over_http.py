"""The manager's controllers on an API server over HTTP: managed fields, uids and schemas need one.

Nodes are hollow: the tests write results in place of a daemon.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.builders import (
    Json,
    marker_wire,
    pod_status_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.hollow import pod_object
from support.kruise_crds import kruise_crds
from support.running_manager import RecordingRecorder, running
from support.target import (
    condition,
    labels,
    marker_path,
    node_pod_probe_path,
    pod_path,
)

from kruise_probe.api.errors import Conflict
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import MANAGER_FIELD_MANAGER, MARKER_FINALIZER
from kruise_probe.controllers.product import ManagerOptions, build
from kruise_probe.manager.manager import Manager
from kruise_probe.manifests.crds import all_crds
from kruise_probe.serving.health import Checks

C = "example.com/healthy"


@pytest.fixture
def crds() -> list[Json]:
    return all_crds()


@pytest.fixture
async def cluster(crds: list[Json], tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster(tmp_path, crds=crds) as cluster:
        await cluster.hollow.add_node("node-1")
        yield cluster


@asynccontextmanager
async def manager(cluster: EmbeddedCluster, *, namespace: str = "") -> AsyncIterator[None]:
    manager = Manager(
        cluster.upstream, name=MANAGER_FIELD_MANAGER, ready=Checks(), namespace=namespace
    )
    build(manager, ManagerOptions("kruise-system"), recorder=RecordingRecorder())
    async with manager.rest, running(manager):
        yield


async def add_pod(
    cluster: EmbeddedCluster, name: str, *, gates: tuple[str, ...] = (), namespace: str = "default"
) -> None:
    wire = pod_object(name, node="node-1", ip="127.1.0.1", at="2026-01-01T00:00:00Z")
    status = wire.pop("status")
    wire["spec"]["readinessGates"] = [{"conditionType": each} for each in gates]
    await cluster.api.create(pod_path("", namespace).rstrip("/"), wire)
    await cluster.api.merge(pod_path(name, namespace, "status"), {"status": status})


async def add_marker(cluster: EmbeddedCluster, *, namespace: str = "default", **more: Any) -> None:
    wire = marker_wire(namespace=namespace, **more)
    body = {**wire, "metadata": {"name": wire["metadata"]["name"]}}
    await cluster.api.create(marker_path("", namespace).rstrip("/"), body)


async def planned(cluster: EmbeddedCluster, *pods: str) -> None:
    """Waits until NodePodProbe.spec lists exactly these pods."""
    await cluster.api.node_pod_probes.until(
        f"lists {pods}",
        lambda found: {each["name"] for each in found["spec"].get("podProbes", ())} == set(pods),
        name="node-1",
    )


async def write_results(cluster: EmbeddedCluster, results: dict[str, list[Json]]) -> None:
    """The daemon of node-1 writes results by pod."""
    statuses = []
    for name, states in results.items():
        pod = cluster.api.pods.newest(name, "default")
        assert pod is not None
        statuses.append(pod_status_wire(pod, *states))
    body = {"status": {"podProbeStatuses": statuses}}
    await cluster.api.merge(f"{node_pod_probe_path('node-1')}/status", body)


async def until_pod(
    cluster: EmbeddedCluster, name: str, what: str, holds: Callable[..., object]
) -> Json:
    return await cluster.api.pods.until(what, holds, name=name, namespace="default")


@pytest.mark.parametrize(
    ("crds", "roles"),
    [
        pytest.param(all_crds(), ("primary", "none"), id="our-crds"),
        pytest.param(kruise_crds(), ("none", "none"), id="pruned-by-kruises-crd"),
    ],
)
async def test_values_come_from_messages_where_the_crd_keeps_the_field(
    cluster: EmbeddedCluster, roles: tuple[str, str]
) -> None:
    values = [{"label": "role", "regex": "role=(.*)"}]
    policies = [policy_wire("Succeeded", {"role": "none"}, from_message=values)]
    await add_pod(cluster, "web-0")
    await add_marker(cluster, probes=[probe_wire(policies=policies)])
    async with manager(cluster):
        await planned(cluster, "web-0")
        for message, role in zip(("role=primary", "starting"), roles, strict=True):
            await write_results(cluster, {"web-0": [state_wire(message=message)]})
            pod = await until_pod(
                cluster,
                "web-0",
                f"shows {message}",
                lambda pod, message=message: condition(pod, C).get("message") == message,
            )
            assert labels(pod)["role"] == role


async def test_the_finalizer_is_added_without_losing_a_concurrent_one(
    cluster: EmbeddedCluster,
) -> None:
    await add_marker(cluster)
    path = marker_path("web")
    async with manager(cluster):
        added: list[str] = []
        while len(added) < 5:
            meta = (await cluster.api.get(path))["metadata"]
            finalizers = [*meta.get("finalizers", ()), f"example.com/{len(added)}"]
            change = {"resourceVersion": meta["resourceVersion"], "finalizers": finalizers}
            try:
                await cluster.api.merge(path, {"metadata": change})
            except Conflict:
                continue
            added.append(finalizers[-1])
        await cluster.api.markers.until(
            "has our finalizer",
            lambda marker: MARKER_FINALIZER in marker["metadata"].get("finalizers", ()),
            name="web",
            namespace="default",
        )
    finalizers = (await cluster.api.get(path))["metadata"]["finalizers"]
    assert set(added) | {MARKER_FINALIZER} == set(finalizers)


async def test_managers_of_two_namespaces_leave_each_others_entries(
    cluster: EmbeddedCluster,
) -> None:
    names: set[str] = set()
    await cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    for namespace in ("default", "other"):
        await add_marker(cluster, namespace=namespace)
    async with manager(cluster, namespace="default"), manager(cluster, namespace="other"):
        for number in range(10):
            async with asyncio.TaskGroup() as group:
                for namespace in ("default", "other"):
                    name = f"{namespace}-{number}"
                    names.add(name)
                    group.create_task(add_pod(cluster, name, namespace=namespace))
        await planned(cluster, *names)
    listed: set[str] = set()
    for each in cluster.api.node_pod_probes.history[NamespacedName("", "node-1")]:
        now = {entry["name"] for entry in each["spec"].get("podProbes", ())}
        assert listed <= now, "an entry was removed in between"
        listed = now
