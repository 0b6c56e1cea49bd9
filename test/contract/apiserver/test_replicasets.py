"""ReplicaSets: which pods a scale-in deletes."""

import json

from contract.async_kubectl import AsyncKubectl
from contract.contract_api import replica_set
from support.programs import until
from support.target import status_of
from support.wire import Json

COST = "controller.kubernetes.io/pod-deletion-cost"


async def pods(kubectl: AsyncKubectl) -> dict[str, Json]:
    """The pods that are not terminating, by name."""
    listed = json.loads(await kubectl("get", "pods", "-o", "json"))
    return {
        pod["metadata"]["name"]: pod
        for pod in listed["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


async def create(kubectl: AsyncKubectl, replicas: int) -> None:
    await kubectl.apply(replica_set(replicas=replicas))
    await has(kubectl, replicas)


async def scale(kubectl: AsyncKubectl, replicas: int) -> None:
    await kubectl("scale", "rs", "game", f"--replicas={replicas}")
    await has(kubectl, replicas)


async def has(kubectl: AsyncKubectl, replicas: int) -> None:
    ready = f"jsonpath={{.status.readyReplicas}}={replicas}"
    await kubectl("wait", "rs/game", f"--for={ready}", "--timeout=60s")


async def test_a_scale_in_deletes_the_pods_with_the_lowest_cost(node_kubectl: AsyncKubectl) -> None:
    await create(node_kubectl, 3)
    created = await pods(node_kubectl)
    for pod in created.values():
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
    costs = dict(zip(created, (5, -10, 10), strict=True))
    for name, cost in costs.items():
        await node_kubectl("annotate", "pod", name, f"{COST}={cost}")

    # A pod without a cost. When the controller has seen it, it has seen the costs of the others too.
    await scale(node_kubectl, 4)

    for kept in ([0, 5, 10], [5, 10], [10]):
        await scale(node_kubectl, len(kept))
        left = await pods(node_kubectl)
        assert sorted(costs.get(name, 0) for name in left) == kept
    shown = await node_kubectl("get", "rs", "game")
    assert shown.splitlines()[1].split()[:4] == ["game", "1", "1", "1"]


async def test_a_deleted_pod_is_replaced_until_the_replica_set_is_deleted(
    node_kubectl: AsyncKubectl,
) -> None:
    await create(node_kubectl, 1)
    (first,) = await pods(node_kubectl)
    await node_kubectl("delete", "pod", first)

    async def is_replaced() -> bool:
        found = await pods(node_kubectl)
        if len(found) != 1 or first in found:
            return False
        (pod,) = found.values()
        return status_of(pod, "Ready") == "True"

    # The status of the ReplicaSet may still be the one before the deletion.
    await until("another pod is ready", is_replaced)
    await has(node_kubectl, 1)
    await node_kubectl("delete", "rs", "game")
    await node_kubectl("wait", "--for=delete", "pods", "-l", "app=game", "--timeout=60s")
