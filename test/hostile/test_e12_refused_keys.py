"""E12: a marker that writes what others decide by: refused at admission, and ignored by the manager where no rule is installed."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support import programs
from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.hollow import CONDITION, node_name, pod_name, probe
from support.kruise_crds import kruise_crds
from support.target import condition, labels, pod_path

from kruise_probe.api.names import MANAGER_FIELD_MANAGER

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


@pytest.fixture
async def without_rules(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """One pod on an API server with Kruise's CRDs, which have no rules; no webhook runs."""
    async with embedded_cluster(tmp_path, crds=kruise_crds(), validators={}) as cluster:
        await cluster.hollow.add_node(node_name(0))
        await cluster.hollow.add_pod(0, node=node_name(0))
        yield cluster


async def write_result(cluster: EmbeddedCluster) -> None:
    """The daemon writes a success as soon as NodePodProbe.spec has the pod."""
    await cluster.api.node_pod_probes.until(
        "has the pod", lambda found: found["spec"].get("podProbes"), name=node_name(0)
    )
    await cluster.daemons.write(node_name(0))


async def until_pod(cluster: EmbeddedCluster, what: str, holds: Callable[[Json], object]) -> Json:
    return await cluster.api.pods.until(what, holds, name=pod_name(0), namespace="default")


async def names_reserved_keys(cluster: EmbeddedCluster) -> bool:
    events = await cluster.api.get("/api/v1/namespaces/default/events")
    messages = [each["message"] for each in events["items"] if each["reason"] == "InvalidSpec"]
    return any("key 'kubernetes.io/config.source' is reserved: " in each for each in messages)


async def test_the_manager_writes_no_reserved_key_without_rules(
    without_rules: EmbeddedCluster,
) -> None:
    reserved = dict.fromkeys(LABELS, "x")
    await without_rules.hollow.add_marker(
        writing(reserved | FREE, dict.fromkeys(ANNOTATIONS, "x") | HEADLINE),
        {**probe("gate"), "podConditionType": "InPlaceUpdateReady", "markerPolicy": None},
    )
    async with without_rules.manager():
        await write_result(without_rules)
        pod = await until_pod(
            without_rules, "is marked", lambda pod: FREE.items() <= labels(pod).items()
        )
        await programs.until(
            "an event names the reserved keys", lambda: names_reserved_keys(without_rules)
        )

    assert labels(pod) == {"app": "web"} | FREE
    assert pod["metadata"]["annotations"] == HEADLINE
    assert condition(pod, CONDITION)["status"] == "True"
    assert not condition(pod, "InPlaceUpdateReady")


async def test_reserved_keys_of_an_older_manager_are_removed(
    without_rules: EmbeddedCluster,
) -> None:
    """What the old manager wrote has this manager's name in the pod's managed fields."""
    written = {"pod-template-hash": "x", "app.kubernetes.io/component": "old"}
    path = f"{pod_path(pod_name(0), subresource='status')}?fieldManager={MANAGER_FIELD_MANAGER}"
    await without_rules.api.merge(path, {"metadata": {"labels": written}})
    await without_rules.hollow.add_marker(writing({"pod-template-hash": "x"} | FREE))
    async with without_rules.manager():
        await write_result(without_rules)
        pod = await until_pod(
            without_rules, "is marked", lambda pod: FREE.items() <= labels(pod).items()
        )
        pod = await until_pod(
            without_rules, "is clean", lambda pod: "pod-template-hash" not in labels(pod)
        )

    assert labels(pod) == {"app": "web"} | FREE


async def test_an_allowed_label_key_is_written(without_rules: EmbeddedCluster) -> None:
    wanted = {"topology.kubernetes.io/zone": "a", "pod-template-hash": "x"}
    await without_rules.hollow.add_marker(writing(wanted))
    async with without_rules.manager("--allowed-label-keys=topology.kubernetes.io/zone"):
        await write_result(without_rules)
        pod = await until_pod(
            without_rules, "is marked", lambda pod: "topology.kubernetes.io/zone" in labels(pod)
        )

    assert "pod-template-hash" not in labels(pod)


async def test_an_endless_timeout_reaches_no_node(without_rules: EmbeddedCluster) -> None:
    endless = {"exec": {"command": ["sleep", "100000"]}, "timeoutSeconds": 100_000}
    large = {"exec": {"command": ["x" * 9000]}}
    await without_rules.hollow.add_marker(
        probe(probe=endless),
        probe("large", podConditionType="example.com/large", probe=large, markerPolicy=None),
    )
    async with without_rules.manager():
        report = await without_rules.api.node_pod_probes.until(
            "has the pod", lambda report: report["spec"].get("podProbes"), name=node_name(0)
        )

    (planned,) = report["spec"]["podProbes"][0]["probes"]
    assert planned["name"] == "marker#healthy"
    assert planned["probe"]["timeoutSeconds"] == 3600
