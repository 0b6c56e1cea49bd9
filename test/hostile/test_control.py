"""The control of every attack: without one, a probe's result reaches the pod. What fails here is no attack's doing."""

from typing import Any

from support.playground import PlaygroundNamespace
from support.target import condition

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
