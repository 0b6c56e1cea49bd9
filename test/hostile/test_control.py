"""The control of every attack: without one, a probe's result reaches the pod. What fails here is no attack's doing."""

from support.hollow import CONDITION, probe
from support.playground import PlaygroundNamespace
from support.target import status_of


async def test_without_an_attack_a_result_reaches_the_pod(ns: PlaygroundNamespace) -> None:
    await ns.pod()
    await ns.marker(probe())
    await ns.until("is marked", lambda pod: status_of(pod, CONDITION) == "True")
