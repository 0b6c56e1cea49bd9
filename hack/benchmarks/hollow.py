"""Hollow nodes and pods: objects only. Pods are as large as real ones and have addresses of 127/8."""

import random
from typing import Any

import msgspec

from benchmarks.api import MERGE, STRATEGIC, Request

NAMESPACE = "kruise-probe-bench"
MARKER = "game"
PROBES = ("idle", "healthy")
LABEL = "bench.kruise-probe.io/idle"
ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
POD_LABELS = {"app": "bench", "pod-template-hash": "5d4c7b9f8"}

PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODE_POD_PROBES_PATH = "/apis/apps.kruise.io/v1alpha1/nodepodprobes"
MARKERS_PATH = f"/apis/apps.kruise.io/v1alpha1/namespaces/{NAMESPACE}/podprobemarkers"
STAMP = "2026-01-01T00:00:00Z"

_encode = msgspec.json.encode


def node_name(number: int) -> str:
    return f"bench-node-{number:05d}"


def pod_name(number: int) -> str:
    return f"bench-{number:05d}-{number * 2654435761 % 2**32:08x}"


def condition_type(probe: str) -> str:
    return f"bench.kruise-probe.io/{probe}"


def node(number: int) -> Request:
    body = {
        "metadata": {"name": node_name(number), "labels": {"kruise-probe-bench": "true"}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},  # Kruise skips others
    }
    return Request("POST", "/api/v1/nodes", _encode(body), counted_as="POST nodes")


def pod(number: int, nodes: int) -> Request:
    body = pod_object(number, nodes)
    del body["status"]
    path = f"{PODS_PATH}?fieldManager=kube-controller-manager"
    return Request("POST", path, _encode(body), counted_as="POST pods")


def pod_status(number: int, nodes: int) -> Request:
    status = pod_object(number, nodes)["status"]
    path = f"{PODS_PATH}/{pod_name(number)}/status?fieldManager=kubelet"
    body = _encode({"status": status})
    return Request("PATCH", path, body, STRATEGIC, counted_as="PATCH pods/status")


def pod_object(number: int, nodes: int) -> dict[str, Any]:
    """A pod as a Deployment makes it, with one container; some 5 KB once stored."""
    mount = {
        "name": "token",
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(number),
            "generateName": "bench-",
            "namespace": NAMESPACE,
            "labels": POD_LABELS | {"zone": f"z{number % 3}"},
            "annotations": {"kubernetes.io/config.source": "api", "bench/note": "n" * 60},
        },
        "spec": {
            "nodeName": node_name(number % nodes),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "token", "emptyDir": {}}],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/game/server:1.27.3",
                    "command": ["sh", "-c", "exec /opt/game/server --port 8080"],
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                    "env": [{"name": f"SETTING_{n}", "value": "v" * 20} for n in range(4)],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                    "volumeMounts": [mount],
                }
            ],
            "tolerations": [{"operator": "Exists"}],
        },
        "status": {
            "phase": "Running",
            "podIP": pod_ip(number),
            "podIPs": [{"ip": pod_ip(number)}],
            "hostIP": "127.0.0.1",
            "startTime": STAMP,
            "qosClass": "Burstable",
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": STAMP}
                for each in (
                    "PodReadyToStartContainers",
                    "Initialized",
                    "Ready",
                    "ContainersReady",
                    "PodScheduled",
                )
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "image": "registry.example/game/server:1.27.3",
                    "imageID": "registry.example/game/server@sha256:" + "b" * 64,
                    "containerID": "containerd://" + f"{number:064x}",
                    "state": {"running": {"startedAt": STAMP}},
                }
            ],
        },
    }


def pod_ip(number: int) -> str:
    return f"127.{number // 62500 + 1}.{number // 250 % 250}.{number % 250 + 1}"


def marker(*, period_seconds: int) -> dict[str, Any]:
    """Two probes: one with a condition and marks for both states, one with a condition only."""

    def policy(state: str, text: str, cost: str) -> dict[str, Any]:
        return {"state": state, "labels": {LABEL: text}, "annotations": {ANNOTATION: cost}}

    def probe(name: str, **more: Any) -> dict[str, Any]:
        handler = {"exec": {"command": ["sh", "-c", f"/opt/game/{name}"]}}
        return {
            "name": name,
            "containerName": "main",
            "podConditionType": condition_type(name),
            "probe": handler | {"periodSeconds": period_seconds, "timeoutSeconds": 1},
            **more,
        }

    policies = [policy("Succeeded", "true", "-10"), policy("Failed", "false", "10")]
    return {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "PodProbeMarker",
        "metadata": {"name": MARKER, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": POD_LABELS["app"]}},
            "probes": [probe(PROBES[0], markerPolicy=policies), probe(PROBES[1])],
        },
    }


def node_pod_probe(node: str) -> Request:
    body = {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "NodePodProbe",
        "metadata": {"name": node},
        "spec": {},
    }
    counted_as = "POST nodepodprobes"
    return Request("POST", NODE_POD_PROBES_PATH, _encode(body), counted_as=counted_as)


def no_node_pod_probe(node: str) -> Request:
    path = f"{NODE_POD_PROBES_PATH}/{node}"
    return Request("DELETE", path, counted_as="DELETE nodepodprobes")


def spec(node: str, pods: list[tuple[str, str]], period_seconds: int) -> Request:
    """The patch that asks a node for the probes of `marker`, for its pods (name, uid)."""
    probes = [
        {"name": f"{MARKER}#{each['name']}", "containerName": "main", "probe": each["probe"]}
        for each in marker(period_seconds=period_seconds)["spec"]["probes"]
    ]
    entries = [
        {"name": name, "namespace": NAMESPACE, "uid": uid, "IP": "127.0.0.1", "probes": probes}
        for name, uid in pods
    ]
    return Request(
        "PATCH",
        f"{NODE_POD_PROBES_PATH}/{node}?fieldManager=kruise-probe-manager",
        _encode({"spec": {"podProbes": entries}}),
        MERGE,
        counted_as="PATCH nodepodprobes",
    )


def results(
    node: str, pods: list[tuple[str, str]], state: str, probed_at: str, moved_at: str
) -> Request:
    """The status that a daemon would write for the pods (name, uid) of its node."""
    states = _states(state, probed_at, moved_at)
    return _status(node, [(name, uid, states) for name, uid in pods])


def mixed_results(node: str, pods: list[tuple[str, str]], failed: set[str]) -> Request:
    """As `results`, with the pods named `failed` in another state than the rest."""
    good, bad = (_states(state, STAMP, STAMP) for state in ("Succeeded", "Failed"))
    return _status(node, [(name, uid, bad if name in failed else good) for name, uid in pods])


def _states(state: str, probed_at: str, moved_at: str) -> list[dict[str, str]]:
    return [
        {
            "name": f"{MARKER}#{probe}",
            "state": state,
            "lastProbeTime": probed_at,
            "lastTransitionTime": moved_at,
            "message": f"{probe}: {state.lower()}",
        }
        for probe in PROBES
    ]


def _status(node: str, pods: list[tuple[str, str, list[dict[str, str]]]]) -> Request:
    statuses = [
        {"name": name, "namespace": NAMESPACE, "uid": uid, "probeStates": states}
        for name, uid, states in pods
    ]
    return Request(
        "PATCH",
        f"{NODE_POD_PROBES_PATH}/{node}/status?fieldManager=kruise-probe-daemon",
        _encode({"status": {"podProbeStatuses": statuses}}),
        MERGE,
        counted_as="PATCH nodepodprobes/status",
    )


def floor_patch(name: str, uid: str, state: str | None, at: str) -> Request:
    """The patch that a manager has to send for a result, under names of the floor's own; None takes all away."""
    label, annotation = "floor.kruise-probe.io/idle", "floor.kruise-probe.io/pod-deletion-cost"
    gone = state is None
    conditions: list[dict[str, str]] = [
        {"$patch": "delete", "type": f"floor.kruise-probe.io/{probe}"}
        if gone
        else {
            "type": f"floor.kruise-probe.io/{probe}",
            "status": "True" if state == "Succeeded" else "False",
            "message": f"{probe}: {state}",
            "lastProbeTime": at,
            "lastTransitionTime": at,
        }
        for probe in PROBES
    ]
    metadata = {
        "uid": uid,
        "labels": {label: None if gone else str(state == "Succeeded").lower()},
        "annotations": {annotation: None if gone else str(random.choice((-10, 10)))},
    }
    return Request(
        "PATCH",
        f"{PODS_PATH}/{name}/status?fieldManager=bench-floor",
        _encode({"metadata": metadata, "status": {"conditions": conditions}}),
        STRATEGIC,
        counted_as="PATCH pods/status",
    )
