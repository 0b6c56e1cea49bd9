"""The control of every attack: without one, a probe's result reaches the pod. What fails here is no attack's doing."""

from typing import Any

import pytest
from support.kubectl import Kubectl, status_of
from support.space import Space
from support.world import condition

KIND = "example.com/checked"
MARKER: dict[str, Any] = {
    "name": "checked",
    "containerName": "main",
    "podConditionType": KIND,
    "probe": {"exec": {"command": ["sh", "-c", "true"]}, "periodSeconds": 1},
}


async def test_without_an_attack_a_result_reaches_the_pod(space: Space) -> None:
    await space.pod()
    await space.marker(MARKER)
    await space.until("is marked", lambda pod: condition(pod, KIND).get("status") == "True")


@pytest.mark.real_node
def test_without_an_attack_a_result_reaches_the_pod_on_a_real_node(namespace: Kubectl) -> None:
    container = {
        "name": "main",
        "image": "kruise-probe-test:busybox",
        "imagePullPolicy": "Never",
        "command": ["sleep", "100000"],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    marker = {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "PodProbeMarker",
        "metadata": {"name": "marker"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "probes": [MARKER]},
    }
    with namespace.watch("pods") as pods:
        namespace.apply(pod, marker)
        pods.until(
            "the pod is marked",
            lambda newest: "web" in newest and status_of(newest["web"], KIND) == "True",
            timeout=90,
        )
