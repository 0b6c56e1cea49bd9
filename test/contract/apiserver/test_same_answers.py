"""The same requests to both servers, answer by answer: what no single test thought of.

Runs only where a real server is at hand. Identity, times and versions are compared by their form.
"""

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.api_server import ApiServer
from support.contract_api import MERGE, STRATEGIC, Api, Json, ServerAddress, marker, pod

Step = tuple[str, str, Any, str, dict[str, Any]]

ADMITTED = ("tolerations", "priority", "preemptionPolicy", "volumes", "volumeMounts")
"""What the real server's admission plugins add to a pod."""

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SENTENCE = re.compile(r'(patch: Invalid value|Invalid value: (?:"[^"{]*"|"|[^:"]*))(: |\{).*')
"""Which value is wrong must be the same; the sentence that says why may be our own."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def step(method: str, path: str, body: Any = None, form: str = "", **query: Any) -> Step:
    return method, path, body, form, query


def normalised(value: Any, namespace: str) -> Any:
    """Without what differs between any two servers."""
    if isinstance(value, dict):
        if "causes" in value:  # the real server names some twice
            causes = [normalised(each, namespace) for each in value["causes"]]
            value = {**value, "causes": list({str(each): each for each in causes}.values())}
        if value.get("managedFields"):
            # The servers order entries by whole seconds: the order depends on when the requests came.
            entries = sorted(value["managedFields"], key=_writer)
            value = {**value, "managedFields": entries}
        return {
            key: "version" if key == "resourceVersion" else normalised(each, namespace)
            for key, each in value.items()
            if key not in ADMITTED
        }
    if isinstance(value, list):
        return [normalised(each, namespace) for each in value]
    if isinstance(value, str):
        value = SENTENCE.sub(r"\1", value.partition("\n")[0])
        value = TIME.sub("time", UUID.sub("uid", value.replace(namespace, "ns")))
        return re.sub(r"contract/[0-9.]+", "contract", value)
    return value


def _writer(entry: dict[str, Any]) -> tuple[str, str, str]:
    return entry.get("manager", ""), entry.get("operation", ""), entry.get("subresource", "")


@pytest.fixture
async def both(api: Api) -> AsyncIterator[tuple[Api, Api]]:
    """The real server and the playground's, each with a namespace of its own."""
    async with (
        ApiServer() as server,
        aiohttp.ClientSession() as session,
    ):
        other = Api(session, ServerAddress(server.url, Path()))
        await other.post(other.path("namespaces"), {"metadata": {"name": other.namespace}})
        yield api, other


PODS = "/api/v1/namespaces/{ns}/pods"
MARKERS = "/apis/apps.kruise.io/v1alpha1/namespaces/{ns}/podprobemarkers"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
EVENTS = "/api/v1/namespaces/{ns}/events"


def rich_pod() -> Json:
    body = pod("p", labels={"app": "a"}, annotations={"x": "y"})
    body["spec"] |= {
        "initContainers": [{"name": "s", "image": "i:1", "restartPolicy": "Always"}],
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["h"]}],
        "readinessGates": [{"conditionType": "example.com/healthy"}],
        "nodeSelector": {},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "affinity": {"nodeAffinity": {}},
    }
    body["spec"]["containers"][0] |= {
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "livenessProbe": {"tcpSocket": {"port": "http"}, "initialDelaySeconds": 1},
        "startupProbe": {"grpc": {"port": 5}, "failureThreshold": 30},
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
    }
    return body


SCENARIOS: dict[str, Callable[[], list[Step]]] = {
    "a-rich-pod": lambda: [
        step("POST", PODS, rich_pod(), fieldManager="a"),
        step("GET", f"{PODS}/p"),
        step("PATCH", f"{PODS}/p", {"metadata": {"labels": {"b": "c"}}}, MERGE, fieldManager="b"),
        step(
            "PATCH",
            f"{PODS}/p",
            {"metadata": {"labels": {"app": None}}},
            STRATEGIC,
            fieldManager="b",
        ),
        step("PATCH", f"{PODS}/p", {"spec": {"hostname": "x"}}, STRATEGIC),
        step("GET", PODS),
        step("DELETE", f"{PODS}/p"),
        step("DELETE", f"{PODS}/p", None, "", gracePeriodSeconds=0),
    ],
    "a-pod-whose-status-is-reported": lambda: [
        step("POST", PODS, pod("p")),
        step(
            "PATCH",
            f"{PODS}/p/status",
            {
                "status": {
                    "phase": "Running",
                    "startTime": "2026-01-02T03:04:05Z",
                    "podIP": "127.0.0.7",
                    "podIPs": [{"ip": "127.0.0.7"}],
                    "hostIP": "127.0.0.1",
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": "True",
                            "lastTransitionTime": "2026-01-02T03:04:05Z",
                        },
                        {"type": "Initialized", "status": "True"},
                    ],
                    "containerStatuses": [
                        {
                            "name": "c",
                            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
                            "ready": True,
                            "started": True,
                            "containerID": "containerd://x",
                        }
                    ],
                }
            },
            STRATEGIC,
            fieldManager="kubelet",
        ),
        step(
            "PATCH",
            f"{PODS}/p/status",
            {
                "status": {
                    "$setElementOrder/conditions": [
                        {"type": "Ready"},
                        {"type": "Initialized"},
                        {"type": "example.com/x"},
                    ],
                    "conditions": [
                        {"type": "Ready", "status": "False", "reason": "R", "message": "m"},
                        {"type": "example.com/x", "status": "True", "lastProbeTime": None},
                    ],
                }
            },
            STRATEGIC,
            fieldManager="prober",
        ),
        step("PATCH", f"{PODS}/p/status", {"status": {"conditions": None}}, STRATEGIC),
        step("PATCH", f"{PODS}/p/status", {"status": None}, MERGE),
    ],
    "refused-pods": lambda: [
        step("POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{}]}}),
        step(
            "POST",
            PODS,
            {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "C", "image": "i"}]}},
        ),
        step(
            "POST",
            PODS,
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "image": "i", "ports": [{}]}]},
            },
        ),
        step(
            "POST",
            PODS,
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]},
            },
        ),
        step("GET", f"{PODS}/p/log2"),
        step("PATCH", f"{PODS}/p", {}, MERGE),
        step("PUT", f"{PODS}/p", pod("p")),
        step("PUT", f"{PODS}/p", pod("q")),
    ],
    "a-marker": lambda: [
        step("POST", MARKERS, marker(), dryRun="All"),
        step("POST", MARKERS, marker(), fieldManager="a"),
        step(
            "PATCH",
            f"{MARKERS}/m/status",
            {"status": {"matchedPods": 1, "observedGeneration": 1}},
            MERGE,
        ),
        step("PATCH", f"{MARKERS}/m", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        step("PATCH", f"{MARKERS}/m", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        step("GET", MARKERS),
        step("GET", f"{MARKERS}/m/status"),
        step("PATCH", f"{MARKERS}/m", {"metadata": {"labels": {"a": "-"}}}, MERGE, dryRun="All"),
        step("PATCH", f"{MARKERS}/m", {"metadata": {"labels": None, "annotations": {}}}, MERGE),
        step("PATCH", f"{MARKERS}/m", {"metadata": {"labels": {}}}, MERGE),
        step("DELETE", f"{MARKERS}/m", {"propagationPolicy": "Background"}),
        step("GET", f"{MARKERS}/m"),
        step("DELETE", f"{MARKERS}/m"),
    ],
    "a-lease": lambda: [
        step("POST", LEASES, {"metadata": {"name": "l"}}),
        step(
            "PATCH",
            f"{LEASES}/l",
            {
                "spec": {
                    "holderIdentity": "h",
                    "leaseDurationSeconds": 15,
                    "renewTime": "2026-01-02T03:04:05.000000Z",
                }
            },
            MERGE,
        ),
        step("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {}}),
        step("PATCH", f"{LEASES}/l", {"spec": {"leaseDurationSeconds": "x"}}, MERGE),
        step("DELETE", f"{LEASES}/l"),
    ],
    "an-event": lambda: [
        step(
            "POST",
            EVENTS,
            {
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
                "reason": "R",
                "type": "Normal",
                "source": {"component": "c"},
                "count": 1,
            },
        ),
        step("PATCH", f"{EVENTS}/e", {"count": 2, "lastTimestamp": "2026-01-02T03:04:05Z"}, MERGE),
        step("PATCH", f"{EVENTS}/e", {"count": 3}, STRATEGIC, fieldManager="x"),
        step("DELETE", f"{EVENTS}/e"),
    ],
    "a-namespace": lambda: [
        step("GET", "/api/v1/namespaces/{ns}"),
        step("PATCH", "/api/v1/namespaces/{ns}", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        step("PUT", "/api/v1/namespaces", {}),
        step("DELETE", "/api/v1/namespaces"),
    ],
}


@pytest.mark.parametrize("target", ["real"], indirect=True)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_both_servers_answer_alike(both: tuple[Api, Api], scenario: str) -> None:
    differences = []
    for number, (method, path, body, form, query) in enumerate(SCENARIOS[scenario]()):
        answers = []
        for api in both:
            sent = body
            if isinstance(body, dict):
                sent = fill(body, api.namespace)
            answer = await api.send(
                method,
                path.replace("{ns}", api.namespace),
                sent,
                content_type=form or "application/json",
                **query,
            )
            answers.append((answer.code, normalised(answer.body, api.namespace)))
        real, embedded = answers
        differences += [
            f"step {number} {method} {path}: {each}" for each in compared(real, embedded)
        ]
    assert not differences, "\n".join(["real != embedded", *differences])


def fill(body: Any, namespace: str) -> Any:
    if isinstance(body, dict):
        return {key: fill(each, namespace) for key, each in body.items()}
    if isinstance(body, list):
        return [fill(each, namespace) for each in body]
    return namespace if body == "{ns}" else body


def compared(real: Any, embedded: Any, path: str = "") -> list[str]:
    """Where two answers differ, path by path."""
    if isinstance(real, dict) and isinstance(embedded, dict):
        return [
            found
            for key in sorted(real.keys() | embedded.keys())
            for found in compared(
                real.get(key, "(absent)"), embedded.get(key, "(absent)"), f"{path}.{key}"
            )
        ]
    sequences = isinstance(real, (list, tuple)) and isinstance(embedded, (list, tuple))
    if sequences and len(real) == len(embedded):
        pairs = enumerate(zip(real, embedded, strict=True))
        return [found for at, (a, b) in pairs for found in compared(a, b, f"{path}[{at}]")]
    return [] if real == embedded else [f"{path}: {real!r} != {embedded!r}"]
