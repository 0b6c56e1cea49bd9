"""E12: a marker that writes what others decide by: refused at admission, and ignored by the manager where no rule is installed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import programs
from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.hollow import CONDITION, node_name, pod_name, probe
from support.kruise_crds import kruise_crds
from support.target import annotations, condition, labels, status_of

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
NODE = node_name(0)
FREE = {"app.kubernetes.io/component": "lobby"}


@pytest.fixture
async def without_rules(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """One pod on an API server with Kruise's CRDs, which have no rules; no webhook runs."""
    async with embedded_cluster(tmp_path, crds=kruise_crds(), validators={}) as cluster:
        await cluster.hollow.add_node(NODE)
        await cluster.hollow.add_pod(0, node=NODE)
        yield cluster


async def names_reserved_keys(cluster: EmbeddedCluster) -> bool:
    events = await cluster.api.get("/api/v1/namespaces/default/events")
    for event in events["items"]:
        named = "key 'kubernetes.io/config.source' is reserved: " in event["message"]
        if named and event["reason"] == "InvalidSpec":
            return True
    return False


async def test_the_manager_writes_no_reserved_key_without_rules(
    without_rules: EmbeddedCluster,
) -> None:
    api = without_rules.api
    policy = {
        "state": "Succeeded",
        "labels": {**dict.fromkeys(LABELS, "x"), **FREE},
        "annotations": {**dict.fromkeys(ANNOTATIONS, "x"), **HEADLINE},
    }
    await without_rules.hollow.add_marker(
        probe(markerPolicy=[policy]),
        probe("gate", podConditionType="InPlaceUpdateReady", markerPolicy=None),
    )
    async with without_rules.manager("--allowed-label-keys=topology.kubernetes.io/zone"):
        await api.node_pod_probes.until(
            "has the pod",
            lambda found: found["spec"].get("podProbes"),
            name=NODE,
        )
        await without_rules.daemons.write(NODE)
        pod = await api.pods.until(
            "is marked",
            lambda pod: FREE.items() <= labels(pod).items(),
            name=pod_name(0),
            namespace="default",
        )
        await programs.until(
            "an event names the reserved keys", lambda: names_reserved_keys(without_rules)
        )

    assert labels(pod) == {"app": "web", "topology.kubernetes.io/zone": "x", **FREE}
    assert annotations(pod) == HEADLINE
    assert status_of(pod, CONDITION) == "True"
    assert not condition(pod, "InPlaceUpdateReady")
