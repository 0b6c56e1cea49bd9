"""Hollow objects of the benchmarks: requests that play users and daemons, and the patches of the floor."""

import random
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from support.hollow import (
    ANNOTATION,
    Hollow,
    marker_object,
    node_pod_probe_object,
    probe,
    probe_state,
    spec_entry,
)
from support.target import Target, marker_path, node_pod_probe_path, pod_path

from benchmarks.api import JSON, MERGE, STRATEGIC, BareRequest
from benchmarks.reporting import progress
from kruise_probe.client.request import METADATA_ONLY

Json = dict[str, Any]

NAMESPACE = "kruise-probe-bench"
MARKER = "game"
PROBES = ("idle", "healthy")
PADDING_BYTES = 2_000
"""With what the API server adds, a pod has 5 KB."""

PODS_AT_ONCE = 10_000

PODS_PATH = pod_path("", NAMESPACE).rstrip("/")
NODE_POD_PROBES_PATH = node_pod_probe_path("").rstrip("/")
MARKERS_PATH = marker_path("", NAMESPACE).rstrip("/")
STAMP = "2026-01-01T00:00:00Z"

_encode = msgspec.json.encode


class HollowPod(NamedTuple):
    name: str
    uid: str


PodsOf = dict[str, list[HollowPod]]
"""The pods of each node."""


async def create(api: Target, *, nodes: int, pods: int) -> PodsOf:
    """Creates nodes and running pods, the same number on each node."""
    hollow = Hollow(api, NAMESPACE)
    await hollow.add_nodes(nodes)
    for first in range(0, pods, PODS_AT_ONCE):
        count = min(PODS_AT_ONCE, pods - first)
        await hollow.add_pods(count, nodes=nodes, first=first, padding_bytes=PADDING_BYTES)
        progress(f"{first + count} of {pods} pods exist")
    found: list[tuple[str, HollowPod]] = []
    token = ""
    while True:
        page = await api.get(f"{PODS_PATH}?limit=500&continue={token}")
        for item in page["items"]:
            meta = item["metadata"]
            found.append((item["spec"]["nodeName"], HollowPod(meta["name"], meta["uid"])))
        token = page["metadata"].get("continue", "")
        if not token:
            return {
                node: [pod for _, pod in pairs]
                for node, pairs in groupby(
                    sorted(found),
                    key=lambda pair: pair[0],
                )
            }


def condition_type(name: str) -> str:
    return f"bench.kruise-probe.io/{name}"


def marker(*, period_seconds: int) -> Json:
    """Two probes: one with a condition, labels and annotations, one with a condition only."""
    handler = {
        "exec": {"command": ["true"]},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 1,
    }
    idle, healthy = (
        probe(
            name,
            probe=handler,
            podConditionType=condition_type(name),
        )
        for name in PROBES
    )
    del healthy["markerPolicy"]
    return marker_object(idle, healthy, name=MARKER, app="web")


def node_pod_probe(node: str) -> BareRequest:
    body = _encode(node_pod_probe_object(node))
    return BareRequest("POST", NODE_POD_PROBES_PATH, body, counted_as="POST nodepodprobes")


def no_node_pod_probe(node: str) -> BareRequest:
    return BareRequest("DELETE", node_pod_probe_path(node), counted_as="DELETE nodepodprobes")


def spec(
    node: str,
    pods: Iterable[HollowPod],
    period_seconds: int,
) -> BareRequest:
    """The patch of a manager that lists the probes of `marker` for the pods of a node."""
    probes = [
        {
            "name": f"{MARKER}#{each['name']}",
            "containerName": "main",
            "probe": each["probe"],
        }
        for each in marker(period_seconds=period_seconds)["spec"]["probes"]
    ]
    entries = [
        spec_entry(
            name,
            uid,
            probes,
            namespace=NAMESPACE,
            ip="127.0.0.1",
        )
        for name, uid in pods
    ]
    return BareRequest(
        "PATCH",
        f"{node_pod_probe_path(node)}?fieldManager=kruise-probe-manager",
        _encode({"spec": {"podProbes": entries}}),
        MERGE,
        counted_as="PATCH nodepodprobes",
    )


def results(
    node: str,
    pods: Iterable[HollowPod],
    state: str = "Succeeded",
    *,
    version: str = "",
    failed: Iterable[str] = (),
    probed_at: str = STAMP,
    moved_at: str = STAMP,
) -> BareRequest:
    """The status write of a node's daemon. Pods named `failed` are Failed, the others have `state`.

    As daemons do, it updates the object of this `version`. Without one it is a merge patch, which cannot conflict.
    """
    statuses = [
        {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "probeStates": _states("Failed" if name in failed else state, probed_at, moved_at),
        }
        for name, uid in pods
    ]
    path = f"{node_pod_probe_path(node)}/status?fieldManager=kruise-probe-daemon"
    status = {"status": {"podProbeStatuses": statuses}}
    if not version:
        counted_as = "PATCH nodepodprobes/status"
        return BareRequest("PATCH", path, _encode(status), MERGE, counted_as)
    body = {
        **node_pod_probe_object(node),
        "metadata": {"name": node, "resourceVersion": version},
        **status,
    }
    counted_as = "PUT nodepodprobes/status"
    return BareRequest(
        "PUT",
        path,
        _encode(body),
        JSON,
        counted_as,
        accept=METADATA_ONLY,
    )


def _states(
    state: str,
    probed_at: str,
    moved_at: str,
) -> list[Json]:
    return [
        probe_state(
            f"{MARKER}#{name}",
            state,
            f"{name}: {state.lower()}",
            probed_at=probed_at,
            moved_at=moved_at,
        )
        for name in PROBES
    ]


def floor_patch(pod: HollowPod, state: str | None) -> BareRequest:
    """The patch that a manager has to send for a result, under other names; None removes what it wrote."""
    conditions = [
        {"$patch": "delete", "type": f"floor.kruise-probe.io/{name}"}
        if state is None
        else {
            "type": f"floor.kruise-probe.io/{name}",
            "status": "True" if state == "Succeeded" else "False",
            "message": f"{name}: {state}",
            "lastProbeTime": STAMP,
            "lastTransitionTime": STAMP,
        }
        for name in PROBES
    ]
    label = None if state is None else str(state == "Succeeded").lower()
    cost = None if state is None else str(random.choice((-10, 10)))
    metadata = {
        "uid": pod.uid,
        "labels": {"floor.kruise-probe.io/idle": label},
        "annotations": {f"floor.{ANNOTATION}": cost},
    }
    return BareRequest(
        "PATCH",
        f"{pod_path(pod.name, NAMESPACE, 'status')}?fieldManager=bench-floor",
        _encode({"metadata": metadata, "status": {"conditions": conditions}}),
        STRATEGIC,
        counted_as="PATCH pods/status",
    )
