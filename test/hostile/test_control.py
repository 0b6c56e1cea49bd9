"""The control of every attack: without one, a probe's result reaches the pod. What fails here is no attack's doing."""

from typing import Any

import pytest
from support.hollow import marker_object
from support.kubectl import Kubectl
from support.playground import PlaygroundNamespace
from support.real_node import busybox_pod
from support.target import condition, status_of

KIND = "example.com/checked"
MARKER: dict[str, Any] = {
    "name": "checked",
    "containerName": "main",
    "podConditionType": KIND,
    "probe": {"exec": {"command": ["sh", "-c", "true"]}, "periodSeconds": 1},
}


async def test_without_an_attack_a_result_reaches_the_pod(ns: PlaygroundNamespace) -> None:
    await ns.pod()
    await ns.marker(MARKER)
    await ns.until("is marked", lambda pod: condition(pod, KIND).get("status") == "True")


@pytest.mark.real_node
def test_without_an_attack_a_result_reaches_the_pod_on_a_real_node(namespace: Kubectl) -> None:
    with namespace.watch("pods") as pods:
        namespace.apply(busybox_pod("web", "sleep", "100000"), marker_object(MARKER))
        pods.until(
            "the pod is marked",
            lambda newest: "web" in newest and status_of(newest["web"], KIND) == "True",
            timeout=90,
        )
