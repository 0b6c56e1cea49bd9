"""ReplicaSets: which pods a scale-in deletes."""

import json
from collections.abc import Callable
from typing import Any

from contract.contract_api import replica_set
from support.programs import until
from support.target import status_of

COST = "controller.kubernetes.io/pod-deletion-cost"

Run = Callable[..., Any]


async def pods(kubectl: Run) -> list[Any]:
    found: list[Any] = json.loads(await kubectl("get", "pods", "-o", "json"))["items"]
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


async def scaled(kubectl: Run, replicas: int) -> None:
    await kubectl("scale", "rs", "game", f"--replicas={replicas}")
    await has(kubectl, replicas)


async def has(kubectl: Run, replicas: int) -> None:
    ready = f"jsonpath={{.status.readyReplicas}}={replicas}"
    await kubectl("wait", "rs/game", f"--for={ready}", "--timeout=60s")


async def test_a_scale_in_deletes_the_pods_with_the_lowest_cost(node_kubectl: Run) -> None:
    await node_kubectl(replica_set(replicas=3))
    await has(node_kubectl, 3)
    created = await pods(node_kubectl)
    (owner,) = created[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
    costs = dict(zip((each["metadata"]["name"] for each in created), (5, -10, 10), strict=True))
    for name, cost in costs.items():
        await node_kubectl("annotate", "pod", name, f"{COST}={cost}")

    # A pod without a cost. When the controller has seen it, it has seen the costs of the others too.
    await scaled(node_kubectl, 4)

    for replicas, kept in ((3, [0, 5, 10]), (2, [5, 10]), (1, [10])):
        await scaled(node_kubectl, replicas)
        left = [each["metadata"]["name"] for each in await pods(node_kubectl)]
        assert sorted(costs.get(each, 0) for each in left) == kept
    shown = await node_kubectl("get", "rs", "game")
    assert shown.splitlines()[1].split()[:4] == ["game", "1", "1", "1"]


async def test_a_deleted_pod_is_replaced_until_the_replica_set_is_deleted(
    node_kubectl: Run,
) -> None:
    await node_kubectl(replica_set(replicas=1))
    await has(node_kubectl, 1)
    (first,) = await pods(node_kubectl)
    await node_kubectl("delete", "pod", first["metadata"]["name"])

    async def is_replaced() -> bool:
        found = await pods(node_kubectl)
        uids = {each["metadata"]["uid"] for each in found if status_of(each, "Ready") == "True"}
        return len(found) == 1 and bool(uids - {first["metadata"]["uid"]})

    # The status of the ReplicaSet may still be the one before the deletion.
    await until("another pod is ready", is_replaced)
    await has(node_kubectl, 1)
    await node_kubectl("delete", "rs", "game")
    await node_kubectl("wait", "--for=delete", "pods", "-l", "app=game", "--timeout=60s")
