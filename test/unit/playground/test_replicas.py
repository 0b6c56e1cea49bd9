"""The controller of ReplicaSets: which pods it counts, and which a scale-in deletes first."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.api_server import ApiServer
from support.node_records import node_pod

from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe_playground.apiserver.writing import Editor, WriteOptions
from kruise_probe_playground.node.pods import NodePod
from kruise_probe_playground.replicas import ReplicaSetController, deletion_order


def pod(
    name: str,
    *,
    node: str = "node-0",
    phase: str = "Running",
    ready: bool = True,
    cost: str = "",
    restarts: int = 0,
    created: int = 0,
) -> NodePod:
    annotations = {DELETION_COST_ANNOTATION: cost} if cost else {}
    metadata = {
        "name": name,
        "annotations": annotations,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
    }
    status: Any = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "main", "restartCount": restarts}],
    }
    return node_pod("main", metadata=metadata, status=status, nodeName=node or None)


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([pod("a", node=""), pod("b", phase="Pending", ready=False, cost="-10")], id="no-node"),
        pytest.param([pod("a", phase="Pending"), pod("b", ready=False)], id="pending"),
        pytest.param([pod("a", ready=False, cost="10"), pod("b", cost="-10")], id="not-ready"),
        pytest.param([pod("a", cost="-10"), pod("b"), pod("c", cost="10")], id="cost"),
        pytest.param([pod("a", cost="-2"), pod("b", cost="x"), pod("c", cost="1")], id="invalid-cost-is-zero"),
        pytest.param([pod("a", node="full"), pod("b", node="full", cost="1"), pod("c", node="other", cost="1")], id="fuller-node"),
        pytest.param([pod("a", restarts=3), pod("b", restarts=1)], id="more-restarts"),
        pytest.param([pod("a", created=9), pod("b", created=1)], id="newer"),
    ],
)  # fmt: skip
def test_deletion_order_is_that_of_kubernetes(pods: list[NodePod]) -> None:
    assert deletion_order(pods[::-1]) == pods


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_ready_pods_are_deleted_by_cost(costs: list[int]) -> None:
    pods = [pod(f"p{number}", cost=str(cost)) for number, cost in enumerate(costs)]
    ordered = [
        int((each.metadata.annotations or {})[DELETION_COST_ANNOTATION])
        for each in deletion_order(pods)
    ]
    assert ordered == sorted(costs)


OTHERS = 500
"""As many as the first page of a list has; their names sort before those of the ReplicaSet's pods."""


async def replicas_written(server: ApiServer, patch: pytest.MonkeyPatch) -> int:
    """The first status.replicas above 0; or the number of pods, if there are more than the one wanted."""
    changed = asyncio.Event()
    record = server.registry.store.next_revision

    def next_revision() -> int:
        changed.set()
        return record()

    patch.setattr(server.registry.store, "next_revision", next_revision)
    while True:
        await changed.wait()
        changed.clear()
        created = len(server.objects("pods")) - OTHERS
        written: int = server.objects("replicasets.apps")[0]["status"]["replicas"]
        if written or created > 1:
            return max(created, written)


@pytest.mark.sockets
async def test_pods_after_the_first_page_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"app": "z"}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    replica_set = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    async with ApiServer() as server:
        editor, kinds = Editor(server.registry), server.registry.kinds
        for number in range(OTHERS):
            body = {"metadata": {"name": f"a-{number}"}, "spec": spec}
            editor.create(kinds["pods"], "default", body, WriteOptions())
        body = {"metadata": {"name": "z"}, "spec": replica_set}
        editor.create(kinds["replicasets.apps"], "default", body, WriteOptions())
        config = ClusterConfig.plain(server.url)
        async with RestClient(config=config, field_manager="test", user_agent="test") as client:
            controller = asyncio.create_task(ReplicaSetController(client).run())
            assert await replicas_written(server, monkeypatch) == 1
            controller.cancel()
            await asyncio.wait([controller])
